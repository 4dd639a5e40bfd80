package stint_test

import (
	"slices"
	"strings"
	"testing"
)

// The root package imports the standard library and packages of its own, nothing
// else, however deep; and so does what makes a Store of any database, with package fleet.
func TestNoForeignImports(t *testing.T) {
	for of, own := range map[string][]string{".": nil, "./store": {"store", "fleet"}} {
		for _, path := range strings.Fields(output(t, "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", of)) {
			name, found := strings.CutPrefix(path, ours)
			if name = strings.TrimPrefix(name, "/"); !found || name != "" && !strings.HasPrefix(name, "internal/") && !slices.Contains(own, name) {
				t.Errorf("%s depends on %s", of, path)
			}
		}
	}
}
