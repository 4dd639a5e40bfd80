package schematest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/internal/schema"
)

// Fields that go together, or not, may each be left out, be empty, false or 0, or be as they are: of all
// these files, the schema refuses none that Stint takes, and of each field one that Stint refuses, too.
func TestLinkedFields(t *testing.T) {
	l := linked{t: t, named: namedFields(), to: map[string][]string{}, examples: map[string]*yaml.Node{}, tried: map[string]int{}, refused: map[string]bool{}}
	find := func(path string, row *schema.Row) {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(cmp.Or(row.Example, row.Default, "{}")), &doc); err != nil {
			t.Fatal(path, err)
		}
		l.examples[path] = doc.Content[0]
		for _, other := range slices.Concat(row.Needs, row.Instead, row.Not) {
			other, _, _ = strings.Cut(other, "=")
			other, _, _ = strings.Cut(other, ".")
			l.to[path] = append(l.to[path], other)
		}
		if len(l.to[path]) > 0 {
			l.refused[name(path)] = false
		}
	}
	eachRow(find)
	for _, f := range rightFiles(t) {
		var doc yaml.Node
		if err := yaml.Unmarshal(f.text, &doc); err != nil {
			t.Fatal(err)
		}
		l.doc = &doc
		l.each(doc.Content[0], "")
	}
	t.Logf("%d right files, %d wrong ones", l.right, l.wrong)
	if l.right < 20 || l.wrong < 20 {
		t.Error("too few of one kind")
	}
	for field, is := range l.refused {
		if !is {
			t.Errorf("the schema refuses no file for what %s goes with", field)
		}
	}
}

type linked struct {
	t            *testing.T
	doc          *yaml.Node
	named        map[string]bool       // fields in which the file chooses the names
	to           map[string][]string   // the fields that go with a path, or not
	examples     map[string]*yaml.Node // of all paths
	tried        map[string]int        // in how many files, by change
	refused      map[string]bool       // by name, of files whose values are of their kind
	right, wrong int
}

func (l *linked) each(n *yaml.Node, at string) {
	for i, item := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			l.each(item, at+"[]")
		case i%2 == 1:
			field := strings.TrimPrefix(at+"."+n.Content[i-1].Value, ".")
			if l.named[at] {
				field = at + ".NAME"
			}
			for _, other := range l.to[field] {
				l.both(n, field, i-1, other)
			}
			l.each(item, field)
		}
	}
}

// both changes the field of n at i and the one named other, each in all ways. If n has no other, it gets one.
func (l *linked) both(n *yaml.Node, field string, i int, other string) {
	in, _ := strings.CutSuffix(field, name(field))
	in = strings.TrimSuffix(in, ".")
	was, fields, has := n.Content, n.Content, false
	defer func() { n.Content = was }()
	j := 0
	for ; j < len(fields) && !has; j += 2 {
		has = fields[j].Value == other
	}
	if has {
		j -= 2
	} else {
		fields = append(fields[:j:j], &yaml.Node{Kind: yaml.ScalarNode, Value: other}, l.examples[strings.TrimPrefix(in+"."+other, ".")])
	}
	for x, a := range append(nothing, nil, fields[i+1]) {
		for y, b := range append(nothing, nil, fields[j+1]) {
			const enough = 3
			change := fmt.Sprint(field, other, x, y, has)
			if l.tried[change]++; l.tried[change] > enough {
				continue
			}
			n.Content = slices.Clone(fields)
			n.Content[i+1], n.Content[j+1] = a, b
			for _, k := range []int{max(i, j), min(i, j)} {
				if n.Content[k+1] == nil {
					n.Content = slices.Delete(n.Content, k, k+2)
				}
			}
			l.try(field, other, min(x, y) >= len(nothing))
		}
	}
	n.Content = fields
}

// name is the last of a path.
func name(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// nothing are values that count as left out.
var nothing = []*yaml.Node{
	{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle},
	{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "false"},
	{Kind: yaml.ScalarNode, Tag: "!!int", Value: "0"},
	{Kind: yaml.SequenceNode},
}

func (l *linked) try(field, other string, ofKind bool) {
	file, err := yaml.Marshal(l.doc)
	if err != nil {
		l.t.Fatal(err)
	}
	switch {
	case !isPlain(file):
		return // empty
	case reads(file) != nil:
		if l.wrong++; ofKind && refusal(l.t, file) != nil {
			l.refused[name(field)] = true
		}
		return
	}
	l.right++
	if err := refusal(l.t, file); err != nil {
		l.t.Errorf("%s and %s: this is right: %v\n%s", field, other, err, file)
	}
}
