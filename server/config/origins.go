package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
)

// Origins say which settings are not left out, what was written, and where.
type Origins []Origin

// Origin is a value as it was written.
type Origin struct {
	// Path is where the file has it, below "server": routes[0].upstream.
	Path string
	// Text is the value. Of a list of texts, it is the list.
	Text string
	// From is file:line:column, or the From of a Given.
	From string

	row string // the path of its row: routes[].upstream
}

// note notes what is in n, which rows describe.
func (o *Origins) note(r *yamlnode.Reader, n *yamlnode.Node, rows schema.Rows, path, of string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		for j := range rows {
			if row := &rows[j]; row.Name == n.Content[i].Value {
				o.noteValue(r, n.Content[i+1], &row.Shape, below(path, row.Name), below(of, row.Name))
			}
		}
	}
}

func (o *Origins) noteValue(r *yamlnode.Reader, n *yamlnode.Node, s *schema.Shape, path, of string) {
	switch {
	case n.Kind == yaml.MappingNode && s.Kind == schema.KindMapping:
		o.note(r, n, s.Rows(), path, of)
	case n.Kind == yaml.MappingNode && s.Kind == schema.KindNames:
		for i := 0; i+1 < len(n.Content); i += 2 {
			o.noteValue(r, n.Content[i+1], s.Item, below(path, n.Content[i].Value), below(of, "NAME"))
		}
	case n.Kind == yaml.SequenceNode && s.Item != nil && s.Item.Kind == schema.KindMapping:
		for i, item := range n.Content {
			o.noteValue(r, item, s.Item, fmt.Sprintf("%s[%d]", path, i), of+"[]")
		}
	default:
		*o = append(*o, Origin{Path: path, Text: flow(n), From: r.Place(n), row: of})
	}
}

// flow is n in one line, for people.
func flow(n *yamlnode.Node) string {
	parts := make([]string, 0, len(n.Content))
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, flow(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			parts = append(parts, n.Content[i].Value+": "+flow(n.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return n.Value
}

func below(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// InForce is a setting and its value.
type InForce struct {
	// Path is where a file has the setting, below "server".
	Path string
	// Value is as a file has it, or in words. Of what may be a secret, no more is shown than where it leads.
	Value string
	// From says where Value was given; empty: it is the default.
	From string
}

// InForce returns all settings, in the order of Table, with what o says of them. Of what a list has,
// only what was given is told.
func (s *Settings) InForce(o Origins) (all []InForce) {
	s.rows(yamlnode.Values("the settings in force"), new(func(*yamlnode.Node))).Walk("", func(path string, row *schema.Row) {
		given := false
		for _, origin := range o {
			if origin.row != path {
				continue
			}
			given = true
			value := origin.Text
			if row.Secret {
				value = withoutSecret(value)
			}
			all = append(all, InForce{Path: origin.Path, Value: value, From: origin.From})
		}
		if given || row.Kind == schema.KindMapping || strings.Contains(path, "[]") || strings.Contains(path, ".NAME") {
			return
		}
		value := row.Default
		if row.Computed != "" {
			value = row.Computed
		}
		if shows, ok := row.Shows(); ok && row.Computed != "" && shows != "" && shows != "0" {
			value = shows + " (" + row.Computed + ")"
		}
		if value != "" {
			all = append(all, InForce{Path: path, Value: value})
		}
	})
	return all
}

// withoutSecret leaves of a URL its scheme and host, and of a text with ${NAME} all. A word such as memory is
// none.
func withoutSecret(text string) string {
	scheme, rest, isURL := strings.Cut(text, "://")
	switch {
	case !isURL && strings.ContainsAny(text, ":/@ "):
		return "(hidden)"
	case !isURL:
		return text
	}
	hosts, more := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts, more = rest[:i], rest[i:]
	}
	if strings.Contains(more, "@") { // perhaps of a password with a slash
		return scheme + "://(hidden)"
	}
	hosts = hosts[strings.LastIndexByte(hosts, '@')+1:]
	if len(more) > 1 {
		hosts += "/…"
	}
	return scheme + "://" + hosts
}
