package expr

import (
	"fmt"
	"math/rand/v2"
	"regexp/syntax"
	"runtime"
	"strings"
	"testing"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"

	"github.com/stintdev/stint/internal/attack"
)

// What compiling an expression and evaluating it once may allocate, in bytes, and the
// time after which a test gives up: it is for work that does not end, not for slow machines.
const (
	mayAllocate = 96 << 20 * raceFactor
	watchdog    = 5 * time.Minute
)

// bounded calls f and fails the test if that allocates too much, or does not end.
func bounded(t *testing.T, what string, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(watchdog):
		t.Fatalf("%s: it does not end", Clip(what))
	}
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; made > mayAllocate {
		t.Errorf("%s: %d MB allocated", what, made>>20)
	}
}

func nested(open, middle, end string, n int) string {
	return strings.Repeat(open, n) + middle + strings.Repeat(end, n)
}

// bombs are expressions that were, or could be, too much to compile or to evaluate.
func bombs() []string {
	many := strings.Repeat
	double := "[1]" + many(".map(x,[x,x])", 40)
	big := `"` + many("a", 100) + `".replace("","` + many("b", 100) + `").replace("","` + many("b", 90) + `")`
	return []string{
		// Parsing and checking.
		nested("(", "true", ")", 2000), nested("(", "true", ")", 60), many("(", 4096), many("[", 4096),
		many("true?true:", 400) + "true", nested("true?(", "true", "):true", 60),
		"size(" + nested("{1:", "1", "}", 60) + ")==1", many("!", 4000) + "true", "1" + many("+1", 2000) + "==1",
		"true" + many("&&true", 680), nested("[1,2].map(x,", "1", ")", 60) + "==1", many("? : ", 1000),
		"f(" + many("x,", 2000) + "x)", "attrs" + many(".a", 2000) + "==1",
		// Patterns.
		`request.path.matches("` + many("(a{1000})", 400) + `")`,
		`request.path.matches("` + many(`\\pL{1000}`, 300) + `")`,
		`request.path.matches("(((((a{10}){10}){10}){9}){9}b")`,
		`request.path.matches("((a*)*(b*)*){999}c")`,
		// Constants.
		big + `==""`, big + `.split("")==[]`, big + `.indexOf("` + many("b", 500) + `c")==1`,
		big + `.lastIndexOf("c` + many("b", 500) + `")==1`, big + `.reverse().upperAscii()==""`,
		`"` + many("%s", 1000) + `".format([` + many(big[:0]+`"a",`, 999) + `"a"])==""`,
		`"%s".format([` + nested("[", "1", "]", 60) + `])==""`,
		`"%.1000000f".format([1.0])==""`, `timestamp("` + many("2", 4000) + `")==timestamp(0)`,
		`bytes(` + big + `)==b""`, `(` + big + "+" + big + `).size()==1`,
		nested("[", many("1,", 1900)+"1", "]", 50) + "==[]",
		// Values that hold others again and again.
		double + "==" + double, `"%s".format([` + double + `])==""`, double + " in [" + double + "]",
		double + `.map(x, attrs.m)==[]`,
		"[[1]].map(x, x + x)" + many(".map(x, x + x)", 40) + ".exists(x, 1 in x)",
		// Loops.
		nested("[1,2,3,4,5,6,7,8,9].all(x,", "true", ")", 50),
		`attrs.l.all(a, attrs.l.all(b, a == b))`, `attrs.l.all(a, attrs.l.exists(b, a == b && a == "c"))`,
		`attrs.l.map(a, attrs.l).map(a, attrs.l)==[]`, `attrs.l.map(a, [a,` + many("1,", 1500) + `1]).size()==1`,
		`attrs.l.all(a, attrs.m.exists(k, true))`, `attrs.l.all(a, !has(request.headers[attrs.t]) || true)`,
		`attrs.l.all(a, !(attrs.t in attrs.m))`, `attrs.l.all(a, !(attrs.t in request.query))`,
		`attrs.l.all(a, request.query[a] == "" || true)`, `attrs.l.all(a, (attrs.m[attrs.t] == "") || true)`,
		`attrs.l.all(a, attrs.m[attrs.m[attrs.t]] == "" || true)`,
		`attrs.l.all(a, timestamp(a.size()).getHours("Europe/Berlin") >= 0)`,
		`attrs.l.all(a, int(attrs.t) == 1 || true)`, `attrs.l.all(a, attrs.t.matches("^a+$"))`,
		`attrs.l.all(a, attrs.t.lowerAscii() == attrs.t)`, `attrs.l.all(a, attrs.deep == attrs.deep)`,
		`attrs.l.all(a, attrs.m == attrs.m)`, `attrs.l.all(a, !(attrs.t in attrs.texts))`,
		`attrs.l.all(a, !(attrs.t in ["a", "b"]))`, `attrs.l.all(a, sha256(attrs.t) != "")`,
		`attrs.l.all(a, !(attrs.t in cidr("10.0.0.0/8")) || true)`,
		"attrs.l" + many(".exists_one(v, 1 > 2) || attrs.l", 20) + "==[]",
		nested("attrs.l.exists_one(v, ", "1 > 2", ")", 30), nested("attrs.l.filter(v, ", "false", ") == []", 20),
		nested("attrs.l.all(v, ", "true", ")", 30), nested("attrs.l.exists(v, ", "false", ")", 30),
		"int(attrs.t)==1" + many("||int(attrs.t)==1", 200), "timestamp(attrs.t)==timestamp(0)" + many("||timestamp(attrs.t)==timestamp(0)", 90),
		// Texts.
		`attrs.t.indexOf("` + many("a", 3000) + `b") == 1`, `attrs.t.lastIndexOf("b` + many("a", 3000) + `") == 1`,
		`attrs.t.indexOf(attrs.t + "b") == 1`, `attrs.t.replace("", attrs.t) == ""`, `attrs.t.split("").size() == 1`,
		`attrs.l.map(a, attrs.t).join(attrs.t) == ""`, `attrs.l.map(a, attrs.t + a) == []`,
		`attrs.t.matches("((a{30}){30}){9}b")`, `request.path.matches("((a{30}){30}){9}b")`,
		`"%s%s".format([attrs.t, attrs.deep]) == ""`, `strings.quote(attrs.t) == ""`, `attrs.l.join(request.path).indexOf(request.path + "b") == 1`,
		`(request.path` + many("+request.path", 60) + `).size() == 1`,
		`request.path` + many(`.replace("a","aa")`, 50) + ` == ""`,
		`attrs.t == attrs.t`, `attrs.t + attrs.t == attrs.t`,
		// Bodies.
		`body.l.all(a, body.l.exists(b, a == b && a == "c"))`, `body.l.all(a, body.deep == body.deep)`, `body.t.indexOf(body.t + "b") == 1`,
		`body.l.map(a, body.t).join(body.t) == ""`, `body.l.all(a, !(body.t in body.texts))`, "int(body.t)==1" + many("||int(body.t)==1", 200),
		`"%s%s".format([body.t, body.deep]) == ""`, `body.l.all(a, body.m == body.m)`, `body.l.all(a, has(body.m.x) || has(body.y.z))`,
	}
}

