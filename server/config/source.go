package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/internal/yamlnode"
	"github.com/stintdev/stint/server/rules"
)

// Source is where a configuration comes from: files, and values that override theirs.
type Source struct {
	// Files have rules, and at most one of them the section "server".
	Files []rules.File
	// Opened are the Files, if they were opened before: reading the YAML of many rules takes a sixth of the
	// time. nil: they were not. Read may then be called once only.
	Opened *rules.Opened
	// Given are values for settings, the strongest last.
	Given []Given
	// CheckStore checks the address of a store other than "memory"; nil accepts any.
	CheckStore func(address string) error
	// Workers are the goroutines that compile expressions. 0 or 1: one, so that requests need not wait.
	Workers int
	// FormOnly checks only the spelling of ${NAME} and ${file:PATH}, and leaves settings with them at their
	// defaults: to check files of another machine.
	FormOnly bool
}

// Given is a value for a setting that is not from a file.
type Given struct {
	// Path is the setting's path in a file, below "server", such as admin.listen. A list on the path is
	// replaced by one with this element alone: routes[].upstream.
	Path string
	// Text is the value; for a list or a mapping, in YAML.
	Text string
	// From names what gives the value, such as STINT_SERVER_STORE or --store.
	From string
	// Literal means that ${ in Text stands for itself.
	Literal bool
}

// Read reads the configuration. Its errors are like those of the function Read; an error in a Given begins
// with its From.
func (s *Source) Read() (Settings, *rules.Set, error) {
	opened := s.open()
	settings, wrong := s.settings(opened)
	set, err := opened.Parse(context.Background(), s.Workers)
	if err == nil && set.HasServer { // rules without settings are for servers whose secrets and lists are not known here
		_, err = set.On(&rules.Instance{Secrets: settings.KnownSecrets(), Lists: settings.KnownLists()})
	}
	if err = yamlnode.Merge(wrong, err); err != nil {
		return settings, nil, err
	}
	return settings, set, nil
}

// ReadSettings reads the settings alone, as the function ReadSettings does.
func (s *Source) ReadSettings() (Settings, error) { return s.settings(s.open()) }

func (s *Source) open() *rules.Opened {
	if s.Opened != nil {
		return s.Opened
	}
	return rules.Open(s.Files)
}

func (s *Source) settings(files *rules.Opened) (Settings, error) {
	settings, read := Default(), false
	err := files.Each(func(r *yamlnode.Reader, root *yamlnode.Node) error {
		r.Mapping(root, yamlnode.Fields{"": r.Skip, "server": func(n *yamlnode.Node) {
			read = true
			s.section(r, n, &settings)
		}})
		return r.Err()
	})
	if err != nil || read || len(s.Given) == 0 {
		return settings, err
	}
	r := yamlnode.Values("the settings")
	s.section(r, yamlnode.Mapping(), &settings)
	return settings, r.Err()
}

// section reads the section server, with the Given values.
func (s *Source) section(r *yamlnode.Reader, n *yamlnode.Node, to *Settings) {
	if !s.FormOnly {
		r.Outside = outside
	}
	table, rows := Table(), map[string]*schema.Row{}
	table.Walk("", func(path string, row *schema.Row) { rows[path] = row })
	for _, g := range s.Given {
		n = r.Set(n, strings.Split(g.Path, "."), g.value(rows[g.Path]), g.From)
	}
	to.read(r, n, s.CheckStore)
	to.origins.note(r, n, table, "", "")
}

// outside is what ${NAME} or ${file:PATH} stands for.
func outside(reference string) (string, error) {
	path, isFile := strings.CutPrefix(reference, "file:")
	if !isFile {
		value, ok := os.LookupEnv(reference)
		if !ok {
			return "", fmt.Errorf("the variable %s is not set", reference)
		}
		return value, nil
	}
	const most = 64 << 10
	text, err := readfile.UpTo(path, most+1) // a device has no end, and a pipe perhaps no writer
	if err != nil {
		return "", err
	}
	if len(text) > most {
		return "", errors.New("the file has more than 64 KiB")
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// value is g's value as a file would have it at row; nil: there is no such setting. Invalid YAML becomes a
// text, so that the reader says what it wants.
func (g *Given) value(row *schema.Row) *yamlnode.Node {
	if row == nil {
		return yamlnode.Scalar(g.Text, "")
	}
	text := g.Text
	if g.Literal && (row.Expands || row.Item != nil && row.Item.Expands) {
		text = strings.ReplaceAll(text, "${", "$${")
	}
	switch row.Kind {
	case schema.KindBool:
		return yamlnode.Scalar(text, "!!bool")
	case schema.KindNumber:
		return yamlnode.Scalar(text, "!!int")
	case schema.KindList, schema.KindMapping, schema.KindNames:
		var doc yamlnode.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err == nil && len(doc.Content) == 1 {
			return doc.Content[0]
		}
	}
	return yamlnode.Scalar(text, "")
}

const variablePrefix = "STINT_SERVER_"

// Variable is the environment variable for the setting at path; empty: there is none, because the setting is
// a list, or in one.
func Variable(path string, row *schema.Row) string {
	if !row.Shape.IsScalar() && !slices.ContainsFunc(row.Or, func(s schema.Shape) bool { return s.IsScalar() }) || strings.Contains(path, "[]") || strings.Contains(path, ".NAME") {
		return ""
	}
	return VariableName(path)
}

// VariableName is the name of the variable for the setting at path, such as admin.listen.
func VariableName(path string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// Kubernetes sets such variables for a service named stint-server.
var ofKubernetes = regexp.MustCompile(`^STINT_SERVER_(SERVICE_(HOST|PORT.*)|PORT(_\d+_.*)?)$`)

// Environment returns the values of the variables STINT_SERVER_... among variables, which are as in
// os.Environ: STINT_SERVER_ADMIN_LISTEN is for admin.listen. An empty variable counts as not set. unknown has
// those that name no setting.
func Environment(variables []string) (given []Given, unknown []string) {
	values, names := map[string]string{}, []string(nil)
	for _, v := range variables {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, variablePrefix) && value != "" {
			values[name] = value
		}
	}
	Table().Walk("", func(path string, row *schema.Row) {
		name := Variable(path, row)
		if name == "" {
			return
		}
		names = append(names, strings.ToLower(name))
		if value, ok := values[name]; ok {
			given = append(given, Given{Path: path, Text: value, From: name})
			delete(values, name)
		}
	})
	for name := range values {
		if !ofKubernetes.MatchString(name) {
			if near := spelling.Nearest(name, names); near != "" {
				name += " (did you mean " + strings.ToUpper(near) + "?)"
			}
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return given, unknown
}
