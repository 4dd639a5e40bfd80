// Package golden runs tests whose input and expected output lie in one text file, which
// -update rewrites for a person to read.
//
// A file has parts: a line "=== title", what is given, a line "---", and what comes of it.
package golden

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata/*.txt")

// Part is one test of a file.
type Part struct{ Title, Given, Want string }

// Read returns the parts of a file.
func Read(t testing.TB, path string) []Part {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []Part
	for _, text := range strings.Split("\n"+string(data), "\n=== ")[1:] {
		var p Part
		p.Title, text, _ = strings.Cut(text, "\n")
		p.Given, p.Want, _ = strings.Cut(text, "---\n")
		p.Want = strings.TrimRight(p.Want, "\n") + "\n"
		all = append(all, p)
	}
	return all
}

// Run fails t for each part of a file whose outcome is another than it says, or with
// -update rewrites the file.
func Run(t *testing.T, path string, outcome func(t *testing.T, given string) string) {
	t.Helper()
	var rewritten strings.Builder
	for i, p := range Read(t, path) {
		got := strings.TrimRight(outcome(t, p.Given), "\n") + "\n"
		if got != p.Want && !*update {
			t.Errorf("%s:\n%s\ngot:\n%swant:\n%s", p.Title, p.Given, got, p.Want)
		}
		if i > 0 {
			rewritten.WriteByte('\n')
		}
		fmt.Fprintf(&rewritten, "=== %s\n%s---\n%s", p.Title, p.Given, got)
	}
	if *update {
		if err := os.WriteFile(path, []byte(rewritten.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
