package conn

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/stintdev/stint"

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = "../../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// Of all packages but the one that starts servers for tests, this one alone imports
// rueidis: nothing else depends on which Redis client it is. bench is another module.
func TestOnlyConnImportsRueidis(t *testing.T) {
	var got []string
	for _, line := range goList(t, "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "work") {
		path, imports, _ := strings.Cut(line, " ")
		if strings.Contains(imports, "github.com/redis/rueidis") {
			got = append(got, strings.TrimPrefix(path, module))
		}
	}
	if want := []string{"/internal/redistest", "/redislimit/internal/conn"}; !slices.Equal(got, want) {
		t.Errorf("rueidis is imported by %v, want %v", got, want)
	}
}

// The connection knows nothing of limits.
func TestNoLimits(t *testing.T) {
	for _, path := range goList(t, "-deps", "./redislimit/internal/conn") {
		if path == module || path == module+"/internal/algo" || path == module+"/redislimit" {
			t.Errorf("conn depends on %s", path)
		}
	}
}
