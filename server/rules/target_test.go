package rules_test

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

func TestReadTarget(t *testing.T) {
	for _, c := range []struct{ target, path, ambiguous string }{
		{"/", "/", ""},
		{"/login", "/login", ""},
		{"/login/", "/login/", ""},
		{"/%6Cogin", "/login", ""},
		{"/a%20b%3Fc%23d", "/a b?c#d", ""},
		{"/caf%C3%A9", "/café", ""},
		{"/café", "/café", ""},
		{"/a|b^\"<>{}`", "/a|b^\"<>{}`", ""},
		{"/a//b///c/", "/a/b/c/", ""},
		{"/.well-known/..x/...", "/.well-known/..x/...", ""},
		{"/100%25", "/100%", ""},
		{"/100%25%20", "/100% ", ""},
		{"/Login", "/Login", ""},
		{"http://h/login?a", "/login", ""},
		{"HTTP://user@h:80//login", "/login", "leading_slashes"},
		{"http://h", "/", ""},
		{"http://h?a=/x", "/", ""},

		{"//login", "/login", "leading_slashes"},
		{"//h/login", "/h/login", "leading_slashes"},
		{"/./login", "/login", "dot_segments"},
		{"/login/.", "/login", "dot_segments"},
		{"/x/../login", "/login", "dot_segments"},
		{"/x/%2e%2E/login", "/login", "dot_segments"},
		{"/x//../login", "/login", "dot_segments"},
		{"/x%2F..%2flogin", "/login", "dot_segments,encoded_slash"},
		{"/%2Flogin", "/login", "encoded_slash"},
		{`/x\..\login`, `/x\..\login`, "dot_segments,backslash"},
		{"/x%5clogin", `/x\login`, "backslash"},
		{"/login;a=b", "/login;a=b", "semicolon"},
		{"/login%3Ba", "/login;a", "semicolon"},
		{"/x/..;a/login", "/x/..;a/login", "dot_segments,semicolon"},
		{"/%252e%252e/login", "/%2e%2e/login", "double_encoding"},
		{"/%c0%afx", "/\xc0\xafx", "not_utf8"},
		{"/?a;b", "/", "query_semicolon"},
		{"/?a=%00;", "/", "query_semicolon,query_nul"},
		{"/?a=%0a%7f", "/", ""},
	} {
		got, err := rules.ReadTarget(c.target)
		if err != nil || got.Path != c.path || got.Ambiguous.String() != c.ambiguous {
			t.Errorf("%s: got %q, %s, %v", c.target, got.Path, got.Ambiguous, err)
		}
	}
	for _, target := range []string{"", "*", "example.com:443", "login", "/%zz", "/%", "?a", "a/b://c", "mailto:x",
		"/login#x", "/login?a#b", "#", "http://h#/login", "/login%00", "/%0a", "/a%1Fb", "/%7f", "/a\x00b", "/login ", "/a b", "/?a b", "/?\x00", "/?\r", "/\t", "/?\x7f"} {
		if got, err := rules.ReadTarget(target); err == nil {
			t.Errorf("%q: got %+v", target, got)
		}
	}
}

func TestReadMethod(t *testing.T) {
	for method, want := range map[string]rules.Ambiguity{
		"": 0, "GET": 0, "VERSION-CONTROL": 0, "M-SEARCH": 0, "X!#$%&'*+-.^_`|~9": 0,
		"post": rules.MethodCase, "Post": rules.MethodCase, "pOST": rules.MethodCase, "FOOo": rules.MethodCase,
	} {
		if got, err := rules.ReadMethod(method); got != want || err != nil {
			t.Errorf("%q: %s, %v", method, got, err)
		}
	}
	for _, method := range []string{" ", "POST ", "PO ST", "POST\x00", "POST\n", "POST\x7f", "PÖST", "\u017fPOST", "POST/", "POST,", `"POST"`} {
		if got, err := rules.ReadMethod(method); err == nil {
			t.Errorf("%q: %s", method, got)
		}
	}
}

