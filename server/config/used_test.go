package config_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/config"
)

// Code reads each field that a row sets: somewhere in the server or its program, it is named other than to
// fill it.
func TestFieldsAreUsed(t *testing.T) {
	used := map[string]bool{}
	for _, root := range []string{"..", "../../cmd/stint"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if filled, ok := n.(*ast.UnaryExpr); ok && filled.Op == token.AND { // &s.Listen, in a row
					_, isField := filled.X.(*ast.SelectorExpr)
					return !isField
				}
				if s, ok := n.(*ast.SelectorExpr); ok {
					used[s.Sel.Name] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	leaves(reflect.TypeFor[config.Settings](), "", func(path string) {
		if name := path[strings.LastIndexByte(path, '.')+1:]; !used[name] && !strings.HasPrefix(path, "Breaker.") && !strings.HasPrefix(path, "CORS.Policy.") { // of the library
			t.Errorf("nothing reads %s", path)
		}
	})
}
