package sqlstore_test

import "syscall"

// The kernel ends a server when the test's process dies.
func init() { dieWithUs = func(as *syscall.SysProcAttr) { as.Pdeathsig = syscall.SIGKILL } }
