package schematest

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/internal/golden"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

const (
	root       = "../../"
	schemaFile = root + "docs/stint.schema.json"
)

// compiled is the published schema, once it has been checked against that of JSON Schema.
var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("stint.schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("stint.schema.json")
})

// refusal is what the schema has against a file; nil: nothing.
func refusal(t *testing.T, file []byte) error {
	t.Helper()
	s, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(file, &doc); err != nil {
		t.Fatalf("not YAML: %v\n%s", err, file)
	}
	return s.Validate(valueOf(doc.Content[0]))
}

// valueOf is a value of YAML in JSON, as editors see it: dates are texts.
func valueOf(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = valueOf(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = valueOf(item)
		}
		return list
	}
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int":
		if json.Valid([]byte(n.Value)) {
			return json.Number(n.Value)
		}
		var i int64
		if n.Decode(&i) == nil {
			return i
		}
	case "!!float":
		if f, err := strconv.ParseFloat(n.Value, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f
		}
	}
	return n.Value
}

// reads is what stint rules check has against a file; nil: nothing.
func reads(file []byte) error {
	_, _, err := (&config.Source{Files: []rules.File{{Name: "f", Data: file}}, FormOnly: true}).Read()
	return err
}

// isPlain reports whether a file is one document of YAML, without what Stint does not read at all.
func isPlain(file []byte) bool {
	d := yaml.NewDecoder(bytes.NewReader(file))
	var doc, second yaml.Node
	return d.Decode(&doc) == nil && len(doc.Content) == 1 && d.Decode(&second) != nil
}

// A source is a file, or one of many in a file.
type source struct {
	name string
	text []byte
}

// walk calls visit with each file below root that has one of the extensions.
func walk(t *testing.T, visit func(path string, text []byte), extensions ...string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "node_modules" || d.Name() == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains(extensions, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		visit(path, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	ofStint   = regexp.MustCompile(`(?m)^(rules|server|"rules"|"server"):`)
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
)

// yamlFiles are the files of YAML that are Stint's, by their content.
func yamlFiles(t *testing.T) (all []source) {
	t.Helper()
	walk(t, func(path string, text []byte) {
		if ofStint.Match(text) {
			all = append(all, source{path, text})
		}
	}, ".yaml", ".yml")
	return all
}

// candidates are all files of rules and settings in the repository, right and wrong ones: those of YAML,
// examples in pages and what tests read. Pages have other YAML, too, which Stint refuses.
func candidates(t *testing.T) (files, examples, tested []source) {
	t.Helper()
	walk(t, func(path string, text []byte) {
		for _, block := range yamlBlock.FindAllSubmatch(text, -1) {
			examples = append(examples, source{path, block[1]})
		}
	}, ".md")
	goldens, err := filepath.Glob(root + "server/rules/testdata/*.txt")
	if err != nil || len(goldens) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, path := range append(goldens, root+"server/config/testdata/settings.txt") {
		for _, part := range golden.Read(t, path) {
			tested = append(tested, source{path + ": " + part.Title, []byte(part.Given)})
		}
	}
	return yamlFiles(t), examples, tested
}

// rightFiles are those that Stint takes.
func rightFiles(t *testing.T) (right []source) {
	t.Helper()
	files, examples, tested := candidates(t)
	for _, kind := range []struct {
		name  string
		files []source
		least int
	}{{"files", files, 15}, {"examples in pages", examples, 60}, {"files of tests", tested, 80}} {
		before := len(right)
		for _, f := range kind.files {
			if isPlain(f.text) && reads(f.text) == nil {
				right = append(right, f)
			}
		}
		if n := len(right) - before; n < kind.least {
			t.Errorf("%d of %d %s are right, want at least %d", n, len(kind.files), kind.name, kind.least)
		}
	}
	return right
}

// The schema refuses no file that Stint takes.
func TestRightFiles(t *testing.T) {
	right := rightFiles(t)
	for _, f := range right {
		if err := refusal(t, f.text); err != nil {
			t.Errorf("%s: %v\n%s", f.name, err, f.text)
		}
	}
	t.Logf("%d right files", len(right))
}

// Each file of YAML that is Stint's names the schema in its first line, for editors.
func TestFilesNameTheSchema(t *testing.T) {
	const line = "# yaml-language-server: $schema="
	schema, err := filepath.Abs(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range yamlFiles(t) {
		first, _, _ := strings.Cut(string(f.text), "\n")
		if strings.Contains(f.name, "testdata") {
			continue // not for readers
		}
		place, ok := strings.CutPrefix(first, line)
		if !ok {
			t.Errorf("%s does not begin with %s", f.name, line)
			continue
		}
		if s, _ := compiled(); place == published(t) && s != nil {
			continue // a file that its user keeps elsewhere
		}
		if path, err := filepath.Abs(filepath.Join(filepath.Dir(f.name), place)); err != nil || path != schema {
			t.Errorf("%s names %s, which is not docs/stint.schema.json", f.name, place)
		}
	}
}

// eachRow calls visit with each row of which the schema is made.
func eachRow(visit func(path string, row *schema.Row)) {
	rules.Table().Walk("", visit)
	config.Table().Walk("server", visit)
}

// namedFields are the paths of mappings whose names the file chooses.
func namedFields() map[string]bool {
	named := map[string]bool{}
	eachRow(func(path string, row *schema.Row) {
		named[path] = row.Kind == schema.KindNames || slices.ContainsFunc(row.Or, func(s schema.Shape) bool { return s.Kind == schema.KindNames })
	})
	return named
}

// published is where the schema says that it is found.
func published(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		ID string `json:"$id"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s.ID
}
