package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/yamlnode"
)

// docsURL is the base of a row's See.
const docsURL = "https://github.com/stintdev/stint/blob/main/docs/"

// JSONSchema is the JSON Schema (2020-12) of files with these rows at the top, indented, with a line
// end. It refuses no file that the rows read: it leaves out what it cannot express, such as whether
// the tiers that rules name exist.
func JSONSchema(id, title string, rows Rows) []byte {
	d := definitions{times: map[string]int{}, names: map[string]string{}, nodes: map[string]*jsonNode{}}
	root := mappingNode(rows)
	d.count("file", root)
	d.share(root)
	root.Schema, root.ID, root.Title, root.Defs = "https://json-schema.org/draft/2020-12/schema", id, title, d.nodes
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(root); err != nil {
		panic(err) // texts, numbers and lists of them can be encoded
	}
	return b.Bytes()
}

// jsonNode is a schema, with the keywords used here.
type jsonNode struct {
	Schema               string               `json:"$schema,omitempty"`
	ID                   string               `json:"$id,omitempty"`
	Title                string               `json:"title,omitempty"`
	Description          string               `json:"description,omitempty"`
	MarkdownDescription  string               `json:"markdownDescription,omitempty"` // VS Code shows it as it is
	Ref                  string               `json:"$ref,omitempty"`
	Type                 any                  `json:"type,omitempty"` // a name, or several
	Enum                 []any                `json:"enum,omitempty"`
	Pattern              string               `json:"pattern,omitempty"`
	MinLength            int                  `json:"minLength,omitempty"`
	Minimum              json.Number          `json:"minimum,omitempty"`
	Maximum              json.Number          `json:"maximum,omitempty"`
	Items                *jsonNode            `json:"items,omitempty"`
	MinItems             int                  `json:"minItems,omitempty"`
	Properties           map[string]*jsonNode `json:"properties,omitempty"`
	Required             []string             `json:"required,omitempty"`
	AdditionalProperties any                  `json:"additionalProperties,omitempty"` // false, or a *jsonNode
	PropertyNames        *jsonNode            `json:"propertyNames,omitempty"`
	AnyOf                []*jsonNode          `json:"anyOf,omitempty"`
	AllOf                []*jsonNode          `json:"allOf,omitempty"`
	Not                  *jsonNode            `json:"not,omitempty"`
	ErrorMessage         string               `json:"errorMessage,omitempty"` // editors show it
	Default              any                  `json:"default,omitempty"`
	Examples             []any                `json:"examples,omitempty"`
	Defs                 map[string]*jsonNode `json:"$defs,omitempty"`
}

func mappingNode(rows Rows) *jsonNode {
	n := &jsonNode{Type: "object", Properties: map[string]*jsonNode{}, AdditionalProperties: false}
	for i := range rows {
		row := &rows[i]
		n.Properties[row.Name] = row.jsonNode()
		if row.Required {
			n.Required = append(n.Required, row.Name)
		}
	}
	slices.Sort(n.Required)
	n.AllOf = needsOf(rows)
	return n
}

func (row *Row) jsonNode() *jsonNode {
	n := row.Shape.jsonNode()
	n.Description = row.Says + row.needsText()
	switch {
	case row.Default != "":
		n.Description += " Default: " + row.Default + "."
		n.Default = jsonOf(yamlnode.Plain(row.Default))
	case row.Computed != "":
		n.Description += " Default: " + row.Computed + "."
	}
	if row.Example != "" {
		n.Examples = []any{jsonOf(yamlnode.Plain(row.Example))}
	}
	if row.See != "" { // VS Code puts a backslash before the # of a description
		n.MarkdownDescription = noMarkdown.Replace(n.Description) + "\n\n[More](" + docsURL + row.See + ")"
		n.Description += "\n\n" + docsURL + row.See
	}
	return n
}

// noMarkdown escapes Markdown in a sentence.
var noMarkdown = strings.NewReplacer("*", `\*`, "<", `\<`, "`", "\\`")

