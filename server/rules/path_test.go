package rules_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// asksAt are the rules of a set that apply to a path.
func asksAt(t rapid.TB, s *rules.Set, path string) (names []string) {
	t.Helper()
	var m rules.Plan
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
		if applies := len(asksAt(t, s, path)) > 0; applies != (expr.FoldPath(path) == expr.FoldPath(of)) {
			t.Fatalf("%q is %q: %t", path, of, applies)
		}
	})
}

// What cannot be is found in what is given to the functions, too.
func TestPathFunctionsThatNeverMatch(t *testing.T) {
	for match, want := range map[string]string{
		`request.path.is("login")`:             `write "/login"`,
		`request.path.under("/a?b")`:           "without the query",
		`request.path.is("/a#b")`:              "a fragment is never sent",
		`request.path.folded() == "/Login/"`:   `write "/login"`,
		`request.path.folded() in ["/a","/B"]`: `write "/b"`,
	} {
		s := parse(t, "rules: [{name: r, match: '"+match+"', key: client.ip, limits: [1 per 1h]}]")
		if !slices.ContainsFunc(s.Findings, func(f rules.Finding) bool {
			return f.Code == "ST006" && strings.Contains(f.Text, want)
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
				var m rules.Plan
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

// A rule for one path applies to that path and no other, however it says so, and a
// failure beside it counts only there.
func TestOnlyPath(t *testing.T) {
	for match, at := range map[string]map[string]string{
		`request.path == "/a"`:                                           {"/a": "yes", "/b": "no", "": "no"},
		`"/a" == request.path`:                                           {"/a": "yes", "/b": "no"},
		`request.method == "GET" && request.path == "/a"`:                {"/a": "yes", "/b": "no"},
		`request.path == "/a" && (request.method == "GET" && true)`:      {"/a": "yes", "/b": "no"},
		`request.path == "/a" && int(request.headers["x-n"]) > 0`:        {"/a": "error", "/b": "no"},
		`int(request.headers["x-n"]) > 0 && request.path == "/a"`:        {"/a": "error", "/b": "no"},
		`request.path == "/a" || request.path == "/b"`:                   {"/a": "yes", "/b": "yes", "/c": "no"},
		`!(request.path == "/a")`:                                        {"/a": "no", "/b": "yes"},
		`request.path != "/a"`:                                           {"/a": "no", "/b": "yes"},
		`request.path == request.host`:                                   {"/a": "no", "h": "yes"},
		`request.path == "/a" && request.path == "/b"`:                   {"/a": "no", "/b": "no"},
		`(request.path == "/a") == false`:                                {"/a": "no", "/b": "yes"},
		`request.path == "/a" ? true : request.method == "GET"`:          {"/a": "yes", "/b": "yes"},
		`request.headers["x-n"] == "five" && request.path == "/a"`:       {"/a": "yes", "/b": "no"},
		`request.headers["x-missing"] == "five" && request.path == "/a"`: {"/a": "no", "/b": "no"},
	} {
		s := parse(t, "rules: [{name: r, key: client.ip, limits: [1 per 1m], match: '"+match+"'}]")
		for path, want := range at {
			in := benchInput()
			in.Request.Method, in.Request.Path, in.Request.Host = "GET", path, "h"
			in.Request.Header.Set("X-N", "five")
			var m rules.Plan
			err := s.Asks(in, &m)
			got := "no"
			switch {
			case err != nil:
				got = "error"
			case len(m.Asks) > 0:
				got = "yes"
			}
			if got != want {
				t.Errorf("%s at %q: %s, want %s (%v)", match, path, got, want, err)
			}
		}
	}
}
