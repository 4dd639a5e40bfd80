package schematest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Of the files with one field that is broken, each field once in each way, and of those that other tests
// show to be wrong, the schema refuses nearly all that stint rules check refuses. Where the change leaves a
// file right, the schema takes it, too.
func TestBrokenFiles(t *testing.T) {
	b := breaker{t: t, seen: map[string]bool{}, named: namedFields(), tally: map[string]*tally{}}
	for _, f := range rightFiles(t) {
		var doc yaml.Node
		if err := yaml.Unmarshal(f.text, &doc); err != nil {
			t.Fatal(err)
		}
		b.doc = &doc
		b.each(doc.Content[0], "")
	}
	_, _, tested := candidates(t)
	for _, f := range tested {
		if isPlain(f.text) {
			b.try("wrong in other tests", "", f.text)
		}
	}
	var all tally
	for _, way := range slices.Sorted(maps.Keys(b.tally)) {
		n := b.tally[way]
		t.Logf("%s: %d of %d", way, n.refused, n.broken)
		all.refused, all.broken = all.refused+n.refused, all.broken+n.broken
	}
	share := float64(all.refused) / float64(all.broken)
	t.Logf("the schema refuses %d of %d, %.1f%%", all.refused, all.broken, 100*share)
	const least = 190.0 / 200
	if all.broken < 200 || share < least {
		t.Errorf("want at least %.0f%% of 200 or more; it lets pass\n%s", 100*least, strings.Join(b.passed, "\n"))
	}
}

type tally struct{ broken, refused int }

// breaker breaks one field of doc at a time.
type breaker struct {
	t      *testing.T
	doc    *yaml.Node
	seen   map[string]bool // way and field
	named  map[string]bool // fields in which the file chooses the names
	tally  map[string]*tally
	passed []string
}

// try counts a file, if it is broken.
func (b *breaker) try(way, at string, file []byte) {
	err := reads(file)
	if err == nil {
		return
	}
	if b.tally[way] == nil {
		b.tally[way] = new(tally)
	}
	b.tally[way].broken++
	var refused *jsonschema.ValidationError
	if errors.As(refusal(b.t, file), &refused) {
		b.tally[way].refused++
		return
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	b.passed = append(b.passed, fmt.Sprintf("%s, %s: %s", way, at, first))
}

// with tries doc with to in place of n, if that is broken at a field that was not broken so before.
func (b *breaker) with(way, at string, n *yaml.Node, to yaml.Node) {
	if b.seen[way+" "+at] {
		return
	}
	was := *n
	*n = to
	file, err := yaml.Marshal(b.doc)
	*n = was
	if err != nil {
		b.t.Fatal(err)
	}
	if !isPlain(file) {
		return // empty
	}
	if reads(file) != nil {
		b.seen[way+" "+at] = true
		b.try(way, at, file)
	} else if err := refusal(b.t, file); err != nil {
		b.seen[way+" "+at] = true
		b.t.Errorf("%s, %s: this is right: %v\n%s", way, at, err, file)
	}
}

func scalar(tag, value string) yaml.Node {
	return yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// each breaks n and all in it, in each way.
func (b *breaker) each(n *yaml.Node, at string) {
	copied := *n
	switch n.Kind {
	case yaml.MappingNode:
		b.with("list for mapping", at, n, yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{&copied}})
		b.with("text for mapping", at, n, scalar("!!str", "zzqx"))
		b.mapping(n, at)
	case yaml.SequenceNode:
		b.with("mapping for list", at, n, yaml.Node{Kind: yaml.MappingNode})
		b.with("text for list", at, n, scalar("!!str", "zzqx"))
		for _, item := range n.Content {
			b.each(item, at+"[]")
		}
	default:
		b.scalar(n, at)
	}
	b.with("nothing", at, n, scalar("!!null", "null"))
}

func (b *breaker) mapping(n *yaml.Node, at string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		field := strings.TrimPrefix(at+"."+name.Value, ".")
		if b.named[at] {
			field = at + ".NAME"
		}
		without := *n
		without.Content = slices.Delete(slices.Clone(n.Content), i, i+2)
		b.with("field missing", field, n, without)
		misspelled := *name
		misspelled.Value += "x"
		b.with("field misspelled", field, name, misspelled)
		b.each(n.Content[i+1], field)
	}
}

func (b *breaker) scalar(n *yaml.Node, at string) {
	copied := *n
	b.with("list for scalar", at, n, yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{&copied}})
	b.with("mapping for scalar", at, n, yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: "zzqx"}, &copied}})
	switch n.Tag {
	case "!!bool":
		b.with("word for bool", at, n, scalar("!!str", "yes"))
		b.with("number for bool", at, n, scalar("!!int", "1"))
	case "!!int", "!!float":
		b.with("number too small", at, n, scalar("!!int", "-1"))
		b.with("number too small", at, n, scalar("!!int", "0"))
		b.with("number too large", at, n, scalar("!!int", "99999999999999999"))
		b.with("word for number", at, n, scalar("!!str", "many"))
		b.with("quoted number", at, n, yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: n.Value, Style: yaml.DoubleQuotedStyle})
	default:
		b.with("another word", at, n, scalar("!!str", "zzqx zzqx"))
		b.with("number for text", at, n, scalar("!!int", "5"))
		b.with("bool for text", at, n, scalar("!!bool", "true"))
		b.with("empty text", at, n, yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle})
	}
}
