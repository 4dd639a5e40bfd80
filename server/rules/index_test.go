package rules_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/server/rules"
)

// conditions makes conditions at random: comparisons that an index knows, and what it does not, and some that
// fail, joined in every way.
type conditions struct{ *rand.Rand }

func (g conditions) pick(from ...string) string { return from[g.IntN(len(from))] }

func (g conditions) text() string {
	return g.pick("a", "b", "c", "A", "", "/a", "/b", "/a/b", "/A", "/a/", "/", "GET", "192.0.2.1", "é")
}

func (g conditions) field() string {
	return g.pick("request.path", "request.path", "request.method", "request.host", "request.route", "operation", "operation", "client.ip", "attrs.a", "attrs.a",
		"attrs.b.c", `attrs["d"]`, "claims.sub", "claims.sub", "claims.org.id", `request.headers["x-a"]`, `request.headers["x-a"]`, "request.query.q", "request.cookies.s", "request.credential",
		`claims["org"]["id"]`, `attrs["b"].c`, "attrs.b", "attrs.domain", "attrs.l", `request.headers["x-b"]`, "request.query.r", "claims.n")
}

func (g conditions) leaf() string {
	switch g.IntN(13) {
	case 12:
		return g.odd()
	case 0, 1, 2, 3:
		return fmt.Sprintf("%s == %q", g.field(), g.text())
	case 4:
		return fmt.Sprintf("%q == %s", g.text(), g.field())
	case 5, 6:
		return fmt.Sprintf("%s in [%q, %q]", g.field(), g.text(), g.text())
	case 7, 8:
		return fmt.Sprintf("request.path.%s(%q)", g.pick("is", "under", "startsWith", "endsWith", "contains"), g.text())
	case 9:
		return fmt.Sprintf("client.ip in cidr(%q)", g.pick("192.0.2.0/24", "192.0.2.1", "0.0.0.0/0", "2001:db8::/32", "2001:db8::/64", "64:ff9b::/96", "fe80::/10", "::/0"))
	case 10:
		return g.pick("has(attrs.a)", "has(attrs.b.c)", `"x-a" in request.headers`, `"q" in request.query`, "has(claims.sub)", "true", "false", fmt.Sprintf("%s != %q", g.field(), g.text()),
			`request.path.matches("^/a")`, `body.model == "a"`, "cost > 1")
	}
	return g.pick("int(attrs.n) > 2", `attrs.l.exists(x, x == "a")`, `attrs.l.all(a, attrs.l.all(b, a == b))`, `request.headers["x-b"].contains("a")`, `claims.n > 1`,
		`attrs.a.startsWith("a")`, `timestamp(attrs.a) < timestamp("2000-01-01T00:00:00Z")`, `request.query.r == request.query.q`)
}

// odd is what looks like a comparison that an index knows.
func (g conditions) odd() string {
	return g.pick(fmt.Sprintf("%s == %s", g.field(), g.field()), fmt.Sprintf("%s in [%q, 'b' + 'c']", g.field(), g.text()), fmt.Sprintf("attrs.a in [%q, 1, 2.5, null]", g.text()),
		fmt.Sprintf("%s in [r%q, 'b']", g.field(), g.text()), `attrs.b == {"c": "a"}`, "attrs.n == 2", "attrs.a == null", `attrs.l == ["a", "b", "a"]`, `attrs.l[0] == "a"`, "attrs.a == b'a'",
		fmt.Sprintf("%q in attrs.l", g.text()), fmt.Sprintf("%q in attrs", g.pick("a", "b", "d")), `"c" in attrs.b`, fmt.Sprintf("%s in {%q: 1}", g.field(), g.text()),
		`["a", "b"].exists(operation, operation == "b")`, `["a"].all(attrs, attrs == "a")`, fmt.Sprintf("%s in []", g.pick("attrs.a", "claims.sub")), "has(attrs.b) ? attrs.b.c == 'a' : attrs.a == 'a'",
		`request.path.folded() == "/a"`, fmt.Sprintf("attrs.a.is(%q)", g.text()), `request.path.under(request.path)`, `"/a/b".under(request.path)`, `client.ip in cidr(attrs.a)`,
		`client.ip in cidr("192.0.2.77/24")`, `client.ip in cidr("2001:db8:64::c000:200/120")`, `client.ip in cidr("::ffff:192.0.2.0/120")`, `attrs.a in cidr("192.0.2.0/24")`, `client.ip == "2001:DB8::1"`,
		`body.model in ["a", "b"]`, "body.x == body.model", "size(request.headers) > 2", "attrs.a || false", "type(attrs.a) == string", "dyn(operation) == 'a'", "string(attrs.a) == 'a'")
}

