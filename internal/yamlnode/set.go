package yamlnode

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// Plain returns a value in YAML, such as 5, "5" or [a, b]. It panics if text is not YAML.
func Plain(text string) *Node {
	var doc Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 {
		panic("yamlnode: " + text + " is no value")
	}
	return doc.Content[0]
}

// Scalar returns a text as YAML reads it without quotes if tag is "!!int" or "!!bool"; else as a
// text.
func Scalar(text, tag string) *Node {
	n := &Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if plain := new(Node); tag != "" && yaml.Unmarshal([]byte(text), plain) == nil && len(plain.Content) == 1 && plain.Content[0].Tag == tag {
		n.Tag = tag
	}
	return n
}

// Values makes a Reader of values that are not in a file. name replaces the file in errors.
func Values(name string) *Reader { return &Reader{file: name} }

// Mapping is a mapping without fields.
func Mapping() *Node { return &Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1, Column: 1} }

// Set returns the mapping n with value at path, replacing the old value. Mappings on the path are made
// if they are missing, and else copied; n does not change. A name that ends in [] stands for a list, in
// which one mapping replaces all. If something else is on the path, nothing is set: reading n reports
// it. from names the source of the value; see Problem.
func (r *Reader) Set(n *Node, path []string, value *Node, from string) *Node {
	r.mark(value, from)
	return r.set(n, path, value, from)
}

func (r *Reader) set(n *Node, path []string, value *Node, from string) *Node {
	if len(path) == 0 {
		return value
	}
	if n.Kind != yaml.MappingNode {
		return n
	}
	set := *n
	set.Content = slices.Clone(n.Content)
	name, isList := path[0], false
	if l := len(name) - 2; l > 0 && name[l:] == "[]" {
		name, isList = name[:l], true
	}
	old, at := (*Node)(nil), -1
	for i := 0; i+1 < len(set.Content); i += 2 {
		if set.Content[i].Value == name {
			old, at = set.Content[i+1], i+1
			break
		}
	}
	if old == nil || isList {
		old = Mapping()
		r.mark(old, from)
	}
	next := r.set(old, path[1:], value, from)
	if isList {
		next = &Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*Node{next}}
		r.mark(next, from)
	}
	if at < 0 {
		key := Scalar(name, "")
		r.mark(key, from)
		set.Content = append(set.Content, key, next)
	} else {
		set.Content[at] = next
	}
	if origin := r.from[n]; origin != "" {
		r.from[&set] = origin
	}
	return &set
}

// mark notes that n and all in it are from elsewhere than the file.
func (r *Reader) mark(n *Node, from string) {
	if r.from == nil {
		r.from = map[*Node]string{}
	}
	r.from[n] = from
	for _, c := range n.Content {
		r.mark(c, from)
	}
}

// From names the source of n if that is not the file; empty: the file.
func (r *Reader) From(n *Node) string { return r.from[n] }
