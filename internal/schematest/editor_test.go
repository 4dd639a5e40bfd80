package schematest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// node is a schema, as far as an editor shows it.
type node struct {
	Ref                  string `json:"$ref"`
	Title, Description   string
	MarkdownDescription  string
	Enum                 []any
	Items                *node
	Properties           map[string]*node
	Required             []string
	AdditionalProperties json.RawMessage // false, or a node
	AnyOf                []*node
	Defs                 map[string]*node `json:"$defs"`
}

// places calls visit with each node of the schema, and the beginning of a document, up to where a value of
// the node would begin.
type places struct {
	t     *testing.T
	defs  map[string]*node
	visit func(n *node, before string)
}

func eachPlace(t *testing.T, visit func(n *node, before string)) {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	var root node
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	p := places{t, root.Defs, visit}
	p.value(&root, "", 0)
}

// value visits n, whose value begins right behind before or, if it takes several lines, in a column of
// the next.
func (p *places) value(n *node, before string, column int) {
	if name, ok := strings.CutPrefix(n.Ref, "#/$defs/"); ok {
		shared := *p.defs[name]
		shared.Title, shared.Description, shared.MarkdownDescription = n.Title, n.Description, n.MarkdownDescription
		n = &shared
	}
	line := "\n" + strings.Repeat(" ", column)
	if before == "" {
		line = ""
	}
	first := before + line
	if strings.HasSuffix(before, "-") {
		first = before + " "
	}
	switch {
	case n.Properties != nil:
		p.visit(n, first)
		for _, name := range slices.Sorted(maps.Keys(n.Properties)) {
			p.value(n.Properties[name], first+name+":", column+2)
		}
	case n.Items != nil:
		p.value(n.Items, before+line+"-", column+2)
	case n.Enum != nil:
		p.visit(n, before+" ")
	}
	for _, other := range n.AnyOf {
		p.value(other, before, column)
	}
	if len(n.AdditionalProperties) > 0 && string(n.AdditionalProperties) != "false" {
		var values node
		if err := json.Unmarshal(n.AdditionalProperties, &values); err != nil {
			p.t.Fatal(err)
		}
		p.value(&values, first+"a-name:", column+2)
	}
}

// Inside each mapping, an editor offers the fields of that mapping, all and no others. Where fields are
// required, it also offers them together, under the name of the field that has the mapping.
func TestEditorFields(t *testing.T) {
	e := newEditor(t)
	seen := map[string]bool{}
	eachPlace(t, func(n *node, before string) {
		if n.Properties == nil {
			return
		}
		names := slices.Sorted(maps.Keys(n.Properties))
		for _, name := range names {
			seen[n.Title+"."+name] = true
		}
		e.offers(before, names, n.Title, n.Required)
		if n.Required != nil { // below a first field
			first := n.Required[0]
			e.offers(before+first+": a"+newLine(before), slices.DeleteFunc(names, func(name string) bool { return name == first }), n.Title, n.Required[1:])
		}
	})
	for _, name := range []string{"server.store", "server.upstream_timeout", "rules.on_store_error", "rules.limits", "limits.amount", "tls.cert", "check_tls.cert"} {
		if !seen[name] {
			t.Errorf("it was never asked for %s", name)
		}
	}
}

// offers checks that behind before, fields are offered and, if some are required, the whole mapping.
func (e *editor) offers(before string, fields []string, mapping string, required []string) {
	e.t.Helper()
	want := slices.Clone(fields)
	if len(required) > 0 && !slices.Contains(fields, mapping) {
		want = append(want, mapping)
	}
	slices.Sort(want)
	got := e.completions(before)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		e.t.Errorf("behind\n%s\nit offers\n%q, want\n%q", before, got, want)
	}
}

// newLine goes from the end of a text to the same column of the next line.
func newLine(before string) string {
	return "\n" + strings.Repeat(" ", len(before)-1-strings.LastIndexByte(before, '\n'))
}

// For a field that takes words, an editor offers them.
func TestEditorWords(t *testing.T) {
	e := newEditor(t)
	asked := 0
	eachPlace(t, func(n *node, before string) {
		if n.Enum == nil {
			return
		}
		asked++
		got := e.completions(before)
		for _, word := range n.Enum {
			if word := fmt.Sprint(word); !slices.Contains(got, word) && !slices.Contains(got, strconv.Quote(word)) {
				t.Errorf("behind\n%s\nit offers %q, without %s", before, got, word)
			}
		}
	})
	if asked < 30 {
		t.Errorf("it was asked for words in %d places only", asked)
	}
}

// Above each field, an editor shows the description of the field, and its link as it is.
func TestEditorHover(t *testing.T) {
	e := newEditor(t)
	shown := 0
	eachPlace(t, func(n *node, before string) {
		if n.Properties == nil {
			return
		}
		names := slices.Sorted(maps.Keys(n.Properties))
		next := ":" + newLine(before)
		uri := e.open(before + strings.Join(names, next) + ":\n")
		for _, name := range names {
			before += name
			sentence, _, _ := strings.Cut(n.Properties[name].Description, "\n")
			got := e.hover(uri, before)
			if _, link, has := strings.Cut(n.Properties[name].MarkdownDescription, "[More]"); has && !strings.Contains(got, strings.Trim(link, "()")) {
				t.Errorf("at the end of\n%s\nit shows %q, without %s", before, got, link)
			}
			// The server puts a backslash before what would be Markdown.
			got = strings.ReplaceAll(got, `\`, "")
			if sentence == "" || !strings.Contains(got, strings.ReplaceAll(sentence, `\`, "")) {
				t.Errorf("at the end of\n%s\nit shows %q, without %q", before, got, sentence)
			}
			before += next
			shown++
		}
	})
	t.Logf("%d fields", shown)
}

// An editor marks what is misspelt, and nothing in a right file.
func TestEditorMistakes(t *testing.T) {
	e := newEditor(t)
	const right = "server:\n  store: memory\nrules:\n  - name: a\n    on_store_error: allow\n    limits: [10 per 1m]\n"
	if err := reads([]byte(right)); err != nil {
		t.Fatal(err)
	}
	if got := e.findings(right); len(got) > 0 {
		t.Errorf("in a right file, it marks %q", got)
	}
	for wrong, want := range map[string]string{
		strings.Replace(right, "on_store_error", "on_store_erorr", 1): "on_store_erorr is not allowed",
		strings.Replace(right, "  store", "  stoer", 1):               "stoer is not allowed",
		strings.Replace(right, ": allow", ": alow", 1):                `"allow"`,
	} {
		if got := e.findings(wrong); len(got) != 1 || !strings.Contains(got[0].Message, want) {
			t.Errorf("in\n%s\nit marks %q, want %s", wrong, got, want)
		}
	}
}
