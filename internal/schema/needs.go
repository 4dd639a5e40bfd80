package schema

import (
	"slices"
	"strings"
)

// needsOf returns schemas for the fields of a mapping that depend on each other.
func needsOf(rows Rows) (all []*jsonNode) {
	for i := range rows {
		row := &rows[i]
		if len(row.Needs) > 0 {
			all = append(all, needNode(row.Name+" needs "+list(row.Needs, "or"), []string{row.Name}, row.Needs))
		}
		if len(row.Instead) > 0 {
			one := append([]string{row.Name}, row.Instead...)
			all = append(all, needNode("needs "+list(one, "or"), nil, one))
		}
		for _, other := range row.Not {
			all = append(all, needNode(row.Name+" goes not with "+other, []string{row.Name, other}, nil))
		}
	}
	return all
}

// needNode refuses a mapping that has all fields of with and none of one. Editors offer the fields in a
// schema, but not those behind one negation; behind two, they would offer them again.
func needNode(why string, with, one []string) *jsonNode {
	wrong := &jsonNode{}
	for _, path := range with {
		wrong.AllOf = append(wrong.AllOf, has(path))
	}
	for _, path := range one {
		wrong.AllOf = append(wrong.AllOf, lacks(path))
	}
	return &jsonNode{Not: wrong, ErrorMessage: why}
}

// has accepts mappings whose field at path, written as in Row.Needs, is not false, 0 or empty.
func has(path string) *jsonNode {
	something := &jsonNode{AnyOf: []*jsonNode{{Enum: []any{true}}, {Type: []string{"object", "array", "string", "number"}, MinLength: 1, MinItems: 1, Minimum: "1"}}}
	return at(path, something, true)
}

// lacks accepts mappings whose field at path is missing, false or empty. A cost of 0 counts as
// present.
func lacks(path string) *jsonNode {
	return at(path, &jsonNode{Enum: []any{"", false, []any{}}}, false)
}

// at is a mapping with value at path. If path ends with a word, the value is that word, or any other
// unless required.
func at(path string, value *jsonNode, required bool) *jsonNode {
	name, rest, isDeeper := strings.Cut(path, ".")
	name, word, isWord := strings.Cut(name, "=")
	switch {
	case isDeeper:
		value = at(rest, value, required)
	case isWord:
		value = &jsonNode{Type: "string", Pattern: "^" + strings.ReplaceAll(AnyCase(word), "_", "[_-]") + "$"}
		if !required {
			value = &jsonNode{Not: value}
		}
	}
	n := &jsonNode{Properties: map[string]*jsonNode{name: value}}
	if required {
		n.Required = []string{name}
	}
	return n
}

// needsText says which fields the field needs or excludes: sentences, each after a blank; empty if
// none.
func (row *Row) needsText() (text string) {
	if len(row.Needs) > 0 {
		text = " Needs " + list(row.Needs, "or") + "."
	}
	one := list(append([]string{row.Name}, row.Instead...), "and")
	switch {
	case len(row.Instead) > 0 && slices.Equal(row.Instead, row.Not):
		return text + " Exactly one of " + one + " is needed."
	case len(row.Instead) > 0:
		text += " At least one of " + one + " is needed."
	}
	if len(row.Not) > 0 {
		text += " Not with " + list(row.Not, "or") + "."
	}
	return text
}

// list is "a", "a or b", or "a, b or c", with a word such as "or".
func list(paths []string, word string) string {
	names := make([]string, len(paths))
	for i, path := range paths {
		names[i] = strings.Replace(path, "=", ": ", 1)
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " " + word + " " + names[last]
}