// wide is a condition with many parts, of which some may be much work.
func (g conditions) wide() string {
	n, join := 20+g.IntN(30), g.pick(" || ", " || ", " && ")
	parts := make([]string, n)
	for i := range parts {
		parts[i] = g.pick(`request.path.is("/a")`, `request.path.under("/b")`, `request.path.under("/")`, `request.headers["x-a"] in ["a", "b"]`, `attrs.a in ["b", "c"]`, `request.headers["x-a"] != "b"`,
			`attrs.a == "d"`, `operation == "c"`, `request.path == "/q"`, `request.path.startsWith("/z")`)
	}
	if g.IntN(3) == 0 {
		parts[g.IntN(n)] = g.leaf()
	}
	all := "(" + strings.Join(parts, join) + ")"
	return g.pick(all, all+` && operation == "b"`, `operation == "b" && `+all, all+` && attrs.l.exists(x, x == "a")`, all+` && attrs.d == "a" && attrs.l.all(a, attrs.l.all(b, a == b))`,
		`attrs.l.all(a, attrs.l.all(b, a == b)) && `+all)
}

func (g conditions) condition(depth int) string {
	if g.IntN(30) == 0 {
		return g.wide()
	}
	if depth == 0 || g.IntN(4) == 0 {
		return g.leaf()
	}
	part := func() string { return "(" + g.condition(depth-1) + ")" }
	switch g.IntN(8) {
	case 0, 1, 2, 3:
		return part() + " && " + part()
	case 4:
		return part() + " && " + part() + " && " + part()
	case 5, 6:
		return part() + " || " + part()
	}
	return g.pick("!"+part(), part()+" ? "+part()+" : "+part())
}

func (g conditions) file() string {
	var b strings.Builder
	for _, list := range []string{"safelist", "blocklist"} {
		if n := g.IntN(9); n > 0 {
			fmt.Fprintf(&b, "%s:\n", list)
			for range n {
				fmt.Fprintf(&b, "- %s\n", quoted("("+g.condition(g.IntN(3))+g.pick(`) && operation == "`, `) && attrs.d == "`, `) && request.path == "/`)+g.pick("a", "b", "d")+`"`))
			}
		}
	}
	b.WriteString("nat64_prefixes: [2001:db8:64::/96]\nrules:\n")
	for i := range 6 + g.IntN(30) {
		match := ""
		if g.IntN(12) > 0 {
			match = ", match: " + quoted(g.condition(g.IntN(3)))
		}
		fmt.Fprintf(&b, "- {name: r%d%s, key: %s%s}\n", i, match, quoted(g.pick(`"all"`, `"all"`, "client.ip", "claims.sub", "attrs.a", "request.path")),
			g.pick(", limits: [9 per 1h]", ", limits: [9 per 1h]", ", limits: [9 per 1h], mode: shadow", ", limits: [9 per 1h], mode: off", ", limits: [9 per 1h], default: true",
				", limits: [9 per 1h], preflights: true", ", limits: [9 per 1h hold], tokens: openai"))
	}
	return b.String()
}

// value is one of any type that attributes and claims have.
func (g conditions) value() any {
	switch g.IntN(12) {
	case 0:
		return []any{nil, true, int64(2), 2.5}[g.IntN(4)]
	case 1:
		return []any{"a", int64(1)}
	case 2:
		return map[string]any{"c": g.text(), "id": g.text()}
	case 3:
		return strings.Repeat(g.text(), []int{5000, 5000, 60_000, 1_200_000}[g.IntN(4)])
	case 4:
		type text string // Go callers may have other types than JSON's
		return []any{[]string{"a", "b"}, map[string]string{"c": "a", "id": "b"}, json.Number("2"), uint64(2), []byte("a"), text("a"), []any(nil), map[string]any(nil), time.Second}[g.IntN(9)]
	}
	return g.text()
}

func (g conditions) object(names ...string) map[string]any {
	m := map[string]any{}
	for _, name := range names {
		if g.IntN(2) == 0 {
			m[name] = g.value()
		}
	}
	if g.IntN(8) == 0 {
		m["l"] = []any{"a", "b", "a"}
	}
	if g.IntN(16) == 0 {
		m["l"] = make([]any, 400) // too much work for a loop in a loop
	}
	return m
}

