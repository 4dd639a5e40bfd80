package yamlnode_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/internal/yamlnode"
)

func shown(t *testing.T, n *yamlnode.Node) string {
	t.Helper()
	var v any
	if err := n.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(v)
}

// What is expanded says what package yaml reads of the original.
func TestOpenExpanded(t *testing.T) {
	for _, text := range []string{
		"a: &x [1, 2]\nb: *x\n",
		"a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}\nc: {l: 3, <<: *x}\n",
		"a: &x {k: 1}\nb: &y {k: 2, m: 3}\nc: {<<: [*x, *y], n: 4}\n",
		"a: &x {k: &z 1}\nb: [*z, *x, *z]\n",
		"a: {<<: {k: 1}}\n",
	} {
		var want any
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		r, root := yamlnode.OpenExpanded("f", []byte(text), 1000, "")
		if r.Err() != nil {
			t.Errorf("%s: %v", text, r.Err())
			continue
		}
		if got := shown(t, root); got != fmt.Sprint(want) {
			t.Errorf("%s is read as %s, want %v", text, got, want)
		}
	}
	if r, root := yamlnode.OpenExpanded("f", []byte("a: 1\n---\nb: 2\n"), 1000, ""); r.Err() != nil || shown(t, root) != "map[a:1]" {
		t.Errorf("of two documents the first: %v", r.Err())
	}
	if r, root := yamlnode.OpenExpanded("f", []byte("# nothing\n"), 1000, ""); r.Err() != nil || len(root.Content) != 0 {
		t.Errorf("an empty file: %v", r.Err())
	}
}

func TestOpenExpandedErrors(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		bomb += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	for _, test := range []struct{ text, want string }{
		{bomb, "the aliases stand for too much: at most 1000000 values are allowed"},
		{"a: &x [*x]\n", "f:1:8: the alias *x stands for itself"},
		{"a: &x {<<: *x}\n", "f:1:12: the alias *x stands for itself"},
		{"a: &x [&y [*x], *y]\n", "f:1:12: the alias *x stands for itself"},
		{"a: *x\n", "unknown anchor"},
		{"a: &x [1]\nb: {<<: *x}\n", "f:1:8: a merge key (<<) needs a mapping or a list of mappings, have the number \"1\""},
		{"a: &x 1\nb: {<<: *x}\n", "f:1:4: a merge key (<<) needs a mapping or a list of mappings, have the number \"1\""},
		{"a: !!binary aGk=\n", "explicit tags (!!binary) are not allowed"},
		{"a: " + strings.Repeat("x", 1000) + "\n", "the file has 1004 bytes: at most 1000"},
		{"a: \xff\n", "not valid UTF-8"},
		{"a: [\n", "not YAML"},
	} {
		most := 1000
		r, _ := yamlnode.OpenExpanded("f", []byte(test.text), most, "")
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.60q: %v, want %s", test.text, err, test.want)
		}
	}
}

// A file that stands for a huge one is refused soon, and by merge keys, too.
func TestOpenExpandedIsBounded(t *testing.T) {
	text := "a0: &a0 {x: 1}\n"
	for i := range 100 {
		text += fmt.Sprintf("a%d: &a%d {k%d: *a%d, l%d: *a%d, <<: [*a%d, *a%d]}\n", i+1, i+1, i, i, i, i, i, i)
	}
	done := make(chan error, 1)
	go func() {
		r, _ := yamlnode.OpenExpanded("f", []byte(text), 1<<20, "")
		done <- r.Err()
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("it was read")
		}
	case <-time.After(time.Minute):
		t.Fatal("it takes more than a minute")
	}
}
