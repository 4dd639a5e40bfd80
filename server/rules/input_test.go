package rules_test

import (
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

func TestHeadersAndQuery(t *testing.T) {
	in := &rules.Input{Request: get("/p?a=1&a=2&b=&%63=%20x+y&bad=%zz&semi=1;d=2&&=e&f", "X-One", "1", "X-Two", "a", "X-Two", "b", "Cookie", "c=d")}
	in.Request.Header["x-lower"] = []string{"not canonical"}
	in.Request.Header["X-None"] = nil
	for _, c := range []struct {
		match string
		want  bool
	}{
		{`request.headers["x-one"] == "1" && request.headers["cookie"] == "c=d"`, true},
		{`request.headers["x-two"] == "a, b" && request.headers["x-two"] == "a, b"`, true},
		{`request.headers[operation] == "a, b"`, true},
		{`has(request.headers.cookie) && !has(request.headers.nope)`, true},
		{`"x-one" in request.headers && !("x-none" in request.headers) && !("x-lower" in request.headers)`, true},
		{`size(request.headers) == 3`, true},
		{`request.headers.exists(n, n == "x-two" && request.headers[n] == "a, b")`, true},
		{`request.headers.all(n, n == n.lowerAscii())`, true},
		{`request.headers == request.headers && request.headers != request.query`, true},
		{`request.headers == {"x-one": "1", "x-two": "a, b", "cookie": "c=d"}`, true},
		{`{"x-one": "1", "x-two": "a, b", "cookie": "c=d"} == request.headers`, true},
		{`request.headers[("X-" + "One")] == "1"`, false},
		{`request.headers.map(n, request.headers[n]).exists(v, v == "c=d")`, true},
		{`type(request.headers) == map`, true},

		{`request.query.a == "1" && request.query["b"] == "" && request.query["c"] == " x y"`, true},
		{`request.query.bad == "%zz" && request.query.semi == "1;d=2" && !has(request.query.d)`, true},
		{`request.query[""] == "e" && request.query.f == ""`, true},
		{`size(request.query) == 7 && request.query.all(n, n in ["a", "b", "c", "", "f", "bad", "semi"])`, true},
		{`"a" in request.query && !("z" in request.query)`, true},
	} {
		in.Operation = "x-two"
		want := ""
		if c.want {
			want = `r="k":0`
		}
		if got := asked(allowing(one(t, `key: '"k"'`, "match: "+quoted(c.match))), in); got != want {
			t.Errorf("%s: got %s", c.match, got)
		}
	}
}

// A query of very many parts must not hide those that matter.
func TestQueryOfManyParts(t *testing.T) {
	in := &rules.Input{Request: &rules.Request{RawQuery: strings.Repeat("x&", 100_000) + "user=me"}}
	if got := asked(one(t, "key: request.query.user"), in); got != `r="me":0` {
		t.Errorf("got %s", got)
	}
}

// A malformed part of a query is read as browsers, Node and Python read it.
func TestMalformedQuery(t *testing.T) {
	for query, want := range map[string]string{
		"user=a%zzb": "a%zzb",
		"user=%4":    "%4",
		"user=%":     "%",
		"user=%%41+": "%A ",
		"us%65r=%e4": "malformed", // a key is UTF-8
		"user=a;b":   "a;b",
		"user%=x":    "",
	} {
		got := asked(one(t, "key: request.query.user"), &rules.Input{Request: &rules.Request{RawQuery: query}})
		if want == "malformed" {
			if !strings.Contains(got, "UTF-8") {
				t.Errorf("%s: got %s", query, got)
			}
		} else if want != "" && got != fmt.Sprintf("r=%q:0", want) || want == "" && got != "" {
			t.Errorf("%s: got %s, want %q", query, got, want)
		}
	}
}

// What net/url reads of a query, we read too, and the same where nothing in it is
// malformed.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{"", "a=1&b=2&a=3", "a", "=x", "a=%20+", "%zz=1&b=%", "a;b=1&c", "&&&", "a=b=c"} {
		f.Add(q)
	}
	s := one(f, "key: '[\"x\"] + request.query.map(n, n + \"=\" + request.query[n])'")
	f.Fuzz(func(t *testing.T, query string) {
		want := map[string]bool{}
		u, malformed := url.ParseQuery(query)
		for n, v := range u {
			want[n+"="+v[0]] = true
		}
		var out rules.Plan
		if err := s.Asks(&rules.Input{Request: &rules.Request{RawQuery: query}}, &out); err != nil {
			return
		}
		got, names := map[string]bool{}, map[string]bool{}
		for _, part := range strings.Split(strings.TrimSuffix(out.Asks[0].Key, "\x00"), "\x00")[1:] {
			name, _, _ := strings.Cut(part, "=")
			got[part], names[name] = true, true
		}
		if malformed != nil {
			for n := range u {
				if name, _, _ := strings.Cut(n, "="); !names[name] {
					t.Errorf("%q: got %v, without %q", query, got, n)
				}
			}
			return
		}
		if !maps.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", query, got, want)
		}
	})
}
