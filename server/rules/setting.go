package rules

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// Setting is a field of a rule in its file, such as penalty.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"` // in the flow style of YAML, on one line
}

const (
	// mostShown bounds the values in the value of a Setting, and longestShown its length in bytes.
	mostShown    = 200
	longestShown = 1000
)

// settings are the found fields, by name, without those that lists of rules show separately.
func settings(found map[string]*yamlnode.Node) (all []Setting) {
	for name, n := range found {
		switch name {
		case "name", "match", "key", "cost", "cost_after", "unit", "limits", "mode":
			continue
		}
		left := mostShown
		text, err := yaml.Marshal(flow(n, &left))
		if err != nil {
			text = []byte(n.Value)
		}
		line := strings.Join(strings.Fields(string(text)), " ")
		if len(line) > longestShown {
			line = expr.Clip(line)
		}
		all = append(all, Setting{name, line})
	}
	slices.SortFunc(all, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// flow returns a copy of n in flow style, without comments and without values beyond left.
func flow(n *yamlnode.Node, left *int) *yamlnode.Node {
	if *left--; *left < 0 {
		return &yamlnode.Node{Kind: yaml.ScalarNode, Value: "…"}
	}
	c := &yamlnode.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value, Style: yaml.FlowStyle}
	if n.Kind == yaml.ScalarNode {
		if c.Style = n.Style &^ (yaml.LiteralStyle | yaml.FoldedStyle); c.Style != n.Style {
			c.Style = yaml.DoubleQuotedStyle
		}
	}
	for _, child := range n.Content {
		c.Content = append(c.Content, flow(child, left))
	}
	return c
}
