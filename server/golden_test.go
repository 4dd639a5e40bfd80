package server_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata/*.txt")

// story is a part of a golden file: a line "=== title", what is given, a line
// "---", and what comes of it, which -update rewrites for a person to read.
type story struct{ title, given, want string }

func stories(data string) []story {
	var all []story
	for _, text := range strings.Split("\n"+data, "\n=== ")[1:] {
		var s story
		s.title, text, _ = strings.Cut(text, "\n")
		s.given, s.want, _ = strings.Cut(text, "---\n")
		s.want = strings.TrimRight(s.want, "\n") + "\n"
		all = append(all, s)
	}
	return all
}

// golden tells the stories of a file.
func golden(t *testing.T, path string, outcome func(t *testing.T, given string) string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rewritten strings.Builder
	for i, s := range stories(string(data)) {
		got := strings.TrimRight(outcome(t, s.given), "\n") + "\n"
		if got != s.want && !*update {
			t.Errorf("%s:\n%s\ngot:\n%swant:\n%s", s.title, s.given, got, s.want)
		}
		if i > 0 {
			rewritten.WriteByte('\n')
		}
		fmt.Fprintf(&rewritten, "=== %s\n%s---\n%s", s.title, s.given, got)
	}
	if *update {
		if err := os.WriteFile(path, []byte(rewritten.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
