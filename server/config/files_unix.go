//go:build unix

package config

import "syscall"

// openFiles is how many files this process may have open; 0: not known. It is a variable for tests.
var openFiles = func() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int64(min(limit.Cur, 1<<40)) // the Go runtime has raised it to the maximum
}