type fixedBody map[string]any

func (b fixedBody) Lookup(path []string) (any, bool, error) {
	v, ok := b[path[0]]
	return v, ok, nil
}

// hostile is the largest input that a check or a gateway lets through.
func hostile() Variables {
	text := strings.Repeat("a", 1<<20)
	list, texts, m := make([]any, 20_000), make([]any, 200), map[string]any{}
	for i := range list {
		list[i] = "x"
		m[fmt.Sprint(i)] = int64(i)
	}
	for i := range texts {
		texts[i] = text[:len(text)-1-i]
	}
	deep := any(list)
	for range 5000 {
		deep = []any{deep}
	}
	return Variables{
		HasRequest: true, Method: "GET", Host: "example.com", Path: "/" + text[:64<<10],
		Headers: fixedFields{"x-a": text[:60<<10]}, Query: fixedFields{"a": "b"},
		Operation: "op", Attrs: map[string]any{"t": text, "l": list, "m": m, "deep": deep, "texts": texts},
		Body: fixedBody{"t": text, "l": list, "m": m, "deep": deep, "texts": texts},
	}
}

// detonate compiles an expression and evaluates it, and checks what was counted.
func detonate(t *testing.T, source string, in Variables) {
	t.Helper()
	bounded(t, source, func() {
		var e *Expression
		for _, want := range []*Type{Condition, Key} {
			var problems []Problem
			if e, problems = NewCompiler(t.Context()).Compile(source, want); len(problems) == 0 {
				break
			}
			if strings.Contains(problems[0].Text, "decoration") {
				t.Errorf("%s: %s", source, problems[0].Text)
			}
		}
		if e == nil || e.program == nil {
			return
		}
		s := Scope{Variables: in}
		_, details, _ := e.program.Eval(&s)
		if cost := details.ActualCost(); cost != nil && *cost > 400*MaxWork {
			t.Errorf("%s: one step took %d units", Clip(source), *cost)
		}
	})
}

