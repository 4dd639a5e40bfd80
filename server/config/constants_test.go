package config

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	module   = "github.com/stintdev/stint"
	fromHere = "../.." // to the root of the module
)

// constants reads the constants of packages from their source, those that are not exported as well.
type constants struct {
	files    *token.FileSet
	packages map[string]*types.Package
}

func newConstants() *constants {
	return &constants{token.NewFileSet(), map[string]*types.Package{"time": units()}}
}

// units is a package time that has what constants are made of.
func units() *types.Package {
	p := types.NewPackage("time", "time")
	name := types.NewTypeName(token.NoPos, p, "Duration", nil)
	duration := types.NewNamed(name, types.Typ[types.Int64], nil)
	p.Scope().Insert(name)
	for unit, d := range map[string]time.Duration{"Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
		"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour} {
		p.Scope().Insert(types.NewConst(token.NoPos, p, unit, duration, constant.MakeInt64(int64(d))))
	}
	p.MarkComplete()
	return p
}

// Import makes c an importer. Packages of others are empty: no bound is made of their constants.
func (c *constants) Import(name string) (*types.Package, error) {
	if p := c.packages[name]; p != nil {
		return p, nil
	}
	if name != module && !strings.HasPrefix(name, module+"/") {
		p := types.NewPackage(name, path.Base(name))
		p.MarkComplete()
		c.packages[name] = p
		return p, nil
	}
	dir := filepath.Join(fromHere, strings.TrimPrefix(name, module))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var parsed []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(c.files, filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	// What uses the empty packages is wrong, and no constant.
	check := types.Config{Importer: c, IgnoreFuncBodies: true, Error: func(error) {}}
	p, _ := check.Check(name, c.files, parsed, nil)
	c.packages[name] = p
	return p, nil
}

var placeholder = regexp.MustCompile(`\{([\w/]+)\.(\w+)( B)?\}`)

// fill replaces each {package.Constant}, and {package.Constant B} as a number of bytes. The package
// is named by its directory, the root by stint, and default.Field is a field of Default().
func (c *constants) fill(t *testing.T, text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(whole string) string {
		m := placeholder.FindStringSubmatch(whole)
		dir, name, bytes := m[1], m[2], m[3] != ""
		if dir == "default" {
			s := Default()
			v := reflect.ValueOf(s).FieldByName(name)
			if !v.IsValid() {
				t.Fatalf("%s: no such setting", whole)
			}
			return shown(v.Int(), bytes, v.Type() == reflect.TypeFor[time.Duration]())
		}
		p, err := c.Import(path.Join(module, strings.TrimPrefix(dir, "stint")))
		if err != nil {
			t.Fatalf("%s: %v", whole, err)
		}
		found, _ := p.Scope().Lookup(name).(*types.Const)
		if found == nil {
			t.Fatalf("%s: no such constant", whole)
		}
		n, exact := constant.Int64Val(constant.ToInt(found.Val()))
		if !exact {
			t.Fatalf("%s: no whole number: %s", whole, found.Val())
		}
		return shown(n, bytes, found.Type().String() == "time.Duration")
	})
}

// shown is n as pages write it.
func shown(n int64, bytes, duration bool) string {
	switch {
	case duration:
		return shownDuration(time.Duration(n))
	case !bytes:
		return thousands(n)
	case n >= 1<<20 && n%(1<<20) != 0:
		return shown(n&^(1<<20-1), true, false) + " and " + shown(n&(1<<20-1), true, false)
	case n >= 1<<20:
		return thousands(n>>20) + " MiB"
	case n >= 1<<10 && n%(1<<10) == 0 && n != 4096:
		return thousands(n>>10) + " KiB"
	}
	return thousands(n) + " bytes"
}

func shownDuration(d time.Duration) string {
	for _, unit := range []struct {
		is   time.Duration
		name string
	}{{24 * time.Hour, "days"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d >= unit.is && d%unit.is == 0 {
			return fmt.Sprintf("%d %s", d/unit.is, unit.name)
		}
	}
	return d.String()
}

func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