func (g conditions) request() *rules.Request {
	path := g.pick("/", "/a", "/b", "/a/b", "/A", "/a/", "/a;x", "/ab", "/a/b/c", "//a", "/%61", "", "/é")
	if g.IntN(30) == 0 {
		path = "/a" + strings.Repeat("b", []int{5000, 60_000, 70_000}[g.IntN(3)])
	}
	r := get(path)
	r.Method, r.Host, r.Route = g.pick("GET", "POST", "get", "a"), g.pick("a", "b", "", "example.com"), g.pick("", "a", "b")
	r.Preflight = g.IntN(10) == 0
	r.RawQuery = g.pick("", "q=a", "q=a&q=b", "q=%61&r=a", "Q=a", "q[]=a", "r=1", "q=b&r=b")
	for _, name := range []string{"X-A", "X-A", "X_a", "X-B", "Cookie", "Authorization"} {
		if g.IntN(4) == 0 {
			r.Header.Add(name, g.pick("a", "b", " a ", "", "s=a", "s=a; s=b", "Bearer a", strings.Repeat("a", 70_000), "\xff", strings.Repeat("a", 60_000)))
		}
	}
	if g.IntN(4) == 0 {
		r.Body = &body{value: map[string]any{"model": g.text()}}
		if g.IntN(4) == 0 {
			r.Body = &body{err: rules.ErrUnreadable}
		}
	}
	return r
}

func (g conditions) input() *rules.Input {
	in := &rules.Input{Cost: int64(g.IntN(3)), Operation: g.pick("", "a", "b", "c")}
	if g.IntN(8) > 0 {
		in.Client = addr(g.pick("192.0.2.1", "192.0.3.1", "2001:db8::1", "2001:db8:64::c000:201", "64:ff9b::c000:201", "::ffff:192.0.2.1", "fe80::1%eth0"))
	}
	if g.IntN(8) > 0 {
		in.Request = g.request()
	}
	if g.IntN(8) > 0 {
		in.Attrs = g.object("a", "b", "d", "n")
	}
	if g.IntN(6) == 0 {
		in.Descriptors = &rules.Descriptors{Domain: g.pick("a", "b", "shop"), List: []rules.Descriptor{
			{Entries: []rules.Entry{{Key: g.pick("a", "d"), Value: g.text()}, {Key: "n", Value: "3"}}, Cost: 1}, {Entries: []rules.Entry{{Key: "a", Value: "a"}}, Cost: 2}}}
		if g.IntN(4) > 0 {
			in.Attrs, in.Operation = nil, ""
		}
	}
	if g.IntN(3) == 0 {
		in.Claims = g.object("sub", "org", "n")
	}
	return in
}

const ofEnvoy = `
domain: shop
descriptors:
- {key: a, value: a, rate_limit: {unit: hour, requests_per_unit: 9}}
- {key: d, rate_limit: {unit: hour, requests_per_unit: 9}}
`

// used is a Plan for all calls: nothing of one may count in the next.
var used rules.Plan

// planOf is what Asks says, and the claims that it found.
func planOf(s *rules.Set, in *rules.Input) (said string, claims map[string]any) {
	m := &used
	if err := s.Asks(in, m); err != nil {
		return err.Error(), nil // what was found before is no answer
	}
	said = fmt.Sprintf("%v %v ban %v %v %v, unread", m.List, m.Entry, m.Ban, m.BanRule, m.BanLeft)
	for _, r := range m.Unread {
		said += " " + r.Name
	}
	for i, a := range m.Asks {
		said += fmt.Sprintf("; %s %q %d", m.Rules[i].Name, a.Key, a.Cost)
	}
	for _, d := range m.Descriptors {
		said += fmt.Sprintf("; descriptor %v %d %v", d.Rule != nil, d.Ask, d.Limit)
	}
	return fmt.Sprint(said, "; spared ", len(m.Spared)), m.Claims
}

