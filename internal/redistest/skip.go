package redistest

import "testing"

// Skip skips t because a program is not installed, and names the command that installs it. "make
// test" ends with the reasons.
func Skip(t testing.TB, program, install string) {
	t.Helper()
	t.Skipf("%s is not installed: %s", program, install)
}
