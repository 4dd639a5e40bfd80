package rules_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// Of a header in two lines, and of a parameter that comes twice, servers take the
// first, the last or both: an expression that reads one is an error, whatever it is
// for, and one that does not need it is none.
func TestRepeated(t *testing.T) {
	const whole = `
tiers: {gold: 'request.headers["x-plan"] == "gold"'}
safelist: ['request.path == "/safe" && request.headers["x-inside"] == "yes"']
blocklist: ['request.path == "/safe" && request.query.bad == "yes"']
repeatable: {headers: [x-roles], parameters: [tag]}
rules:
  - name: r
    match: 'request.path != "/safe" && request.headers["x-kind"] != "no"'
    key: '[request.headers["x-api-key"], request.query.user]'
    cost: 'request.path == "/cost" ? int(request.query.n) : 1'
    limits: [5 per 1m]
    tiers: {gold: {times: 2}}
  - {name: roles, match: request.path == "/lists", key: '[request.headers["x-roles"], request.query.tag, request.headers["accept"]]', limits: [5 per 1m]}
`
	set := parse(t, whole)
	once := []string{"X-Api-Key", "k", "X-Kind", "yes", "X-Plan", "free"}
	const fine = `r="k\x00u\x00":1`
	for _, test := range []struct {
		what, target string
		more         []string
		want         string
	}{
		{"nothing twice", "/?user=u", nil, fine},
		{"the key", "/?user=u", []string{"X-Api-Key", "other"}, "repeated_header x-api-key"},
		{"match", "/?user=u", []string{"X-Kind", "no"}, "repeated_header x-kind"},
		{"a tier", "/?user=u", []string{"X-Plan", "gold"}, "repeated_header x-plan"},
		{"the safelist", "/safe?user=u", []string{"X-Inside", "yes", "X-Inside", "no"}, "repeated_header x-inside"},
		{"the blocklist", "/safe?bad=no&bad=yes", nil, "repeated_parameter bad"},
		{"the cost", "/cost?user=u&n=1&n=2", nil, "repeated_parameter n"},
		{"not needed", "/?user=u&n=1&n=2&bad=no&bad=yes", []string{"X-Inside", "yes", "X-Inside", "no"}, fine},
		{"the same value", "/?user=u", []string{"X-Api-Key", "k"}, "repeated_header x-api-key"},
		{"a parameter", "/?user=u&a=b&user=v", nil, "repeated_parameter user"},
		{"an escaped name", "/?%75ser=v&user=u", nil, "repeated_parameter user"},
		{"an empty one", "/?user&user=u", nil, "repeated_parameter user"},
		{"a list of PHP and Rails", "/?user=u&user[]=v", nil, "twin_parameter user"},
		{"a list alone", "/?user%5B%5D=v", nil, "twin_parameter user"},
		{"in capitals", "/?User=v", nil, "twin_parameter user"},
		{"after a space", "/?user=u&+user=v", nil, "twin_parameter user"},
		{"an underscore", "/?user=u", []string{"X_api_key", "other"}, "twin_header x-api-key"},
		{"another's underscore", "/?user=u", []string{"X_other", "other"}, fine},
		{"both", "/?user=u", []string{"X-Api-Key", "b", "X_api_key", "c"}, "repeated_header,twin_header x-api-key"},
		{"one line with a comma", "/?user=u", []string{"X-Unread", "a, b"}, fine},
		{"single by HTTP", "/?user=u", []string{"User-Agent", "a", "User-Agent", "b"}, "repeated_header user-agent"},
		{"lists", "/lists?user=u&tag=a&tag=b", []string{"X-Roles", "c", "X-Roles", "d", "Accept", "e", "Accept", "f"}, fine + ` roles="c, d\x00a, b\x00e, f\x00":0`},
	} {
		in := &rules.Input{Request: get(test.target, append(test.more, once...)...)}
		var m rules.Plan
		err := set.Asks(in, &m)
		got := asked(set, in)
		var bad *rules.AmbiguousError
		if errors.As(err, &bad) {
			got = bad.Is.String() + " " + bad.Name
		}
		if got != test.want || (err != nil) != errors.Is(err, stint.ErrRequest) {
			t.Errorf("%s: got %s\nwant %s", test.what, got, test.want)
		}
		if _, explained := set.Explain(t.Context(), in); (explained == nil) != (err == nil) {
			t.Errorf("%s: asked %v, explained %v", test.what, err, explained)
		}
		if err != nil && (strings.Contains(bad.Detail(), "x-api-key") || !strings.Contains(bad.Detail(), "which servers read in different ways")) {
			t.Errorf("%s: %s", test.what, bad.Detail())
		}
		if err := allowing(set).Asks(in, &m); err != nil {
			t.Errorf("%s, allowed: %v", test.what, err)
		}
	}
}

// allowing is set on an instance that allows everything that is ambiguous.
func allowing(set *rules.Set) *rules.Set {
	on, err := set.On(&rules.Instance{Allow: rules.AnyAmbiguity})
	if err != nil {
		panic(err)
	}
	return on
}

