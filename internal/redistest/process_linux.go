package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithUs has the kernel end a server when the test's process dies.
func dieWithUs(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
