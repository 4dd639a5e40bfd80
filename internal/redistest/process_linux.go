package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// dieWithUs makes the kernel end a server when the test's process dies.
func dieWithUs(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// reserve keeps a port from the tests of other processes until this process ends, and reports whether
// it could.
func reserve(port int) bool {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("stint-test-ports-%d", os.Getuid()))
	if os.MkdirAll(dir, 0o700) != nil {
		return false
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(port)), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return false
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		_ = f.Close()
		return false
	}
	reserved.Store(port, f) // an unreferenced file would be closed
	return true
}
