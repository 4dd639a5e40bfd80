package friend_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The compiler refuses calls of stint.Internal to other modules, whatever they write for its argument.
func TestStrangers(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		imports, body string
		refused       string // part of what the compiler says; "" for nothing
	}{
		"the public API":            {"", `stint.MustLimit("1 per 1s")`, ""},
		"the type":                  {"github.com/stintdev/stint/internal/friend", "stint.Internal(friend.Of{})", "use of internal package github.com/stintdev/stint/internal/friend not allowed"},
		"nothing":                   {"", "stint.Internal()", "not enough arguments in call to stint.Internal"},
		"nil":                       {"", "stint.Internal(nil)", "cannot use nil as friend.Of value"},
		"a constant":                {"", "stint.Internal(0)", "cannot use 0 (untyped int constant) as friend.Of value"},
		"an empty struct":           {"", "stint.Internal(struct{}{})", "as friend.Of value in argument"},
		"a struct of the same form": {"", "stint.Internal(struct{ _ struct{} }{})", "as friend.Of value in argument"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			imports := "\t\"github.com/stintdev/stint\"\n"
			if c.imports != "" {
				imports += "\t\"" + c.imports + "\"\n"
			}
			for file, text := range map[string]string{
				"go.mod":  "module stranger.example\n\ngo 1.26.0\n\nrequire github.com/stintdev/stint v0.0.0\n\nreplace github.com/stintdev/stint => " + strconv.Quote(root) + "\n",
				"main.go": "package main\n\nimport (\n" + imports + ")\n\nfunc main() {\n\t" + c.body + "\n}\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, ".")
			cmd.Dir = dir
			cmd.Env = append(cmd.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GOPROXY=off")
			out, err := cmd.CombinedOutput()
			if (err != nil) != (c.refused != "") || !strings.Contains(string(out), c.refused) {
				t.Errorf("%s: %v\n%swant %q", c.body, err, out, c.refused)
			}
		})
	}
}