// Loops, tests and comparisons find what is ambiguous as well, and || and && go by
// what is certain.
func TestRepeatedInExpressions(t *testing.T) {
	in := &rules.Input{Operation: "x-two", Request: get("/?a=1&a=2", "X-One", "1", "X-Two", "a", "X-Two", "b")}
	for match, bad := range map[string]bool{
		`has(request.query.a)`:                                       true,
		`"x-two" in request.headers`:                                 true,
		`request.headers[operation] == "a"`:                          true,
		`request.headers.exists(n, request.headers[n] == "none")`:    true,
		`request.headers.exists(n, n == "x-one")`:                    false,
		`request.headers == request.headers`:                         true,
		`request.query == {"a": "1"}`:                                true,
		`request.query.a == "1" || request.headers["x-one"] == "1"`:  false,
		`request.query.a == "1" && request.headers["x-one"] == "2"`:  false,
		`request.headers["x-one"] == "1"`:                            false,
		`request.headers["x-gone"] == "1" || request.query.a == "1"`: true, // and not missing
	} {
		if got := asked(one(t, `key: '"k"'`, "match: "+quoted(match)), in); strings.Contains(got, "the request has") != bad {
			t.Errorf("%s: %s", match, got)
		}
	}
}

// The token that claims come from must be the one that the application takes.
func TestRepeatedToken(t *testing.T) {
	set, err := one(t, "key: claims.sub").On(&rules.Instance{TokenHeader: "X-Token", Claims: func(*rules.Request) map[string]any {
		return map[string]any{"sub": "ann"}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for want, header := range map[string][]string{
		`r="ann":0`: {"X-Token", "t"},
		"the request has a header in several lines":    {"X-Token", "t", "X-Token", "u"},
		"the request has a header under a name that s": {"X_token", "t"},
	} {
		if got := asked(set, &rules.Input{Request: get("/", header...)}); !strings.Contains(got, want) {
			t.Errorf("%v: %s", header, got)
		}
	}
}

// A rule in shadow mode that a request is malformed for refuses nothing.
func TestUnreadInShadow(t *testing.T) {
	set := parse(t, `
tiers: {t: 'int(request.query.size) > 5'}
rules:
  - {name: match, mode: shadow, match: 'int(attrs.s) > 5', key: client.ip, limits: [1 per 1m]}
  - {name: key, mode: shadow, key: 'attrs.empty', limits: [1 per 1m]}
  - {name: ip, key: '"k"', limits: [1 per 1m]}
  - {name: cost, mode: shadow, key: '"k"', cost: int(attrs.gone), limits: [1 per 1m]}
  - {name: tier, mode: shadow, key: '"k"', limits: [1 per 1m], tiers: {t: {times: 2}}}
  - {name: twice, mode: shadow, key: 'request.headers["x-two"]', limits: [1 per 1m]}
  - {name: fine, mode: shadow, key: '"s"', limits: [1 per 1m]}
`)
	in := &rules.Input{Attrs: map[string]any{"s": "x", "empty": ""}, Request: get("/?size=x", "X-Two", "a", "X-Two", "b")}
	var m rules.Plan
	for range 2 {
		if err := set.Asks(in, &m); err != nil {
			t.Fatal(err)
		}
		var unread []string
		for _, r := range m.Unread {
			unread = append(unread, r.Name)
		}
		if got := strings.Join(unread, " "); got != "match key cost tier twice" || asked(set, in) != `ip="k":0 fine="s":0` {
			t.Errorf("unread %s, asked %s", got, asked(set, in))
		}
	}
	x, err := set.Explain(t.Context(), in)
	if err != nil || len(x.Rules) != 7 || !x.Rules[2].Applies || !strings.Contains(x.Rules[1].Why, "malformed for it: ") {
		t.Errorf("%v, %+v", err, x.Rules)
	}
}

// However many rules are in shadow mode, they ask no more than a request may.
func TestManyInShadow(t *testing.T) {
	file := "rules:\n  - {name: first, key: '\"k\"', limits: [1 per 1m]}\n"
	for i := range stint.MaxAsks + 3 {
		file += "  - {name: s" + strings.Repeat("x", i%60) + "-" + string(rune('a'+i/60)) + ", mode: shadow, key: '\"k\"', limits: [1 per 1m]}\n"
	}
	file += "  - {name: last, key: '\"k\"', limits: [1 per 1m]}\n"
	var m rules.Plan
	if err := parse(t, file).Asks(&rules.Input{}, &m); err != nil || len(m.Asks) != stint.MaxAsks+2 || len(m.Unread) != 3 {
		t.Errorf("%d asks, %d unread, %v", len(m.Asks), len(m.Unread), err)
	}
}

// A header's value is what HTTP/1.1 makes of it, and one that is no UTF-8 is ambiguous.
func TestHeaderValues(t *testing.T) {
	s := parse(t, `rules: [{name: r, match: 'request.headers["x-a"] == "bad"', key: '"all"', limits: [1 per 1h]}]`)
	for value, applies := range map[string]bool{"bad": true, " bad": true, "bad\t ": true, "b ad": false, "bad\u00a0": false} {
		if got := asked(s, &rules.Input{Request: get("/", "X-A", value)}); (got != "") != applies {
			t.Errorf("%q: %s", value, got)
		}
	}
	var m rules.Plan
	var bad *rules.AmbiguousError
	if err := s.Asks(&rules.Input{Request: get("/", "X-A", "bad\xa0")}, &m); !errors.As(err, &bad) || bad.Is != rules.NotUTF8 {
		t.Error(err)
	}
	s, err := s.On(&rules.Instance{Allow: rules.NotUTF8})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Asks(&rules.Input{Request: get("/", "X-A", "bad\xa0")}, &m); err != nil {
		t.Error(err)
	}
}