func (s *Shape) jsonNode() *jsonNode {
	n := s.jsonNodeAlone()
	if len(s.Or) == 0 && !s.Expands {
		return n
	}
	any := &jsonNode{AnyOf: []*jsonNode{n}}
	for i := range s.Or {
		any.AnyOf = append(any.AnyOf, s.Or[i].jsonNode())
	}
	if s.Expands {
		any.AnyOf = append(any.AnyOf, &jsonNode{Type: "string", Pattern: `\$\{`})
	}
	return any
}

func (s *Shape) jsonNodeAlone() *jsonNode {
	switch s.Kind {
	case KindText:
		if s.Pattern == Something {
			return &jsonNode{Type: "string", MinLength: 1}
		}
		return &jsonNode{Type: "string", Pattern: s.Pattern}
	case KindScalar:
		return s.scalarNode()
	case KindBool:
		return &jsonNode{Type: "boolean"}
	case KindNumber:
		n := &jsonNode{Type: "integer", Pattern: s.Pattern, Minimum: json.Number(s.Least), Maximum: json.Number(s.Most)}
		if s.Pattern != "" {
			n.Type = []string{"integer", "string"}
		}
		return n
	case KindFloat: // it may be quoted
		return &jsonNode{Type: []string{"number", "string"}, Pattern: `^[+]?[0-9.]`, Minimum: json.Number(s.Least), Maximum: json.Number(s.Most)}
	case KindDuration:
		return s.durationNode()
	case KindSize:
		return &jsonNode{Type: "string", Pattern: sizePattern}
	case KindWords:
		return s.wordsNode()
	case KindList:
		n := &jsonNode{Type: "array"}
		if s.Item != nil {
			n.Items = s.Item.jsonNode()
		}
		return n
	case KindMapping:
		return mappingNode(s.Rows())
	case KindNames:
		n := &jsonNode{Type: "object"}
		if s.Item != nil {
			n.AdditionalProperties = s.Item.jsonNode()
		}
		if s.Names != "" {
			n.PropertyNames = &jsonNode{Pattern: s.Names}
		}
		return n
	}
	panic(fmt.Sprintf("schema: no JSON Schema for kind %d", s.Kind))
}

// scalarNode leaves out types without a text that matches the pattern: an address is never a
// number.
func (s *Shape) scalarNode() *jsonNode {
	types := []string{"string"}
	pattern := regexp.MustCompile(s.Pattern)
	const longest = 20
	for n := 1; n <= longest; n++ {
		if digits := strings.Repeat("1", n); pattern.MatchString(digits) || pattern.MatchString(digits+".5") {
			types = append(types, "number")
			break
		}
	}
	if pattern.MatchString("true") || pattern.MatchString("false") {
		types = append(types, "boolean")
	}
	if len(types) == 1 {
		return &jsonNode{Type: "string", Pattern: s.Pattern}
	}
	return &jsonNode{Type: types, Pattern: s.Pattern, Minimum: json.Number(s.Least), Maximum: json.Number(s.Most)}
}

// sizePattern is for sizes from 1MiB on; no size has a smaller bound.
const sizePattern = `^[+]?(0*[1-9][0-9]*[MG]iB|[0-9]{4,}KiB)$`

const (
	unitPattern = `(ns|us|µs|μs|ms|s|m|h)`
	partPattern = `([0-9]+([.][0-9]*)?|[.][0-9]+)` + unitPattern
	daysPattern = `[+]?0*[1-9][0-9]{0,5}d`
)

// durationNode accepts the texts that limittext.Period reads, and bounds them as far as a pattern
// can.
func (s *Shape) durationNode() *jsonNode {
	n := &jsonNode{Type: "string", Pattern: "^[+]?(" + partPattern + ")+$"}
	least, _ := limittext.Period(s.Least)
	if isZeroRight := least == 0 && s.Least != "more than 0"; isZeroRight {
		n.Type, n.Minimum, n.Maximum = []string{"string", "integer"}, "0", "0"
		n.Pattern += "|^[+-]?0$|^-((0+[.]?0*|[.]0+)" + unitPattern + ")+$"
	}
	if most, err := limittext.Period(s.Most); err != nil || most >= 24*time.Hour {
		n.Pattern += "|^" + daysPattern + "$"
	}
	return n
}

