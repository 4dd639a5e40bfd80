package server_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each test that the table of docs/bounds.md names, in Go, is there.
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
	const file = "config/bounds_table_test.go"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\bTest\w+`).FindAllString(string(page), -1)
	if len(named) < 20 {
		t.Errorf("%s names only %d tests", file, len(named))
	}
	for _, name := range named {
		if !strings.Contains(all.String(), "\nfunc "+name+"(t *testing.T)") {
			t.Errorf("%s names %s, which is not there", file, name)
		}
	}
}
