//go:build unix && !solaris && !aix

package control

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks f until it is closed or the process ends, however it does.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errStateUsed
	}
	return err
}