// wordsNode has the words as YAML reads them. A word that YAML reads as a number may also be quoted.
func (s *Shape) wordsNode() *jsonNode {
	n := &jsonNode{}
	for _, word := range s.Words {
		n.Enum = append(n.Enum, word)
		if v := jsonOf(yamlnode.Plain(word)); v != word {
			n.Enum = append(n.Enum, v)
		}
	}
	if s.Pattern == "" {
		return n
	}
	return &jsonNode{AnyOf: []*jsonNode{n, {Type: "string", Pattern: s.Pattern}}}
}

// AnyCase is a regular expression for one of a few words in any case, without the flags that some
// languages lack.
func AnyCase(words ...string) string {
	var b strings.Builder
	for i, word := range words {
		b.WriteByte("(|"[min(i, 1)])
		for _, c := range word {
			if lower, upper := strings.ToLower(string(c)), strings.ToUpper(string(c)); lower != upper {
				b.WriteString("[" + upper + lower + "]")
			} else {
				b.WriteString(regexp.QuoteMeta(lower))
			}
		}
	}
	return b.String() + ")"
}

// jsonOf is a YAML value in JSON. All but numbers, bools and null are texts, also dates.
func jsonOf(n *yamlnode.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = jsonOf(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = jsonOf(item)
		}
		return list
	}
	switch n.Tag {
	case "!!int", "!!float", "!!bool":
		if json.Valid([]byte(n.Value)) {
			return json.RawMessage(n.Value)
		}
	}
	return n.Value
}

// definitions are mappings that occur several times.
type definitions struct {
	times map[string]int    // by the mapping's own text
	names map[string]string // likewise, for those in nodes
	nodes map[string]*jsonNode
}

// split divides n into the keywords from its row and the rest.
func (n *jsonNode) split() (said, rest jsonNode) {
	said = jsonNode{Title: n.Title, Description: n.Description, MarkdownDescription: n.MarkdownDescription, Default: n.Default, Examples: n.Examples}
	rest = *n
	rest.Title, rest.Description, rest.MarkdownDescription, rest.Default, rest.Examples = "", "", "", nil, nil
	return said, rest
}

// textOf is the rest of n.
func textOf(n *jsonNode) string {
	_, rest := n.split()
	text, err := json.Marshal(&rest)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// below calls visit with each node directly below n, and its field's name.
func (n *jsonNode) below(name string, visit func(string, *jsonNode)) {
	for _, field := range slices.Sorted(maps.Keys(n.Properties)) {
		visit(field, n.Properties[field])
	}
	all := append(n.AnyOf[:len(n.AnyOf):len(n.AnyOf)], n.Items)
	if values, ok := n.AdditionalProperties.(*jsonNode); ok {
		all = append(all, values)
	}
	for _, other := range all {
		if other != nil {
			visit(name, other)
		}
	}
}

// count also titles each mapping with the name of its field. Editors show the title; of a mapping without
// one, they show the title of the whole file or the name of the definition.
func (d *definitions) count(name string, n *jsonNode) {
	n.below(name, d.count)
	if n.Properties != nil {
		text := textOf(n)
		n.Title = name
		if d.times[text]++; d.times[text] == 2 {
			if d.names[text] = name; d.isTaken(name, text) {
				d.names[text] = name + "_" + strconv.Itoa(len(d.names))
			}
		}
	}
}

func (d *definitions) isTaken(name, by string) bool {
	for text, other := range d.names {
		if other == name && text != by {
			return true
		}
	}
	return false
}

// share replaces each mapping below n that occurs several times by a reference.
func (d *definitions) share(n *jsonNode) {
	n.below("", func(_ string, n *jsonNode) {
		if n.Properties == nil || d.times[textOf(n)] < 2 {
			d.share(n)
			return
		}
		text := textOf(n)
		name := d.names[text]
		said, rest := n.split()
		if d.nodes[name] == nil {
			d.nodes[name] = &rest
			d.share(&rest)
		}
		said.Ref = "#/$defs/" + name
		*n = said
	})
}