// What an index finds is what an evaluation of every rule and entry finds: asks, bans, lists and errors. It
// looks for claims only where that does.
func TestIndexIsLinear(t *testing.T) {
	files, inputs := 100, 60
	if testing.Short() {
		files = 40
	}
	g := conditions{rand.New(rand.NewPCG(attack.Seed(t), 0))}
	indexed, evaluated, of := 0, 0, 0
	for range files {
		file := g.file()
		s, err := rules.ParseFiles([]rules.File{{Name: "r.yaml", Data: []byte(file)}, {Name: "e.yaml", Envoy: true, Data: []byte(ofEnvoy)}})
		if err != nil {
			t.Fatal(err)
		}
		token := g.object("sub", "org", "n")
		s, err = s.On(&rules.Instance{Claims: func(*rules.Request) map[string]any { return token }, TokenHeader: "Authorization", Allow: rules.Ambiguity(g.IntN(2)) * rules.RepeatedHeader})
		if err != nil {
			t.Fatal(err)
		}
		if g.IntN(3) == 0 {
			c := &rules.Controls{Modes: map[string]rules.Mode{}}
			for i := range 4 {
				c.Modes[fmt.Sprint("r", i)] = rules.Mode(g.IntN(3))
				c.Bans = append(c.Bans, rules.Ban{Note: rules.Note{ID: fmt.Sprint("b", i)}, Rule: fmt.Sprint("r", i), Key: rules.Key(g.pick("all", "a"))})
			}
			s, _ = s.With(c)
		}
		indexed += max(0, s.Indexed())
		linear := s.Linear()
		for range inputs {
			in := g.input()
			got, found := planOf(s, in)
			want, claims := planOf(linear, in)
			if got != want || found != nil && claims == nil && len(token) > 0 && !strings.HasPrefix(want, "rules: ") {
				t.Fatalf("%s\nrequest %s\nof %s\nindexed: %s\nlinear:  %s", file, clip(fmt.Sprintf("%+v", in.Request)), clip(fmt.Sprintf("%+v", in)), clip(got), clip(want))
			}
			evaluated += s.Evaluated(in)
			of += len(s.Rules)
		}
	}
	t.Logf("%d rules indexed; %d %% of all evaluated", indexed, evaluated*100/of)
	if indexed < files*5 || evaluated*100/of > 75 {
		t.Error("hardly any rule is passed over")
	}
}

// Comparisons with long texts are little work, also where work is counted, so that no evaluation fails of them.
func TestIndexIsLinearForLongTexts(t *testing.T) {
	many := func(part, join string) string { return "(" + strings.Repeat(part+join, 39) + part + ")" }
	const loop = ` && attrs.l.exists(x, x == "a")` // so that the work is counted
	long := strings.Repeat("b", 60_000)
	in := &rules.Input{Request: get("/"+long, "X-A", long), Operation: "n", Attrs: map[string]any{"a": "n", "b": strings.Repeat(long, 20), "l": []any{"b"}}}
	for _, match := range []string{
		many(`request.path.is("/x%d")`, " || "), many(`request.path.under("/x%d")`, " || "), many(`request.path.under("/")`, " && ") + ` && operation == "x%d"`,
		many(`request.path in ["/x%d", "a"]`, " || ") + loop, many(`request.path.startsWith("/x%d")`, " || ") + loop, many(`request.path == "/x%d"`, " || ") + loop,
		many(`request.headers["x-a"] in ["x%d", "a"]`, " || ") + loop, many(`request.headers["x-a"] == "x%d"`, " || ") + loop,
		`attrs.b in ["p", "q"] && attrs.a == "x%d"` + loop, `attrs.a == "x%d" && attrs.b in ["p", "q"]` + loop, many(`attrs.b in ["p"]`, " || ") + ` && attrs.a == "x%d"` + loop,
	} {
		s := parse(t, fileOf(4, match))
		if s.Indexed() != 4 {
			t.Errorf("%s: %d rules are indexed", match, s.Indexed())
		}
		got, _ := planOf(s, in)
		if want, _ := planOf(s.Linear(), in); got != want {
			t.Errorf("%s\nindexed: %s\nlinear:  %s", match, clip(got), clip(want))
		}
	}
}