// No expression takes long, or much memory, to compile or to evaluate.
func TestAttackExpressionBombs(t *testing.T) {
	language()
	in := hostile()
	for _, source := range bombs() {
		detonate(t, source, in)
	}
	if t.Failed() {
		return
	}
	lasts := attack.Time(t, time.Second/4)
	random := rand.New(rand.NewPCG(attack.Seed(t), 0))
	n := 0
	for start := time.Now(); time.Since(start) < lasts && !t.Failed(); n++ {
		detonate(t, randomExpression(random, "bool", 2+random.IntN(5)), in)
	}
	t.Logf("%d expressions at random", n)
}

// randomExpression is one of a kind: bool, int, text, list or any.
func randomExpression(r *rand.Rand, kind string, depth int) string {
	forms := map[string][]string{
		"bool": {"text == text", "text.contains(text)", "list.exists(v, bool)", "list.all(v, bool)", "any in list", "list == list",
			"bool && bool", "bool || bool", "!(bool)", "int < int", "text.matches('(a{9}){9}b*')", "text in attrs.m", "true", "list.exists_one(v, bool)"},
		"int": {"text.indexOf(text)", "text.lastIndexOf(text)", "size(text)", "size(list)", "int + int", "int(text)", "3", "cost", "text.indexOf(text, int)"},
		"text": {"attrs.t", "request.path", "text + text", "text.replace(text, text)", "list.map(v, text).join(text)", "'a'", "text.reverse()",
			"text.lowerAscii()", "'%s'.format([any])", "string(int)", "request.headers['x-a']", "text.substring(int)", "sha256(text)", "text.replace('', 'aaaaaaaaaaaaaaaa')"},
		"list": {"attrs.l", "[any, any]", "list + list", "list.map(v, any)", "list.filter(v, bool)", "text.split(text)", "[list, list]", "attrs.texts", "attrs.deep", "[1].map(w, list)"},
		"any":  {"bool", "int", "text", "list", "v", "{text: any}", "list[int]", "attrs.m[text]", "{text: any}[text]", "[any, list][0]", "attrs.m[attrs.texts[int]]", "(bool ? list : list)[0]", "[list][0][attrs.m[text]]"},
	}
	leaves := map[string]string{"bool": "true", "int": "1", "text": "attrs.t", "list": "attrs.l", "any": "1"}
	if depth == 0 {
		return leaves[kind]
	}
	form := forms[kind][r.IntN(len(forms[kind]))]
	var b strings.Builder
	for form != "" {
		end := strings.IndexFunc(form, func(c rune) bool { return c < 'a' || c > 'z' })
		if end == 0 {
			b.WriteByte(form[0])
			form = form[1:]
			continue
		}
		if end < 0 {
			end = len(form)
		}
		word := form[:end]
		method := strings.HasSuffix(b.String(), ".") || strings.HasSuffix(b.String(), "'") || strings.HasPrefix(form[end:], "(")
		form = form[end:]
		if forms[word] != nil && !method {
			word = "dyn(" + randomExpression(r, word, depth-1) + ")"
		}
		b.WriteString(word)
	}
	return b.String()
}