// Whatever is sent, the target is kept as it came, and the normal form is its own. An
// unambiguous path is decoded, and no more than slashes are merged.
func FuzzTarget(f *testing.F) {
	for _, t := range []string{"/a//b?c", "/%2e%2E;/x", "http://h//x?", "/\\%5c%00", "/%25%32%65"} {
		f.Add(t)
	}
	f.Fuzz(func(t *testing.T, target string) {
		got, err := rules.ReadTarget(target)
		if err != nil {
			return
		}
		back := got.RawPath
		if got.HasQuery {
			back += "?" + got.RawQuery
		}
		if !strings.HasSuffix(target, back) && got.RawPath != "/" || strings.HasPrefix(target, "/") && back != target {
			t.Fatalf("%q: kept as %q", target, back)
		}
		if again := rules.CleanPath(got.Path); again != got.Path || got.Path[0] != '/' {
			t.Fatalf("%q: %q is no normal form: %q", target, got.Path, again)
		}
		if got.Ambiguous != 0 {
			return
		}
		for segment := range strings.SplitSeq(got.Path[1:], "/") {
			if segment == "." || segment == ".." || strings.ContainsAny(segment, "\\;\x00") {
				t.Fatalf("%q is not ambiguous: %q", target, got.Path)
			}
		}
	})
}

// What no rule looks at cannot mislead any.
func TestAmbiguousToRules(t *testing.T) {
	all := &rules.Input{Request: &rules.Request{Ambiguous: rules.AnyAmbiguity}}
	const path, query, method = rules.PathAmbiguity, rules.QueryAmbiguity, rules.MethodCase
	for file, want := range map[string]rules.Ambiguity{
		`{name: r, key: client.ip, limits: [1 per 1s]}`:                                          0,
		`{name: r, key: 'request.headers["a"]', match: request.host == "a", limits: [1 per 1s]}`: 0,
		`{name: r, key: client.ip, match: request.method == "GET", limits: [1 per 1s]}`:          method,
		`{name: r, key: request.path, limits: [1 per 1s]}`:                                       path,
		`{name: r, key: client.ip, match: request.path.startsWith("/a"), limits: [1 per 1s]}`:    path,
		`{name: r, key: client.ip, match: has(request.query.a), limits: [1 per 1s]}`:             query,
		`{name: r, key: client.ip, cost: 'request.path == "/a" ? 1 : 2', limits: [1 per 1s]}`:    path,
		`{name: r, key: '[request.path, request.query.a]', limits: [1 per 1s]}`:                  path | query,
		`{name: r, key: '[request.path, request.method, request.query.a]', limits: [1 per 1s]}`:  path | query | method,
		`{name: r, key: request.path, limits: [1 per 1s], mode: shadow}`:                         0,
		`{name: r, key: request.path, limits: [1 per 1s], mode: off}`:                            0,
	} {
		if got := parse(t, "rules: ["+file+"]").Ambiguous(all); got != want {
			t.Errorf("%s: %s", file, got)
		}
	}
	const plain = "rules: [{name: r, key: client.ip, limits: [1 per 1s]}]\n"
	for _, file := range []string{`safelist: [request.path == "/a"]`, `blocklist: [request.path == "/a"]`} {
		if got := parse(t, plain+file).Ambiguous(all); got != path {
			t.Errorf("%s: %s", file, got)
		}
	}
	for mode, want := range map[string]rules.Ambiguity{"enforce": path, "shadow": 0} {
		file := `{tiers: {gold: request.path == "/a"}, rules: [{name: r, key: client.ip, limits: [1 per 1s], tiers: {gold: {times: 2}}, mode: ` + mode + `}]}`
		if got := parse(t, file).Ambiguous(all); got != want {
			t.Errorf("a tier of a rule in mode %s: %s", mode, got)
		}
	}
	s := parse(t, plain+"enabled: false\nsafelist: [request.path == '/a']")
	if got := s.Ambiguous(all); got != 0 {
		t.Errorf("switched off: %s", got)
	}
	on := true
	s, _ = s.With(&rules.Controls{Enabled: &on})
	if got := s.Ambiguous(all); got != path {
		t.Errorf("switched on: %s", got)
	}
	s, problems := parse(t, plain).With(&rules.Controls{Blocklist: []rules.Listed{{Note: rules.Note{ID: "a"}, Match: "request.query.a == '1'"}}})
	if got := s.Ambiguous(all); got != query || problems != nil {
		t.Errorf("added: %s, %v", got, problems)
	}
	s, _ = parse(t, "rules: [{name: r, key: request.path, limits: [1 per 1s]}]").With(&rules.Controls{Modes: map[string]rules.Mode{"r": rules.Shadow}})
	if got := s.Ambiguous(all); got != 0 {
		t.Errorf("in shadow: %s", got)
	}
	if got := s.Ambiguous(&rules.Input{}); got != 0 {
		t.Errorf("no request: %s", got)
	}
}
