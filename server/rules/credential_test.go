package rules_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// One credential is one key, however it is written, wherever the rule has it.
func TestCredentialIsOneKey(t *testing.T) {
	set := parse(t, `rules: [{name: r, key: sha256(request.credential), limits: [2 per 1d]}, {name: ip, default: true, key: client.ip, limits: [5 per 1m]}]`)
	want := asked(set, &rules.Input{Request: get("/", "Authorization", "Bearer k")})
	for _, scheme := range []string{"Bearer", "bearer", "BEARER", "bEaReR", "token", "Token"} {
		for _, blanks := range []string{" ", "  ", "\t", " \t ", strings.Repeat(" ", 60)} {
			for _, after := range []string{"", " ", "\t"} {
				if got := asked(set, &rules.Input{Request: get("/", "Authorization", scheme+blanks+"k"+after)}); got != want {
					t.Errorf("%q: %s, want %s", scheme+blanks+"k"+after, got, want)
				}
			}
		}
	}
	for _, header := range []string{"X-Api-Key", "Api-Key"} {
		if got := asked(set, &rules.Input{Request: get("/", header, "k")}); got != want {
			t.Errorf("%s: %s, want %s", header, got, want)
		}
	}
}

func TestCredential(t *testing.T) {
	const rule = `rules: [{name: r, key: request.credential, limits: [2 per 1d]}, {name: none, default: true, key: '"none"', limits: [5 per 1m]}]`
	for _, test := range []struct {
		what, file string
		header     []string
		want       string
	}{
		{"none", "", nil, `none="none":0`},
		{"a scheme alone", "", []string{"Authorization", "Bearer"}, `none="none":0`},
		{"one that is new each time", "", []string{"Authorization", `Digest username="ann", nc=1`}, `none="none":0`},
		{"user and password", "", []string{"Authorization", "Basic YW5uOnB3"}, `r="ann:pw":0`},
		{"twice the same", "", []string{"Authorization", "Bearer k", "X-Api-Key", "k"}, `r="k":0`},
		{"two", "", []string{"Authorization", "Bearer k", "X-Api-Key", "l"}, "unclear_credential x-api-key"},
		{"two lines", "", []string{"Authorization", "Bearer k", "Authorization", "Bearer k"}, "repeated_header authorization"},
		{"two keys", "", []string{"X-Api-Key", "k", "X-Api-Key", "k"}, "repeated_header x-api-key"},
		{"a twin", "", []string{"X_api_key", "k"}, "twin_header x-api-key"},
		{"two tokens", "", []string{"Authorization", "Bearer k, Bearer l"}, "unclear_credential authorization"},
		{"broken base64", "", []string{"Authorization", "Basic ?"}, "unclear_credential authorization"},
		{"no UTF-8", "", []string{"X-Api-Key", "k\xff"}, "not_utf8 x-api-key"},
		{"another header", "credential_headers: [X-Goog-Api-Key]\n", []string{"X-Goog-Api-Key", "k", "X-Api-Key", "l"}, `r="k":0`},
		{"a header that is none", "credential_headers: [authorization]\n", []string{"X-Api-Key", "k"}, `none="none":0`},
		{"no header", "credential_headers: []\n", []string{"Authorization", "Bearer k"}, `none="none":0`},
		{"that of a proxy", "credential_headers: [proxy-authorization]\n", []string{"Proxy-Authorization", "bearer  k"}, `r="k":0`},
	} {
		set, in := parse(t, test.file+rule), &rules.Input{Request: get("/", test.header...)}
		var m rules.Plan
		got, err := asked(set, in), set.Asks(in, &m)
		if bad := (*rules.AmbiguousError)(nil); errors.As(err, &bad) {
			got = bad.Is.String() + " " + bad.Name
		}
		if got != test.want || (err != nil) != errors.Is(err, stint.ErrRequest) {
			t.Errorf("%s: %s, want %s", test.what, got, test.want)
		}
		if err := allowing(set).Asks(in, &m); err != nil && test.what != "no UTF-8" {
			t.Errorf("%s, allowed: %v", test.what, err)
		}
	}
}

