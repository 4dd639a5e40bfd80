package yamlnode

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Fields is what a mapping may hold: the name of each field and the function that
// reads its value. The name "" stands for every field not named; without it,
// other fields are problems.
type Fields map[string]func(*Node)

// Skip reads nothing: for a field that someone else reads.
func (r *Reader) Skip(*Node) {}

// Mapping reads the mapping n: it calls the function of each field there is, in
// the file's order, and reports names that are unknown or come twice. It returns
// the values it found by name, also those that turned out wrong, so that a caller
// can tell a missing field from one already reported; nil where n is no mapping.
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
		if !ok {
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

// Named reads the mapping n by calling read with each name and its value, in the
// file's order.
func (r *Reader) Named(n *Node, read func(name, value *Node)) {
	found := r.Mapping(n, Fields{"": r.Skip})
	for i := 0; found != nil && i+1 < len(n.Content); i += 2 {
		if name, value := n.Content[i], n.Content[i+1]; found[name.Value] == value {
			read(name, value) // else it is no name, or one given twice
		}
	}
}

// Each reads the list n by calling read with each of its items. It returns false
// where n is no list.
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
	text := "unknown field " + quote(name)
	if near := Nearest(name, names); near != "" {
		text += ": did you mean " + near + "?"
	}
	return text + " (fields: " + strings.Join(names, ", ") + ")"
}

// Nearest is the candidate that name is likely a misspelling of; empty if none is
// close.
func Nearest(name string, candidates []string) string {
	best, least := "", min(2, len(name)/2)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), c, least); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is how many letters must be added, dropped, changed or swapped with
// their neighbour to make b of a; any number from limit up where it is that many.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := above[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
