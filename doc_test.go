package stint_test

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each exported name is linked in exactly one section of the package's documentation, and each link leads
// to a name. A constant of an exported type has the place of its type.
func TestNamesHaveAPlace(t *testing.T) {
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set, files := token.NewFileSet(), []*ast.File(nil)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(set, files, "github.com/stintdev/stint")
	if err != nil {
		t.Fatal(err)
	}
	places := map[string][]string{}
	section, unresolved := "", regexp.MustCompile(`\[[A-Z]\w*(\.\w+)?\]`)
	for _, block := range p.Parser().Parse(p.Doc).Content {
		switch b := block.(type) {
		case *comment.Heading:
			section = strings.TrimSpace(string(p.Printer().Text(&comment.Doc{Content: []comment.Block{b}})))
		case *comment.Paragraph:
			for _, text := range b.Text {
				switch text := text.(type) {
				case *comment.DocLink:
					if text.Recv == "" && text.ImportPath == "" && section != "" {
						places[text.Name] = append(places[text.Name], section)
					}
				case comment.Plain:
					if dead := unresolved.FindString(string(text)); dead != "" {
						t.Errorf("%s leads nowhere", dead)
					}
				}
			}
		}
	}
	var names []string
	for _, f := range p.Funcs {
		names = append(names, f.Name)
	}
	for _, v := range slices.Concat(p.Consts, p.Vars) {
		names = append(names, v.Names...)
	}
	for _, typ := range p.Types {
		names = append(names, typ.Name)
		for _, f := range typ.Funcs {
			names = append(names, f.Name)
		}
	}
	for _, name := range names {
		if ast.IsExported(name) && len(places[name]) != 1 {
			t.Errorf("doc.go links [%s] in %d sections %q, want one", name, len(places[name]), places[name])
		}
	}
	if len(names) < 50 {
		t.Errorf("the package has %d names: they are not read", len(names))
	}
}
