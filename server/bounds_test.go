package server_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each test that docs/bounds.md and docs/security.md name is there.
func TestBoundsAreTested(t *testing.T) {
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"bounds", "security"} {
		page, err := os.ReadFile("../docs/" + file + ".md")
		if err != nil {
			t.Fatal(err)
		}
		named := regexp.MustCompile(`\bTest\w+`).FindAllString(string(page), -1)
		if len(named) < 20 {
			t.Errorf("docs/%s.md names only %d tests", file, len(named))
		}
		for _, name := range named {
			if name != "TestAttack" && !strings.Contains(all.String(), "\nfunc "+name+"(t *testing.T)") { // the names begin with that one
				t.Errorf("docs/%s.md names %s, which is not there", file, name)
			}
		}
	}
}

// Each fuzz target of the module is in the table of docs/bounds.md, with its package.
func TestFuzzTargetsAreListed(t *testing.T) {
	page, err := os.ReadFile("../docs/bounds.md")
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	err = filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range target.FindAllStringSubmatch(string(text), -1) {
			where := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")
			if where == ".." {
				where = "stint"
			}
			if !strings.Contains(string(page), "| `"+m[1]+"` | "+where+" |") {
				t.Errorf("docs/bounds.md does not name %s of %s", m[1], where)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