// A rule reads what it needs of a request alone, and || and && go by what is certain.
func TestCredentialInExpressions(t *testing.T) {
	in := &rules.Input{Operation: "op", Request: get("/", "Authorization", "Bearer k", "X-Api-Key", "l", "Cookie", "a=1; a=2; b=3; x=1,hidden=2")}
	for match, bad := range map[string]bool{
		`request.credential == "k"`:                                        true,
		`request.credential == "k" || operation == "op"`:                   false,
		`operation == "no" && request.credential == "k"`:                   false,
		`request.cookies.b == "3" && request.cookies["b"] == "3"`:          false,
		`request.cookies.a == "1"`:                                         true,
		`"a" in request.cookies`:                                           true,
		`has(request.cookies.c)`:                                           false,
		`has(request.cookies.hidden)`:                                      true,
		`request.cookies == {"b": "3"}`:                                    true,
		`size(request.cookies) > 2 && request.cookies.exists(n, n == "b")`: false,
		`request.cookies.exists(n, request.cookies[n] == "none")`:          true,
	} {
		if got := asked(one(t, `key: '"k"'`, "match: "+quoted(match)), in); strings.Contains(got, "the request has") != bad {
			t.Errorf("%s: %s", match, got)
		}
	}
	for _, header := range [][]string{{"Cookie", "a=1", "Cookie", "b=2"}, {"Cookie", "a=1; A=2"}} {
		if got := asked(one(t, `key: '"k"'`, `match: 'request.cookies == {"c": "3"}'`), &rules.Input{Request: get("/", header...)}); !strings.Contains(got, "the request has") {
			t.Errorf("all cookies of %q: %s", header, got)
		}
	}
	for _, name := range []string{"request.credential", "request.cookies.a"} {
		if got := asked(one(t, "key: "+name), &rules.Input{}); got != "" {
			t.Errorf("%s of no request: %s", name, got)
		}
	}
}

func TestCookies(t *testing.T) {
	const rule = `rules: [{name: r, key: 'request.cookies["SESSION"]', limits: [2 per 1d]}]`
	for _, test := range []struct {
		what, file string
		header     []string
		want       string
	}{
		{"none", "", nil, ""},
		{"another", "", []string{"Cookie", "b=1"}, ""},
		{"one", "", []string{"Cookie", "b=1; SESSION=s; c"}, `r="s":0`},
		{"in quotation marks", "", []string{"Cookie", `SESSION="s"`}, `r="s":0`},
		{"escaped", "", []string{"Cookie", `SESSION=%73`}, `r="s":0`},
		{"twice", "", []string{"Cookie", "SESSION=s; SESSION=t"}, "repeated_cookie SESSION"},
		{"twice the same", "", []string{"Cookie", `SESSION=s; SESSION="%73"`}, `r="s":0`},
		{"in other case", "", []string{"Cookie", "session=s"}, "twin_cookie SESSION"},
		{"after a comma", "", []string{"Cookie", "b=1,SESSION=t; SESSION=s"}, "twin_cookie SESSION"},
		{"without a name before it", "", []string{"Cookie", "=SESSION=t"}, "twin_cookie SESSION"},
		{"octal", "", []string{"Cookie", `SESSION="\163"`}, "twin_cookie SESSION"},
		{"in two lines", "", []string{"Cookie", "SESSION=s", "Cookie", "b=1"}, "repeated_header cookie"},
		{"repeatable", "repeatable: {cookies: [SESSION]}\n", []string{"Cookie", "SESSION=s; SESSION=t"}, `r="s, t":0`},
		{"a repeatable header", "repeatable: {headers: [cookie]}\n", []string{"Cookie", "SESSION=s", "Cookie", "b=1"}, `r="s":0`},
	} {
		set, in := parse(t, test.file+rule), &rules.Input{Request: get("/", test.header...)}
		var m rules.Plan
		got, err := asked(set, in), set.Asks(in, &m)
		if bad := (*rules.AmbiguousError)(nil); errors.As(err, &bad) {
			got = bad.Is.String() + " " + bad.Name
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.what, got, test.want)
		}
		if err := allowing(set).Asks(in, &m); err != nil {
			t.Errorf("%s, allowed: %v", test.what, err)
		}
	}
}

