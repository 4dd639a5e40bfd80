package yamlnode_test

import (
	"errors"
	"testing"

	"github.com/stintdev/stint/internal/yamlnode"
)

func TestMerge(t *testing.T) {
	one := func(file string, line, column int, text string) *yamlnode.Error {
		return &yamlnode.Error{File: file, Problems: []yamlnode.Problem{{Line: line, Column: column, Text: text}}}
	}
	other := errors.New("no files")
	for _, c := range []struct {
		a, b error
		want string
	}{
		{one("a", 2, 1, "x"), nil, "a:2:1: x"},
		{nil, one("a", 2, 1, "x"), "a:2:1: x"},
		{one("a", 2, 1, "x"), one("a", 2, 1, "x"), "a:2:1: x"},
		{one("a", 9, 1, "x"), one("a", 2, 7, "y"), "a:2:7: y\na:9:1: x"},
		{one("b", 9, 1, "x"), errors.Join(one("a", 2, 7, "y"), one("b", 3, 1, "z")), "b:3:1: z\nb:9:1: x\na:2:7: y"},
		{one("a", 9, 1, "x"), other, "a:9:1: x\nno files"},
	} {
		if got := yamlnode.Merge(c.a, c.b); got == nil || got.Error() != c.want {
			t.Errorf("%q and %q: %q, want %q", c.a, c.b, got, c.want)
		}
	}
	if err := yamlnode.Merge(nil, nil); err != nil {
		t.Error(err)
	}
	many := &yamlnode.Error{File: "a", More: 3}
	for i := range 15 {
		many.Problems = append(many.Problems, yamlnode.Problem{Line: i + 1, Column: 1, Text: "x"})
	}
	later := &yamlnode.Error{File: "a"}
	for i := range 15 {
		later.Problems = append(later.Problems, yamlnode.Problem{Line: i + 1, Column: 2, Text: "x"})
	}
	var all *yamlnode.Error
	if !errors.As(yamlnode.Merge(many, later), &all) || len(all.Problems) != 20 || all.More != 13 {
		t.Errorf("%+v", all)
	}
}
