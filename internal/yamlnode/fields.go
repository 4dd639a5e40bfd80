package yamlnode

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/internal/spelling"
)

// Fields has the name of each field of a mapping and the function that reads its value. "" stands for
// all other fields; without it, they are problems.
type Fields map[string]func(*Node)

// Skip reads nothing: for a field that someone else reads.
func (r *Reader) Skip(*Node) {}

// Mapping calls the function of each field of n, in the file's order, and reports unknown and
// repeated names. It returns the values by name, including wrong ones, so that a caller can tell
// those from missing ones; nil if n is not a mapping.
func (r *Reader) Mapping(n *Node, fields Fields) map[string]*Node {
	if !r.want(n, yaml.MappingNode, "a mapping") {
		return nil
	}
	found := make(map[string]*Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			r.Report(name, "want the name of a field, have %s", describe(name))
			continue
		}
		if first, ok := found[name.Value]; ok {
			r.Report(name, "field %q is given twice: first on line %d", name.Value, first.Line)
			continue
		}
		found[name.Value] = value
		read, ok := fields[name.Value]
		if ok {
			r.field, r.value = name.Value, value
		} else {
			read, ok = fields[""]
		}
		if !ok {
			r.Report(name, "%s", unknownField(name.Value, fields))
			continue
		}
		read(value)
	}
	return found
}

// Named reads the mapping n by calling read with each name and its value, in order.
func (r *Reader) Named(n *Node, read func(name, value *Node)) {
	found := r.Mapping(n, Fields{"": r.Skip})
	for i := 0; found != nil && i+1 < len(n.Content); i += 2 {
		if name, value := n.Content[i], n.Content[i+1]; found[name.Value] == value {
			read(name, value) // else it is not a name, or is repeated
		}
	}
}

// Field is the value that the mapping n has for name; nil: it has none.
func Field(n *Node, name string) *Node {
	for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// Each calls read with each item of the list n. It returns false if n is not a list.
func (r *Reader) Each(n *Node, read func(*Node)) bool {
	if !r.want(n, yaml.SequenceNode, "a list") {
		return false
	}
	for _, item := range n.Content {
		read(item)
	}
	return true
}

func unknownField(name string, fields Fields) string {
	names := slices.Sorted(maps.Keys(fields))
	return "unknown field " + quote(name) + spelling.Hint(name, names) + " (fields: " + strings.Join(names, ", ") + ")"
}