// Looking cookies up one by one finds what the index finds that replaces it after many lookups.
func TestManyCookies(t *testing.T) {
	var before strings.Builder
	for i := range 17 {
		fmt.Fprintf(&before, `!("x%d" in request.cookies) && `, i)
	}
	r := rand.New(rand.NewPCG(40, 2))
	some := []string{"a", "A", "b", "a[]", ",a", "=a", "", "%61", "a=1", "a=1", "a=2", `b="3"`, `b="\063"`, "b=4,a=1", "c=x,b"}
	for _, name := range []string{"a", "A", "b", "c", "", "a[]", ",a"} {
		for _, file := range []string{"", "repeatable: {cookies: [a]}\n"} {
			with := func(before string) *rules.Set {
				return parse(t, fmt.Sprintf("%srules: [{name: r, match: '%s!(\"gone\" in request.cookies)', key: 'request.cookies[%q]', limits: [1 per 1m]}]", file, before, name))
			}
			alone, many := with(""), with(before.String())
			for range 500 {
				var parts []string
				for range r.IntN(5) {
					parts = append(parts, some[r.IntN(len(some))])
				}
				in := &rules.Input{Request: get("/", "Cookie", strings.Join(parts, "; "))}
				if one, all := asked(alone, in), asked(many, in); one != all {
					t.Fatalf("%q of %q with %q: %s alone, %s after many", name, parts, file, one, all)
				}
			}
		}
	}
}

// An expression that looks up many cookies does not read the whole header anew for each.
func TestManyLookupsOfCookies(t *testing.T) {
	const names, most = 10_000, 64 << 20
	set := parse(t, `rules: [{name: r, match: 'attrs.names.exists(n, request.cookies[n] == "x")', limits: [2 per 1d]}]`)
	header, looked := make([]string, names), make([]any, names)
	for i := range names {
		looked[i] = fmt.Sprintf("c%d", i)
		header[i] = fmt.Sprintf("c%d=1", i)
	}
	half := names / 2
	for what, lines := range map[string][]string{
		"one line": {"Cookie", strings.Join(header, "; ")},
		"two":      {"Cookie", strings.Join(header[:half], "; "), "Cookie", strings.Join(header[half:], "; ")},
	} {
		in, m := &rules.Input{Request: get("/", lines...), Attrs: map[string]any{"names": looked}}, rules.Plan{}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := set.Asks(in, &m)
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > most || err == nil {
			t.Errorf("%s: %d bytes, %v", what, made, err)
		}
	}
}

func TestBadCredentialSettings(t *testing.T) {
	for file, want := range map[string]string{
		"credential_headers: authorization":                     "r.yaml:1:21: want a list",
		"credential_headers: [x key]":                           `r.yaml:1:22: header "x key": want a name such as x-api-key`,
		"credential_headers: [cookie]":                          `r.yaml:1:22: header "cookie": count by a cookie, as in request.cookies.session`,
		"credential_headers: [Host]":                            `r.yaml:1:22: header "Host": it names no client`,
		"credential_headers: [a, A]":                            "r.yaml:1:25: the header a is given twice",
		"credential_headers: [a, b, c, d, e, f, g, h, i, j, k]": "r.yaml:1:21: 11 headers: at most 10",
		"repeatable: {cookies: [a b]}":                          `r.yaml:1:24: cookie "a b": want a name such as session`,
	} {
		if _, err := rules.Parse("r.yaml", []byte(file+"\nrules: []\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
}

// What a server records of requests includes the headers that a credential and cookies are in.
func TestHeadersOfCredentials(t *testing.T) {
	for key, want := range map[string]string{
		"request.credential":  "[Api-Key Authorization X-Api-Key] false",
		"request.cookies.a":   "[Cookie] false",
		"client.ip":           "[] false",
		"request.headers.a_b": "[A_b] false",
	} {
		names, others := one(t, "key: "+key).Headers()
		if got := fmt.Sprint(names, others); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