// Where an evaluation fails, or finds what a comparison alone would not, a rule is not passed over.
func TestIndexIsLinearWhereRulesFail(t *testing.T) {
	const work = `attrs.l.all(a, attrs.l.all(b, a == b))` // too much
	text := func(name string, v any) *rules.Input {
		return &rules.Input{Attrs: map[string]any{name: v, "l": make([]any, 400)}, Client: addr("192.0.2.1")}
	}
	garbled := text("n", 1)
	garbled.Request = get("/", "Authorization", "\xff")
	for _, c := range []struct {
		match string
		in    *rules.Input
		want  string
	}{
		{"(" + work + " || " + work + `) && attrs.n == "x%d"`, text("n", "z"), "cost limit"},
		{`(attrs.n == "y" || ` + work + `) && attrs.n == "x%d"`, text("n", "z"), "cost limit"},
		{`operation == "x%d" && int(attrs.n) != 2`, text("n", "z"), "bad request"},
		{`operation == "x%d" && attrs.n`, text("n", "z"), "bad request"},
		{`operation == "x%d" && claims.sub == "y"`, garbled, "authorization"},
		{`attrs["b\x00c"] == "x%d"`, text("b\x00c", "x2"), "; r2 "},
		{`client.ip in cidr("2001:db8:64::c000:%d00/120")`, text("n", 1), "; r2 "},
	} {
		s, err := parse(t, "nat64_prefixes: [2001:db8:64::/96]\n"+fileOf(4, c.match)).On(&rules.Instance{Claims: func(*rules.Request) map[string]any { return nil }, TokenHeader: "Authorization"})
		if err != nil {
			t.Fatal(err)
		}
		got, _ := planOf(s, c.in)
		if want, _ := planOf(s.Linear(), c.in); got != want || !strings.Contains(got, c.want) {
			t.Errorf("%s\nindexed: %s\nlinear:  %s", c.match, clip(got), clip(want))
		}
	}
}

// fileOf has n rules; match has a place for their number.
func fileOf(n int, match string) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&b, "- {name: r%d, match: %s, key: '\"all\"', limits: [9 per 1h]}\n", i, quoted(strings.ReplaceAll(match, "%d", fmt.Sprint(i))))
	}
	return b.String()
}

// A thousand rules cost what those do that may apply.
func TestIndexFindsFew(t *testing.T) {
	for _, c := range []struct{ match, header string }{
		{`operation == "o%d"`, ""}, {`attrs.x == "o%d"`, ""}, {`request.headers["x-a"] == "o%d"`, ""}, {`claims.sub == "o%d"`, ""}, {`request.host == "o%d"`, ""},
		{`request.path == "/o%d"`, ""}, {`request.path.is("/O%d/")`, ""}, {`request.path.under("/o%d")`, ""}, {`request.path.startsWith("/o%d")`, ""},
		{`request.method == "GET" && request.path == "/o%d"`, ""}, {`request.query.q == "o%d" && request.method in ["GET", "PUT"]`, ""},
		{`operation in ["o%d", "x%[1]d"]`, ""}, {`operation == "o%d" || attrs.y == "%[1]d"`, ""}, {`attrs.org.id == "o%d"`, ""}, {`claims.org.id == "o%d"`, ""}, {`client.ip in cidr("10.0.%d.0/32")`, ""}, {`client.ip == "10.0.%d.0"`, ""},
		{`request.cookies.s == "o%d"`, ""}, {`has(attrs.x) && attrs.x == "o%d"`, ""}, {`request.route == "o%d"`, ""},
	} {
		var b strings.Builder
		b.WriteString("rules:\n- {name: every, key: client.ip, limits: [9 per 1h]}\n")
		for i := range 200 {
			fmt.Fprintf(&b, "- {name: r%d, match: %s, key: '\"all\"', limits: [9 per 1h]}\n", i, quoted(fmt.Sprintf(c.match, i)))
		}
		s := parse(t, b.String())
		r := get("/o77", "X-A", "o77", "Cookie", "s=o77")
		r.Host, r.Route, r.RawQuery = "o77", "o77", "q=o77"
		in := &rules.Input{Request: r, Client: netip.MustParseAddr("10.0.77.0"), Operation: "o77", Cost: 1,
			Attrs: map[string]any{"x": "o77", "org": map[string]any{"id": "o77"}}, Claims: map[string]any{"sub": "o77", "org": map[string]any{"id": "o77"}}}
		most := 2
		if strings.Contains(c.match, "startsWith") {
			most = 3 // /o7
		}
		if n := s.Evaluated(in); n > most || n < 2 {
			t.Errorf("%s: %d are evaluated", c.match, n)
		}
		got, _ := planOf(s, in)
		if want, _ := planOf(s.Linear(), in); got != want || !strings.Contains(got, "r77 ") {
			t.Errorf("%s: %s, want %s", c.match, got, want)
		}
		bare := &rules.Input{Request: &rules.Request{Path: "/", Header: http.Header{}}, Attrs: map[string]any{}, Claims: map[string]any{}, Cost: 1}
		if n := s.Evaluated(bare); n != 1 {
			t.Errorf("%s: %d are evaluated of a request without all", c.match, n)
		}
	}
}
