package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Skip skips t because a program is not installed, and names it. "go test ./..."
// prints nothing of tests that pass or are skipped, so the first test of a package
// that is skipped for want of a program also says so on the terminal, if there is
// one; "go test -v" names them all.
func Skip(t testing.TB, program, install string) {
	t.Helper()
	if _, told := tellOnce.LoadOrStore(program, true); !told {
		if terminal, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
			_, _ = fmt.Fprintf(terminal, "%s: tests that want %s are SKIPPED, %s first: %s\n", packageUnderTest(), program, t.Name(), install)
			_ = terminal.Close()
		}
	}
	t.Skipf("SKIPPED FOR WANT OF %s: %s to run this test", strings.ToUpper(program), install)
}

var tellOnce sync.Map // program → true

// packageUnderTest is the directory of the package whose tests run: go test runs
// them there, and names their binary after it.
func packageUnderTest() string {
	return strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
}
