package stint_test

import (
	"os/exec"
	"strings"
	"testing"
)

// The root package imports the standard library and packages of its own, nothing
// else, however deep.
func TestNoForeignImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for _, path := range strings.Fields(string(out)) {
		if path != "github.com/stintdev/stint" && !strings.HasPrefix(path, "github.com/stintdev/stint/internal/") {
			t.Errorf("the root package depends on %s", path)
		}
	}
}
