package redistest

import "testing"

// Skip skips t because a program is not installed, and names it and the command that
// installs it. "go test" prints nothing of tests that are skipped; "make test" ends with
// a line that has each reason.
func Skip(t testing.TB, program, install string) {
	t.Helper()
	t.Skipf("%s is not installed: %s", program, install)
}