// The functions that are declared again mean what the extension's do.
func TestTextFunctionsAreTwins(t *testing.T) {
	env, err := cel.NewEnv(ext.Strings(), cel.Variable("s", cel.StringType), cel.Variable("w", cel.StringType), cel.Variable("n", cel.IntType))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := env.Extend(boundedText()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{
		"s.indexOf(w)", "s.indexOf(w, n)", "s.lastIndexOf(w)", "s.lastIndexOf(w, n)", "s.split(w)", "s.split(w, n)",
		"s.contains(w)", "s.replace(w, 'xy')", "s.replace(w, '', n)", "s.split(w).join(w)", "'%s-%d'.format([s, n])",
	} {
		var programs [2]cel.Program
		for i, env := range []*cel.Env{env, ours} {
			checked, issues := env.Compile(source)
			if issues.Err() != nil {
				t.Fatal(issues.Err())
			}
			if programs[i], err = env.Program(checked); err != nil {
				t.Fatal(err)
			}
		}
		random := rand.New(rand.NewPCG(1, 2))
		letters := []string{"a", "b", "é", "\xff", "😀", "\ufffd"}
		text := func(most int, letters []string) string {
			var b strings.Builder
			for range random.IntN(most) {
				b.WriteString(letters[random.IntN(len(letters))])
			}
			return b.String()
		}
		for range 3000 {
			in := map[string]any{"s": text(8, letters), "w": text(3, letters[:5]), "n": random.IntN(12) - 2}
			var got [2]string
			for i, p := range programs {
				v, _, err := p.Eval(in)
				got[i] = fmt.Sprint(shown(v), err)
			}
			if got[0] != got[1] {
				t.Fatalf("%s with %q: the extension says %s, we %s", source, in, got[0], got[1])
			}
		}
	}
}

func shown(v ref.Val) any {
	if v == nil || types.IsError(v) {
		return nil
	}
	if l, ok := v.Value().([]string); ok {
		return fmt.Sprintf("%q", l)
	}
	return v.Value()
}

// A pattern compiles to no more steps than were told before.
func TestPatternSteps(t *testing.T) {
	parts := []string{"a", "abc", "[a-z]", `\pL`, "^", "$", `\b`, ".", "(?i)k", "[^x]", "", "é"}
	repeats := []string{"", "", "", "*", "+", "?", "{3}", "{0,4}", "{2,}", "{2,5}", "{0}", "*?"}
	random := rand.New(rand.NewPCG(3, 4))
	var pattern func(depth int) string
	pattern = func(depth int) string {
		if depth == 0 {
			return parts[random.IntN(len(parts))]
		}
		var b strings.Builder
		for i := range 1 + random.IntN(3) {
			if i > 0 && random.IntN(3) == 0 {
				b.WriteByte('|')
			}
			b.WriteString([]string{"(", "(?:"}[random.IntN(2)] + pattern(depth-1) + ")" + repeats[random.IntN(len(repeats))])
		}
		return b.String()
	}
	for range 5000 {
		p := pattern(1 + random.IntN(4))
		most, err := patternSteps(p)
		if err != nil {
			continue
		}
		tree, err := syntax.Parse(p, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(tree.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if have := len(program.Inst); have > most {
			t.Fatalf("%s: %d steps, told %d", p, have, most)
		}
	}
}
