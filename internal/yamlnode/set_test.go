package yamlnode_test

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/internal/yamlnode"
)

// Set puts a value where a path says, and problems there name what has it.
func TestSet(t *testing.T) {
	for _, c := range []struct{ file, path, value, want string }{
		{"{}", "a", "1", "{a: 1}\n"},
		{"{a: 2, b: 3}", "a", "1", "{a: 1, b: 3}\n"},
		{"{b: {d: 3}}", "b.c", "1", "{b: {d: 3, c: 1}}\n"},
		{"{b: 3}", "b.c", "1", "{b: 3}\n"},
		{"{}", "b.c.d", "1", "{b: {c: {d: 1}}}\n"},
		{"{}", "l[].c", "1", "{l: [{c: 1}]}\n"},
		{"{l: [{c: 5, d: 6}, {c: 7}]}", "l[].c", "1", "{l: [{c: 1}]}\n"},
	} {
		r, root := yamlnode.Open("f", []byte(c.file))
		before, _ := yaml.Marshal(root)
		changed := r.Set(root, strings.Split(c.path, "."), yamlnode.Plain(c.value), "A_VARIABLE")
		if got, err := yaml.Marshal(changed); string(got) != c.want || err != nil {
			t.Errorf("%s at %s: %s, want %s", c.file, c.path, got, c.want)
		}
		if after, _ := yaml.Marshal(root); string(after) != string(before) {
			t.Errorf("%s has become %s", before, after)
		}
	}
}

func TestProblemsOfValuesFromElsewhere(t *testing.T) {
	r, root := yamlnode.Open("f.yaml", []byte("a: x\nb: x\n"))
	root = r.Set(root, []string{"b"}, yamlnode.Plain("y"), "A_VARIABLE")
	var n int64
	r.Mapping(root, yamlnode.Fields{"a": r.Int64(&n, 0, 1), "b": r.Int64(&n, 0, 1)})
	const want = `A_VARIABLE: want a whole number, have the text "y"
f.yaml:1:4: want a whole number, have the text "x"`
	if err := r.Err(); err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}
