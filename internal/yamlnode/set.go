package yamlnode

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// Plain is a value in YAML, such as 5, "5" or [a, b]. It panics if text is not YAML.
func Plain(text string) *Node {
	var doc Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 {
		panic("yamlnode: " + text + " is no value")
	}
	return doc.Content[0]
}

// Scalar is a text as YAML would take it if it were written without quotes, where tag is "!!int" or
// "!!bool"; else a text.
func Scalar(text, tag string) *Node {
	n := &Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if plain := new(Node); tag != "" && yaml.Unmarshal([]byte(text), plain) == nil && len(plain.Content) == 1 && plain.Content[0].Tag == tag {
		n.Tag = tag
	}
	return n
}

// Values makes a Reader of values that are in no file. name stands for the file in errors.
func Values(name string) *Reader { return &Reader{file: name} }

// Mapping is a mapping without fields.
func Mapping() *Node { return &Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1, Column: 1} }

// Set returns the mapping n with value at path, in place of what is there. Mappings on the way are made
// where they are missing, and copied where they are there; n stays as it is. In a list on the way, which
// a name that ends in [] stands for, one mapping takes the place of all. Where something else is on the
// way, nothing is set: reading n reports it. from names what has the value; see Problem.
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

// From is what has n instead of the file; empty: the file has it.
func (r *Reader) From(n *Node) string { return r.from[n] }
