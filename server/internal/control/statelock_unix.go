//go:build unix && !solaris && !aix

package control

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// isOurs reports whether this process's user, or root, owns a file.
func isOurs(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || s.Uid == 0 || int(s.Uid) == os.Geteuid()
}

// lockFile locks f until it is closed or the process ends in any way.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errStateUsed
	}
	return err
}
