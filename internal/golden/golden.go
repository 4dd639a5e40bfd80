// Package golden runs tests whose input and expected output are in one text file, which -update
// rewrites for a person to review.
//
// A file has parts: a line "=== title", the input, a line "---", and the output.
package golden

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata/*.txt")

// Updates reports whether files are rewritten, so that differences are no failures.
func Updates() bool { return *update }

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

// Run fails t for each part of a file with a different outcome, or with -update rewrites the file.
func Run(t *testing.T, path string, outcome func(t *testing.T, given string) string) {
	t.Helper()
	var rewritten strings.Builder
	for i, p := range Read(t, path) {
		got := strings.TrimRight(outcome(t, p.Given), "\n") + "\n"
		if got != p.Want && !*update {
			t.Errorf("%s:\n%s\n%s", p.Title, p.Given, apart(got, p.Want))
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

// File fails t if the file at path differs from made, or with -update rewrites it.
func File(t *testing.T, path, made string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(is) != made {
		t.Errorf("%s is not what is made; -update rewrites it\n%s", path, apart(made, string(is)))
	}
}

// Between is page with text between the marks of name, "<!-- name -->" and "<!-- /name -->".
func Between(t *testing.T, page, name, text string) string {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	before, rest, begun := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !begun || !ended {
		t.Fatalf("the page has no marks of %s", name)
	}
	return before + begin + text + end + after
}

// around is how many lines are shown before and after the first difference.
const around = 12

// apart shows where two texts differ first.
func apart(got, want string) string {
	g, w := strings.SplitAfter(got, "\n"), strings.SplitAfter(want, "\n")
	n := 0
	for n < min(len(g), len(w)) && g[n] == w[n] {
		n++
	}
	from := max(0, n-around)
	part := func(lines []string) string { return strings.Join(lines[from:min(len(lines), n+around)], "") }
	return fmt.Sprintf("from line %d on, got:\n%swant:\n%s", from+1, part(g), part(w))
}
