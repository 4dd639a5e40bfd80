package yamlnode

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"
)

// maxExpanded bounds the nodes that the aliases of a file stand for.
const maxExpanded = 1_000_000

// OpenExpanded is Open for files of other programs: of at most most bytes, with anchors, aliases and
// merge keys, which it expands. Like those programs, it reads only the first document. An empty file
// is an empty mapping. prefix precedes the text of each problem.
func OpenExpanded(file string, data []byte, most int, prefix string) (*Reader, *Node) {
	r := &Reader{file: file, data: bytes.TrimPrefix(data, []byte("\ufeff")), prefix: prefix}
	root := r.openExpanded(most)
	r.prefix = ""
	return r, root
}

func (r *Reader) openExpanded(most int) *Node {
	if len(r.data) > most {
		r.reportAt(1, 1, "the file has %d bytes: at most %d", len(r.data), most)
		return nil
	}
	if !r.characters() {
		return nil
	}
	var doc Node
	err := yaml.NewDecoder(bytes.NewReader(r.data)).Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		return &Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1, Column: 1}
	}
	if err != nil {
		line, text := splitLine(err)
		r.reportAt(line, 1, "%s", text)
		return nil
	}
	x := expander{Reader: r, left: maxExpanded, open: map[*Node]bool{}}
	root := x.expand(doc.Content[0])
	if r.Problems() > 0 {
		return nil
	}
	return root
}

type expander struct {
	*Reader
	left    int            // nodes that aliases may still stand for
	aliases int            // how many are being expanded, one in the other
	open    map[*Node]bool // anchors that are being expanded
}

// expand returns n without aliases; nil, having reported why, if that is impossible. Nodes keep the
// position of the anchored node.
func (x *expander) expand(n *Node) *Node {
	if x.aliases > 0 {
		if x.left--; x.left == 0 {
			x.Report(n, "the aliases stand for too much: at most %d values are allowed", maxExpanded)
		}
		if x.left <= 0 {
			return nil
		}
	}
	if n.Kind == yaml.AliasNode {
		if n.Alias == nil || x.open[n.Alias] {
			x.Report(n, "the alias *%s stands for itself", oneLine(n.Value))
			return nil
		}
		x.aliases++
		defer func() { x.aliases-- }()
		return x.expand(n.Alias)
	}
	if n.Style&yaml.TaggedStyle != 0 {
		x.Report(n, "explicit tags (%s) are not allowed", oneLine(n.Tag))
		return nil
	}
	if n.Anchor != "" {
		x.open[n] = true
		defer delete(x.open, n)
	}
	if len(n.Content) == 0 {
		return n
	}
	copied := *n
	copied.Content = make([]*Node, 0, len(n.Content))
	var merged []*Node
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Tag == "!!merge" {
			merged = append(merged, n.Content[i+1])
			continue
		}
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Tag == "!!merge" {
			continue
		}
		if child = x.expand(child); child == nil {
			return nil
		}
		copied.Content = append(copied.Content, child)
	}
	for _, from := range merged {
		x.merge(&copied, from)
	}
	return &copied
}

// merge adds to the mapping to the fields of from, a mapping or a list of them, that it lacks.
func (x *expander) merge(to, from *Node) {
	if from = x.expand(from); from == nil {
		return
	}
	mappings := []*Node{from}
	if from.Kind == yaml.SequenceNode {
		mappings = from.Content
	}
	have := make(map[string]bool, len(to.Content)/2)
	for i := 0; i+1 < len(to.Content); i += 2 {
		have[to.Content[i].Value] = true
	}
	for _, m := range mappings {
		if m.Kind != yaml.MappingNode {
			x.Report(m, "a merge key (<<) needs a mapping or a list of mappings, have %s", describe(m))
			return
		}
		for i := 0; i+1 < len(m.Content); i += 2 {
			if !have[m.Content[i].Value] {
				have[m.Content[i].Value] = true
				to.Content = append(to.Content, m.Content[i], m.Content[i+1])
			}
		}
	}
}
