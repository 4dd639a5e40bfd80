package rules_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

func TestFoldPath(t *testing.T) {
	for _, c := range []struct {
		folded string
		from   []string
	}{
		{"", []string{""}},
		{"/", []string{"/", "//", "/.", "/..", "/./", "/;a", `\`, "%2f", "/...", "/%00x", "/x/..", "/x/../../"}},
		{"/login", []string{"/login", "login", "/login/", "/login//", "/LOGIN", "/Login", "//login", "/login;a=b", "/login;", "/;x/login", "/login/;a",
			"/x/../login", "/x/..;y/login", "/../login", "/./login", "/login/.", `\login`, `/x\..\login`, "/%6cogin", "/%6Cogin", "/%256cogin", "/%25256Cogin",
			"/%%36cogin", "/login%00", "/login%2500.html", "/login\x00/x", "/login%2f", "/%2flogin", "/login%20", "/login.", "/login. .", "/%4cOGIN", "/\u017fogin/../login"}},
		{"/sign-in", []string{"/\u017fign-in", "/%C5%BFIGN-IN"}},
		{"/log/in", []string{"/log/in", "/Log//In/", `/log\in`, "/log%2Fin", "/log;a/in;b"}},
		{"/caf\u00c9", []string{"/caf\u00e9", "/CAF\u00c9/", "/caf%C3%A9"}},
		{"/k", []string{"/\u212a", "/K"}},
		{"/login.json", []string{"/login.json", "/LOGIN.JSON/"}},
		{"/.well-known/..x", []string{"/.well-known/..x"}},
		{"/a%zz%4", []string{"/a%zz%4", "/A%25zz%254"}},
		{"/\xc0\xaflogin", []string{"/\xc0\xafLOGIN", "/%c0%aflogin"}},
	} {
		for _, from := range c.from {
			if got := rules.FoldPath(from); got != c.folded {
				t.Errorf("%q: %q, want %q", from, got, c.folded)
			}
		}
	}
}

// What is folded stays, and folding looks through its argument once: an escape in an
// escape in an escape does not cost more than others.
func FuzzFoldPath(f *testing.F) {
	for _, p := range []string{"/login", "/%25252e%2e;x/..\\A/ .", "\xff%00", "/\u017f\u212a\u00df\u0130"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		folded := rules.FoldPath(p)
		if again := rules.FoldPath(folded); again != folded || p != "" && folded[0] != '/' {
			t.Fatalf("%q: %q, then %q", p, folded, again)
		}
		for segment := range strings.SplitSeq(folded[min(1, len(folded)):], "/") {
			if folded != "/" && (segment == "" && p != "" || segment == "." || segment == ".." || strings.ContainsAny(segment, "\\;\x00")) {
				t.Fatalf("%q: %q has the segment %q", p, folded, segment)
			}
		}
		for _, same := range []string{strings.ToUpper(p), p + "/", "/" + p, p + ";x"} {
			if strings.ToUpper(p) == same && !isASCII(p) || p == "" || strings.Contains(folded, "%") || strings.HasSuffix(p, "%") {
				continue
			}
			if got := rules.FoldPath(same); got != folded {
				t.Fatalf("%q is %q, and %q is %q", p, folded, same, got)
			}
		}
	})
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c > '~' })
}

// asksAt are the rules of a set that apply to a path.
func asksAt(t rapid.TB, s *rules.Set, path string) (names []string) {
	t.Helper()
	var m rules.Matches
	if err := s.Asks(&rules.Input{Request: &rules.Request{Method: "POST", Path: path}}, &m); err != nil {
		t.Fatal(err)
	}
	for _, r := range m.Rules {
		names = append(names, r.Name)
	}
	return names
}

// The functions of paths, as rules use them.
func TestPathFunctions(t *testing.T) {
	s := parse(t, `
rules:
  - {name: is, match: request.path.is("/Login/"), key: '"a"', limits: [1 per 1h]}
  - {name: under, match: request.path.under("/API/v1"), key: '"b"', limits: [1 per 1h]}
  - {name: all, match: request.path.under("/"), key: '"c"', limits: [1 per 1h]}
  - {name: folded, match: 'request.path.folded() in ["/login", "/x"]', key: '"d"', limits: [1 per 1h]}
  - {name: both, match: 'request.method == "POST" && request.path.is("/login") && 1 / 1 == 1', key: '"e"', limits: [1 per 1h]}
  - {name: not, match: '!request.path.is("/login")', key: '"f"', limits: [1 per 1h]}
`)
	if f := s.Findings; len(f) > 0 {
		t.Error(f)
	}
	login, api := "is all folded both", "under all not"
	for path, want := range map[string]string{
		"/login": login, "/LOGIN/": login, "/login;a": login, "/login.": login,
		"/loginx": "all not", "/login/x": "all not", "/login.json": "all not", "": "not", "/": "all not", "/x": "all folded not",
		"/api/v1": api, "/api/V1/": api, "/api/v1/users": api, "/api/x/../v1;a/y": api, "/api/v1x": "all not", "/api": "all not", "/api/v1/../v2": "all not",
	} {
		if got := strings.Join(asksAt(t, s, path), " "); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}

// An explanation tells where a rule compares a path with == that some server takes for
// the same.
func TestExplainOtherSpelling(t *testing.T) {
	s := parse(t, `rules: [{name: login, match: request.method == "POST" && request.path == "/login", key: client.ip, limits: [5 per 1m]}]`)
	for path, told := range map[string]bool{"/Login/": true, "/login;a": true, "/login": false, "/logout": false} {
		e, err := s.Explain(t.Context(), &rules.Input{Request: &rules.Request{Method: "POST", Path: path}})
		if err != nil || strings.Contains(e.Rules[0].Why, `request.path.is("/login") is true of it`) != told {
			t.Errorf("%s: %s, %v", path, e.Rules[0].Why, err)
		}
	}
}

// One path at which a rule can apply is found before the rule is evaluated, and nothing
// changes by that: is says the same behind a double negation, where it is not found.
func TestIsWithinOrWithout(t *testing.T) {
	parts := []string{"login", "LOGIN", "/", "/", ";a", "%6c", "..", ".", "x", "\\", " ", "ſ", "%00"}
	rapid.Check(t, func(t *rapid.T) {
		path := "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 6).Draw(t, "path"), "")
		of := "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"login", "LOGIN", "/", "x"}), 0, 3).Draw(t, "of"), "")
		s, err := rules.Parse("rules.yaml", []byte(`
rules:
  - {name: plain, match: 'request.method != "" && request.path.is("`+of+`")', key: '"a"', limits: [1 per 1h]}
  - {name: negated, match: '!!request.path.is("`+of+`")', key: '"b"', limits: [1 per 1h]}
  - {name: folded, match: 'request.path.folded() == "`+of+`".folded()', key: '"c"', limits: [1 per 1h]}
`))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(asksAt(t, s, path)); n != 0 && n != 3 {
			t.Fatalf("%q and %q: %v", path, of, asksAt(t, s, path))
		}
		if applies := len(asksAt(t, s, path)) > 0; applies != (rules.FoldPath(path) == rules.FoldPath(of)) {
			t.Fatalf("%q is %q: %t", path, of, applies)
		}
	})
}

// What cannot be is found in what is given to the functions, too.
func TestPathFunctionsInVain(t *testing.T) {
	for match, want := range map[string]string{
		`request.path.is("login")`:             `write "/login"`,
		`request.path.under("/a?b")`:           "without the query",
		`request.path.is("/a#b")`:              "a fragment is never sent",
		`request.path.folded() == "/Login/"`:   `write "/login"`,
		`request.path.folded() in ["/a","/B"]`: `write "/b"`,
	} {
		s := parse(t, "rules: [{name: r, match: '"+match+"', key: client.ip, limits: [1 per 1h]}]")
		if !slices.ContainsFunc(s.Findings, func(f rules.Finding) bool {
			return f.Code == rules.CodeNeverMatches && strings.Contains(f.Text, want)
		}) {
			t.Errorf("%s: %v", match, s.Findings)
		}
	}
}

func BenchmarkIsPath(b *testing.B) {
	for name, match := range map[string]string{"==": `request.path == "/login"`, "is": `request.path.is("/login")`} {
		s, err := rules.Parse("rules.yaml", []byte("rules: [{name: r, match: '"+match+"', key: client.ip, limits: [1 per 1h]}]"))
		if err != nil {
			b.Fatal(err)
		}
		for _, path := range []string{"/login", "/Login/", "/a/longer/path/of/an/api"} {
			b.Run(name+" "+path, func(b *testing.B) {
				b.ReportAllocs()
				var m rules.Matches
				m.Asks = make([]stint.Ask, 0, 4)
				in := rules.Input{Request: &rules.Request{Path: path}}
				for b.Loop() {
					if err := s.Asks(&in, &m); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
