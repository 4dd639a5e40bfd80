package server_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The package grows no further: it assembles, and what decides, watches and answers moves into rooms of
// its own. A change that lowers a number lowers it here, too.
func TestHouse(t *testing.T) {
	const files, methods, fields = 20, 39, 24
	all, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	of := map[string]int{"files": len(all)}
	for _, name := range all {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil && isServer(n.Recv.List[0].Type) {
					of["methods"]++
				}
				return false
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok && n.Name.Name == "Server" {
					of["fields"] = s.Fields.NumFields()
				}
			}
			return true
		})
	}
	for what, want := range map[string]int{"files": files, "methods": methods, "fields": fields} {
		if got := of[what]; got > want {
			t.Errorf("%d %s of Server: at most %d", got, what, want)
		} else if got < want {
			t.Errorf("%d %s of Server: lower the %d of this test", got, what, want)
		}
	}
}

// isServer reports whether a receiver is a *Server.
func isServer(t ast.Expr) bool {
	star, ok := t.(*ast.StarExpr)
	if !ok {
		return false
	}
	name, ok := star.X.(*ast.Ident)
	return ok && name.Name == "Server"
}

// What the package is made of does not import it, and does not know who serves: commands and Envoy's
// service.
func TestHouseDirections(t *testing.T) {
	const module = "github.com/stintdev/stint/"
	wrong := func(folder, path string) bool {
		serves := folder == "envoy" || strings.HasPrefix(folder, "envoy/")
		switch {
		case path == module+"server", path == module+"server/envoy", strings.HasPrefix(path, module+"server/envoy/"):
			return !serves
		}
		return strings.HasPrefix(path, module+"cmd/")
	}
	looked := 0
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() == "testdata" {
			return err
		}
		p, err := build.ImportDir(path, 0)
		if err != nil {
			return nil // no Go
		}
		looked++
		for _, imported := range p.Imports {
			if wrong(path, imported) {
				t.Errorf("server/%s imports %s", path, imported)
			}
		}
		return nil
	})
	if err != nil || looked < 10 {
		t.Errorf("%d packages, %v", looked, err)
	}
}

// The decision knows rules and stores. It knows no HTTP, log, metrics, traces or YAML, and none of those who
// ask or watch.
func TestHouseOfDecisions(t *testing.T) {
	const module = "github.com/stintdev/stint"
	may := []string{module, module + "/fleet", module + "/internal/friend", module + "/server/internal/kind", module + "/server/rules"}
	p, err := build.ImportDir("internal/decide", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range p.Imports {
		foreign := strings.Contains(path, ".") && !slices.Contains(may, path)
		if foreign || strings.HasPrefix(path, "net/http") || strings.HasPrefix(path, "log") {
			t.Errorf("server/internal/decide imports %s", path)
		}
	}
}

// Those who watch know the decision, and none of those who ask.
func TestHouseOfWatchers(t *testing.T) {
	const internal = "github.com/stintdev/stint/server/internal/"
	may := []string{"alerts", "decide", "kind", "live", "offenders", "recent", "reports", "traces"}
	p, err := build.ImportDir("internal/watch", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range p.Imports {
		if room, is := strings.CutPrefix(path, internal); is && !slices.Contains(may, room) {
			t.Errorf("server/internal/watch imports %s", path)
		}
	}
}

// A door knows no other door. Simulations read their events as the check API reads checks.
func TestHouseOfDoors(t *testing.T) {
	const internal = "github.com/stintdev/stint/server/internal/"
	imports := map[string][]string{} // of what is over package door
	rooms, err := os.ReadDir("internal")
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range rooms {
		p, err := build.ImportDir("internal/"+room.Name(), 0)
		if err == nil && slices.Contains(p.Imports, internal+"door") {
			imports[room.Name()] = p.Imports
		}
	}
	if len(imports) < 3 {
		t.Fatalf("only %d doors", len(imports))
	}
	for room, of := range imports {
		for other := range imports {
			if slices.Contains(of, internal+other) && room+other != "drycheck" {
				t.Errorf("server/internal/%s imports %s", room, other)
			}
		}
	}
}
