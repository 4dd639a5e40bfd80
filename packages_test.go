package stint_test

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// publicPackages are the folders of packages that others import, in all modules of the repository, but
// for what is there for tests alone.
func publicPackages(t *testing.T) (public []string) {
	t.Helper()
	private := []string{"internal", "bench", "docs", "examples", "tools", "envoymodel"}
	public = folders(t, func(folder string, _ []fs.DirEntry) bool {
		for part := range strings.SplitSeq(filepath.ToSlash(folder), "/") {
			if slices.Contains(private, part) {
				return false
			}
		}
		p, _ := documentation(t, folder)
		return p != nil && p.Name != "main"
	})
	for _, want := range []string{".", "connectlimit", "server/envoy/quota"} {
		if !slices.Contains(public, want) {
			t.Errorf("%s is not among them: only %s", want, public)
		}
	}
	return public
}

// What pkg.go.dev shows of a public package: a comment that begins with its name, an example at the
// top, and a comment of each exported name. docs/stability.md says whether it may change.
func TestPublicPackages(t *testing.T) {
	page, err := os.ReadFile("docs/stability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, promised, _ := strings.Cut(string(page), "\n| Go packages |")
	promised, _, _ = strings.Cut(promised, "\n")
	for _, folder := range publicPackages(t) {
		if name := strings.TrimPrefix(path.Join("stint", filepath.ToSlash(folder)), "stint/"); !strings.Contains(promised, "`"+name+"`") {
			t.Errorf("docs/stability.md does not say whether %s is stable", name)
		}
		p, fset := documentation(t, folder)
		if !strings.HasPrefix(p.Doc, "Package "+p.Name+" ") {
			t.Errorf("%s: its comment does not begin with Package %s", folder, p.Name)
		}
		example := slices.ContainsFunc(p.Examples, func(e *doc.Example) bool { return e.Suffix == "" })
		code := slices.ContainsFunc(p.Parser().Parse(p.Doc).Content, func(b comment.Block) bool { _, ok := b.(*comment.Code); return ok })
		if !example && !code {
			t.Errorf("%s: there is no Example, nor one in its comment", folder)
		}
		for _, at := range undocumented(p) {
			t.Errorf("%s: %s has no comment", fset.Position(at.Pos()), at.Name)
		}
	}
}

// documentation returns that of the package in a folder, with its examples, and nil where no Go is.
func documentation(t *testing.T, folder string) (*doc.Package, *token.FileSet) {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if !slices.ContainsFunc(names, func(name string) bool { return !strings.HasSuffix(name, "_test.go") }) {
		return nil, nil
	}
	p, err := doc.NewFromFiles(fset, files, path.Join("github.com/stintdev/stint", folder))
	if err != nil {
		t.Fatal(err)
	}
	return p, fset
}

// undocumented are the exported names of a package, with fields and methods, that no comment is of. In
// a group of constants or variables, one comment is enough, as is for a field that another comment of
// its type names, or that docs/admin-api.yaml describes by its JSON.
func undocumented(p *doc.Package) (names []*ast.Ident) {
	values, funcs := slices.Concat(p.Consts, p.Vars), p.Funcs
	for _, typ := range p.Types {
		values = slices.Concat(values, typ.Consts, typ.Vars)
		funcs = slices.Concat(funcs, typ.Funcs, typ.Methods)
		spec := typ.Decl.Specs[0].(*ast.TypeSpec)
		if typ.Doc == "" {
			names = append(names, spec.Name)
		}
		said := typ.Doc
		ast.Inspect(spec.Type, func(n ast.Node) bool {
			if f, ok := n.(*ast.Field); ok {
				said += f.Doc.Text() + f.Comment.Text()
			}
			return true
		})
		words := strings.FieldsFunc(strings.ToLower(said), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		ast.Inspect(spec.Type, func(n ast.Node) bool {
			f, ok := n.(*ast.Field)
			if !ok || f.Doc != nil || f.Comment != nil || f.Tag != nil {
				return true
			}
			for _, name := range f.Names {
				if name.IsExported() && !slices.Contains(words, strings.ToLower(name.Name)) {
					names = append(names, name)
				}
			}
			return true
		})
	}
	for _, v := range values {
		for _, s := range v.Decl.Specs {
			if s := s.(*ast.ValueSpec); v.Doc == "" && s.Doc == nil && s.Comment == nil {
				names = append(names, s.Names...)
			}
		}
	}
	for _, f := range funcs {
		if f.Doc == "" {
			names = append(names, f.Decl.Name)
		}
	}
	return names
}
