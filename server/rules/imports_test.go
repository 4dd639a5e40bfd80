package rules_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Only server/rules/internal/expr imports CEL, and it knows nothing of YAML, files or limits.
func TestImports(t *testing.T) {
	for _, c := range []struct {
		pkg       string
		forbidden []string
	}{
		{".", []string{"cel.dev/"}},
		{"./internal/expr", []string{"go.yaml.in/", "net/http", "github.com/stintdev/stint"}},
	} {
		out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, c.pkg).CombinedOutput()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		imports := strings.Fields(string(out))
		if len(imports) < 10 {
			t.Errorf("%s has %d imports: the test shows little", c.pkg, len(imports))
		}
		for _, path := range imports {
			if path == "github.com/stintdev/stint/internal/spelling" || path == "github.com/stintdev/stint/internal/address" {
				continue
			}
			if slices.ContainsFunc(c.forbidden, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
				t.Errorf("%s imports %s", c.pkg, path)
			}
		}
	}
}
