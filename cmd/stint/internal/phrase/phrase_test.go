package phrase

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// call is one of this package's functions where it is used: its English text, and how many arguments follow it.
type call struct {
	function, text string
	args           int
	where          string
}

// calls are those in the packages of reports. Each text must stand in its call.
func calls(t *testing.T) (all []call) {
	t.Helper()
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				if found, is := callOf(c, f.Name.Name == "phrase"); is {
					found.where = fset.Position(c.Pos()).String()
					all = append(all, found)
				}
			}
			return true
		})
	}
	return all
}

func callOf(c *ast.CallExpr, here bool) (found call, is bool) {
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		if of, ok := f.X.(*ast.Ident); !ok || of.Name != "phrase" {
			return found, false
		}
		found.function = f.Sel.Name
	case *ast.Ident:
		found.function = f.Name
		if !here {
			return found, false
		}
	default:
		return found, false
	}
	at := slices.Index([]string{"Of", "Count", "Join"}, found.function)
	if at < 0 {
		return found, false
	}
	place := at % 2 // the thing of Count is its second
	if literal, ok := c.Args[place].(*ast.BasicLit); ok {
		found.text, _ = strconv.Unquote(literal.Value)
	}
	found.args = len(c.Args) - 1
	return found, true
}

var verbs = regexp.MustCompile(`%(\[\d\])?.`)

// places are the places of the arguments of a format, sorted.
func places(format string) (all []string) {
	for i, m := range verbs.FindAllStringSubmatch(format, -1) {
		place := m[1]
		if place == "" {
			place = fmt.Sprintf("[%d]", i+1)
		}
		all = append(all, place+m[0][len(m[0])-1:])
	}
	slices.Sort(all)
	return all
}

// Each text has a Chinese one with the same arguments, and no other has.
func TestChinese(t *testing.T) {
	unused := map[string]bool{}
	for text := range chinese {
		unused[string(text)] = true
	}
	all := calls(t)
	for _, c := range all {
		to, known := chinese[constant(c.text)]
		if !known {
			t.Errorf("%s: there is no Chinese text for %q", c.where, c.text)
		}
		delete(unused, c.text)
		if from := places(c.text); !slices.Equal(from, places(to)) {
			t.Errorf("%s: %q and %q have other arguments", c.where, c.text, to)
		} else if c.function == "Of" && len(from) != c.args || strings.Count(c.text, "%s") != len(from) {
			t.Errorf("%s: %q has %d arguments, and verbs %v", c.where, c.text, c.args, from)
		}
		words := strings.ContainsFunc(verbs.ReplaceAllString(c.text, ""), unicode.IsLetter)
		if han := strings.ContainsFunc(to, func(r rune) bool { return unicode.Is(unicode.Han, r) }); words != han {
			t.Errorf("%s: %q is %q in Chinese", c.where, c.text, to)
		}
	}
	for text := range unused {
		t.Errorf("%q is not used", text)
	}
	if len(all) < 50 {
		t.Errorf("only %d calls are found", len(all))
	}
}

// A phrase is told in one language, with all that is in it.
func TestPhrase(t *testing.T) {
	p := Of("%s.", Join("; ", Of("%s newly refused, and %s newly passed", 1234, int64(2)), Of("%s left out", Count(1, "line"))))
	if got, want := p.String(), "1,234 newly refused, and 2 newly passed; 1 line left out."; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := p.Chinese(), "新拒绝 1,234 个，新放行 2 个；略去 1 行。"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := Of("%s in any %s", 5, "10m").Chinese(), "任意 10m 内 5 个单位"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if zero := (Phrase{}); zero.String()+zero.Chinese() != "" {
		t.Error(zero)
	}
	text, err := p.MarshalText()
	var again Phrase
	if err != nil || again.UnmarshalText(text) != nil || again.String() != p.String() || again.Chinese() != p.String() {
		t.Error(string(text), err, again)
	}
	for _, hostile := range []string{"%d", "%!s", "100%"} {
		if p := Plain(hostile); p.String() != hostile || p.Chinese() != hostile {
			t.Error(p)
		}
	}
}

// Chinese texts use the terms of the glossary, and its punctuation.
func TestGlossary(t *testing.T) {
	data, err := os.ReadFile("../../../../docs/zh-CN/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	terms := []struct{ word, term string }{{"limit", "限额"}, {"client", "客户端"}, {"trusted proxy", "可信代理"}, {" tier ", "等级"}, {"units", "单位"}}
	for _, c := range terms {
		if !strings.Contains(string(data), c.term) {
			t.Errorf("the glossary has no %s", c.term)
		}
	}
	for english, text := range chinese {
		for _, c := range terms {
			if strings.Contains(strings.ToLower(string(english)), c.word) && !strings.Contains(text, c.term) {
				t.Errorf("%q: %q has no %s", english, text, c.term)
			}
		}
		if strings.ContainsAny(text, ",;!?") || strings.HasSuffix(text, ".") {
			t.Errorf("%q has other punctuation", text)
		}
	}
}
