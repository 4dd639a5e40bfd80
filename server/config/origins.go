package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
)

// origins has the settings that were given: their text, and where.
type origins []origin

type origin struct {
	InForce
	row string // the path of its row: routes[].upstream
}

// note records the settings in n, which rows describe.
func (o *origins) note(r *yamlnode.Reader, n *yamlnode.Node, rows schema.Rows, path, of string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		for j := range rows {
			if row := &rows[j]; row.Name == n.Content[i].Value {
				o.noteValue(r, n.Content[i+1], &row.Shape, below(path, row.Name), below(of, row.Name))
			}
		}
	}
}

func (o *origins) noteValue(r *yamlnode.Reader, n *yamlnode.Node, s *schema.Shape, path, of string) {
	switch {
	case n.Kind == yaml.MappingNode && s.Kind == schema.KindMapping:
		o.note(r, n, s.Rows(), path, of)
	case n.Kind == yaml.MappingNode && s.Kind == schema.KindNames && s.Item.Kind == schema.KindMapping:
		for i := 0; i+1 < len(n.Content); i += 2 {
			o.noteValue(r, n.Content[i+1], s.Item, below(path, n.Content[i].Value), below(of, "NAME"))
		}
	case n.Kind == yaml.SequenceNode && s.Item != nil && s.Item.Kind == schema.KindMapping:
		for i, item := range n.Content {
			o.noteValue(r, item, s.Item, fmt.Sprintf("%s[%d]", path, i), of+"[]")
		}
	default:
		*o = append(*o, origin{InForce{Path: path, Value: flow(n), From: r.Place(n)}, of})
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
	// Value is as a file has it, or in words. Of a possible secret, only the place it leads to is shown.
	Value string
	// From says where Value was given; empty: it is the default. "the program": set by the program, not in
	// any file.
	From string
}

const byProgram = "the program"

// InForce returns all settings, in the order of Table. From lists and optional sections, it returns only
// given settings.
func (s *Settings) InForce() (all []InForce) {
	missing := "." // the missing optional section
	s.rows(yamlnode.Values("the settings in force"), new(func(*yamlnode.Node))).Walk("", func(path string, row *schema.Row) {
		inList := strings.Contains(path, "[]") || strings.Contains(path, ".NAME")
		switch {
		case strings.HasPrefix(path, missing):
			return
		case row.Optional && !inList && !slices.ContainsFunc(s.origins, func(o origin) bool { return strings.HasPrefix(o.row, path+".") }):
			missing = path + "."
			all = append(all, InForce{Path: path, Value: "none"})
			return
		}
		given := false
		for _, o := range s.origins {
			if o.row != path {
				continue
			}
			given = true
			if row.Secret {
				o.Value = withoutSecret(o.Value)
			}
			all = append(all, o.InForce)
		}
		if now := inForce(path, row); now.Value != "" && !given && !inList && row.Kind != schema.KindMapping {
			all = append(all, now)
		}
	})
	return all
}

// withoutSecret leaves the scheme and hosts of a URL, and words unchanged: memory and ${NAME} are not
// secrets.
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

// inForce is the value of a row that was not given.
func inForce(path string, row *schema.Row) InForce {
	value, known := row.Shows()
	isNone := value == "" || value == "0" || value == "0s"
	switch {
	case row.Computed == "" && known && value != row.Default && !(row.Default == "" && isNone):
		if row.Secret {
			value = withoutSecret(value)
		}
		return InForce{Path: path, Value: value, From: byProgram}
	case row.Computed == "":
		return InForce{Path: path, Value: row.Default}
	case isNone || value == row.Computed:
		return InForce{Path: path, Value: row.Computed}
	}
	return InForce{Path: path, Value: value + " (" + row.Computed + ")"}
}
