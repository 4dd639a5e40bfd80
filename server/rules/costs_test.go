package rules_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// body is a JSON body as a gateway shows it.
type body struct {
	value  any
	length int64
	media  int64 // tokens
	err    error
	twice  string // a path
}

// jsonBody is the body with a text; empty: there is none.
func jsonBody(t testing.TB, text string) *body {
	t.Helper()
	return &body{value: decoded(t, text), length: int64(len(text))}
}

func decoded(t testing.TB, text string) any {
	t.Helper()
	if text == "" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return withInts(v)
}

// withInts has an int64 or a float64 in place of each json.Number.
func withInts(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = withInts(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = withInts(v[name])
		}
	}
	return v
}

func (b *body) Prompt() rules.Prompt { return rules.Prompt{Text: b.length, Media: b.media} }

func (b *body) Field(path []string) (any, bool, error) { return b.Lookup(path) }

func (b *body) Lookup(path []string) (any, bool, error) {
	if b.err != nil {
		return nil, false, b.err
	}
	if strings.Join(path, ".") == b.twice {
		return nil, false, fmt.Errorf("%s is given twice", b.twice)
	}
	v, ok := at(b.value, path)
	return v, ok, nil
}

func (b *body) Each(path []string, f func(rules.Lookup) error) error {
	v, _, err := b.Lookup(path)
	list, _ := v.([]any)
	for _, one := range list {
		if err == nil {
			err = f((&body{value: one}).Lookup)
		}
	}
	return err
}

func at(v any, path []string) (any, bool) {
	for _, name := range path {
		object, _ := v.(map[string]any)
		inner, ok := object[name]
		if !ok {
			return nil, false
		}
		v = inner
	}
	return v, true
}

// asks is what a request asks of each limit: its terms, and the units, or "peek".
func asks(t testing.TB, s *rules.Set, in *rules.Input) string {
	t.Helper()
	var out rules.Plan
	if err := s.Asks(in, &out); err != nil {
		return err.Error()
	}
	var all []string
	for _, a := range out.Asks {
		terms, _, _ := strings.Cut(a.Limit.Terms(), " debt")
		if a.Peek {
			all = append(all, terms+": peek")
		} else {
			all = append(all, fmt.Sprintf("%s: %d", terms, a.Cost))
		}
	}
	return strings.Join(all, ", ")
}

// posted is a request with a body.
func posted(t testing.TB, text string, header ...string) *rules.Input {
	r := get("/v1/chat/completions", header...)
	r.Method, r.Body = "POST", jsonBody(t, text)
	return &rules.Input{Request: r, Client: addr("192.0.2.1"), Cost: 1}
}

// Under budgets a request holds the rule's cost; of other limits it takes one, or their own cost.
func TestCostsOfBudgets(t *testing.T) {
	const limits = `[60 per 1m, 1000 per 1m fixed_window hold, 4 in_flight, {amount: 90, period: 1h, cost: 'request.path == "/big" ? 3 : 2'}]`
	for _, c := range []struct{ fields, body, want string }{
		{"cost: body.n", `{"n": 7}`, "60 per 1m: 1, 1000 per 1m fixed_window hold: 7, 4 in_flight: 1, 90 per 1h: 2"},
		{"cost: body.n", `{"n": 7.2}`, "60 per 1m: 1, 1000 per 1m fixed_window hold: 8, 4 in_flight: 1, 90 per 1h: 2"},
		{"cost: 0", ``, "60 per 1m: 1, 1000 per 1m fixed_window hold: peek, 4 in_flight: 1, 90 per 1h: 2"},
		{"cost: 5000", ``, "60 per 1m: 1, 1000 per 1m fixed_window hold: 1000, 4 in_flight: 1, 90 per 1h: 2"},
		{"{cost: 5000, max_hold: 50%}", ``, "60 per 1m: 1, 1000 per 1m fixed_window hold: 500, 4 in_flight: 1, 90 per 1h: 2"},
		// What the client asks for itself is refused for good if it never fits, and else capped too.
		{"cost: body.n", `{"n": 5000}`, "60 per 1m: 1, 1000 per 1m fixed_window hold: 5000, 4 in_flight: 1, 90 per 1h: 2"},
		{"{cost: body.n, max_hold: 50%}", `{"n": 1000}`, "60 per 1m: 1, 1000 per 1m fixed_window hold: 500, 4 in_flight: 1, 90 per 1h: 2"},
		{"{cost: body.n, max_hold: 50%}", `{"n": 1001}`, "60 per 1m: 1, 1000 per 1m fixed_window hold: 1001, 4 in_flight: 1, 90 per 1h: 2"},
		{"{}", ``, "60 per 1m: 1, 1000 per 1m fixed_window hold: 1, 4 in_flight: 1, 90 per 1h: 2"},
	} {
		fields := c.fields
		if !strings.HasPrefix(fields, "{") {
			fields = "{" + fields + "}"
		}
		fields = strings.TrimSuffix(fields, "}")
		if fields != "{" {
			fields += ", "
		}
		s := parse(t, "rules:\n  - "+fields+"name: r, key: client.ip, limits: "+limits+"}\n")
		if got := asks(t, s, posted(t, c.body)); got != c.want {
			t.Errorf("%s, body %s: got %s\nwant %s", c.fields, c.body, got, c.want)
		}
	}
}

// Without a budget the cost is that of all limits but in-flight ones, and so is the caller's if the
// rule says none.
func TestCostsWithoutBudgets(t *testing.T) {
	s := parse(t, `rules: [{name: r, key: client.ip, cost: 5, limits: [60 per 1m, 4 in_flight, {amount: 9, period: 1h, cost: 2}]}]`)
	if got, want := asks(t, s, posted(t, "")), "60 per 1m: 5, 4 in_flight: 1, 9 per 1h: 2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s = parse(t, `rules: [{name: r, key: client.ip, limits: [60 per 1m, 4 in_flight, 100 per 1m fixed_window hold, {amount: 9, period: 1h, cost: 2}]}]`)
	in := posted(t, "")
	in.Cost = 0 // takes nothing
	if got, want := asks(t, s, in), "60 per 1m: peek, 4 in_flight: 1, 100 per 1m fixed_window hold: peek, 9 per 1h: peek"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	in.Cost = 30
	if got, want := asks(t, s, in), "60 per 1m: 30, 4 in_flight: 1, 100 per 1m fixed_window hold: 30, 9 per 1h: 2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s = parse(t, `rules: [{name: r, key: client.ip, cost: cost, limits: [60 per 1m, 4 in_flight, 100 per 1m fixed_window hold]}]`)
	if got, want := asks(t, s, in), "60 per 1m: 1, 4 in_flight: 1, 100 per 1m fixed_window hold: 30"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Tiers and overrides have the costs of the rule's limits, and its debt, and stay held.
func TestCostsOfTiersAndOverrides(t *testing.T) {
	s := parse(t, `
tiers: {gold: attrs.plan == "gold", free: attrs.plan == "free", own: attrs.plan == "own", other: attrs.plan == "other"}
rules:
  - name: r
    key: client.ip
    cost: 40
    debt: 50%
    limits: [1000 per 1m fixed_window hold 5s retry 3s, {amount: 90, period: 1h, cost: 2}]
    tiers:
      gold: {times: 2}
      free: {limits: [10 per 1m fixed_window hold, 9 per 1h, 60 per 1s]}
      own: {limits: [{algorithm: fixed_window, amount: 20, period: 1m, hold: true, debt: 3}, {amount: 70, period: 2h, cost: 5}, {amount: 8, period: 1h, cost: 4}]}`)
	overridden := with(t, s, `{"overrides":[
		{"id":"1","rule":"r","tier":"other","limits":["500 per 1m fixed_window","5 per 1h", "1 in_flight"]},
		{"id":"2","rule":"r","key":"192.0.2.9","limits":["600 per 1m fixed_window hold debt 1"]}]}`)
	for _, c := range []struct {
		s                  *rules.Set
		plan, client, want string
		debt               int64
	}{
		{s, "", "192.0.2.1", "1000 per 1m fixed_window hold 5s retry 3s: 40, 90 per 1h: 2", 500},
		{s, "gold", "192.0.2.1", "2000 per 1m fixed_window hold 5s retry 3s: 40, 180 per 1h: 2", 1000},
		{s, "free", "192.0.2.1", "10 per 1m fixed_window hold: 10, 9 per 1h: 2, 60 per 1s: 1", 5},
		{s, "own", "192.0.2.1", "20 per 1m fixed_window hold: 20, 70 per 2h: 5, 8 per 1h: 4", 3},
		{overridden, "other", "192.0.2.1", "500 per 1m fixed_window hold 5s retry 3s: 40, 5 per 1h: 2, 1 in_flight: 1", 250},
		{overridden, "gold", "192.0.2.9", "600 per 1m fixed_window hold: 40", 1},
	} {
		in := &rules.Input{Client: addr(c.client), Cost: 1, Attrs: map[string]any{"plan": c.plan}}
		if got := asks(t, c.s, in); got != c.want {
			t.Errorf("%s, plan %q: got %s\nwant %s", c.client, c.plan, got, c.want)
		}
		var out rules.Plan
		if err := c.s.Asks(in, &out); err != nil {
			t.Fatal(err)
		}
		if debt := out.Asks[0].Limit.Spec().Debt; debt != c.debt {
			t.Errorf("%s, plan %q: debt %d, want %d", c.client, c.plan, debt, c.debt)
		}
	}
	if _, problems := s.With(&rules.Controls{Overrides: []rules.Override{{Note: rules.Note{ID: "1"}, Rule: "r", Tier: "gold", Limits: []string{"9 per 1h fixed_window", "9 per 1h hold"}}}}); len(problems) != 1 ||
		!strings.Contains(problems[0].Text, "is not held, and both share a count") {
		t.Errorf("a hold where the rule has none: %v", problems)
	}
}

// An override may add an in-flight limit to a rule that holds nothing.
func TestSetHolds(t *testing.T) {
	plain := `rules: [{name: r, key: client.ip, limits: [5 per 1m], tiers: {gold: {limits: [LIMIT]}}}, {name: q, key: client.ip, mode: MODE, limits: [9 per 1m, 4 in_flight]}]` + "\ntiers: {gold: attrs.a == 1}"
	set := func(limit, mode string) *rules.Set {
		return parse(t, strings.NewReplacer("LIMIT", limit, "MODE", mode).Replace(plain))
	}
	for _, c := range []struct {
		s    *rules.Set
		want bool
	}{
		{set("9 per 1s", "off"), false},
		{set("9 per 1s", "shadow"), true},
		{set("9 per 1s hold", "off"), true},
		{with(t, set("9 per 1s", "off"), `{"modes":{"q":"enforce"}}`), true},
		{with(t, set("9 per 1s", "enforce"), `{"modes":{"q":"off"}}`), false},
		{with(t, set("9 per 1s", "off"), `{"overrides":[{"id":"1","rule":"r","key":"192.0.2.9","limits":["1 in_flight"]}]}`), true},
	} {
		if c.s.Holds() != c.want {
			t.Errorf("Holds is %t: %s", c.s.Holds(), describe(c.s))
		}
	}
}

func TestSetReadsBody(t *testing.T) {
	for file, want := range map[string]bool{
		`rules: [{name: r, limits: [5 per 1m]}]`:                                                                                      false,
		`rules: [{name: r, key: body.user, limits: [5 per 1m]}]`:                                                                      true,
		`rules: [{name: r, match: body.model == "large", limits: [5 per 1m]}]`:                                                        true,
		`rules: [{name: r, mode: off, cost: body.n, limits: [5 per 1m]}]`:                                                             false,
		`rules: [{name: r, limits: [{amount: 5, period: 1m, cost: body.n}]}]`:                                                         true,
		`blocklist: [body.model == "evil"]`:                                                                                           true,
		"tiers: {t: body.a == 1}\nrules: [{name: r, limits: [5 per 1m]}]":                                                             false,
		"tiers: {t: body.a == 1}\nrules: [{name: r, limits: [5 per 1m], tiers: {t: {times: 2}}}]":                                     true,
		`rules: [{name: r, tokens: anthropic, limits: [5 per 1m fixed_window hold]}]`:                                                 true,
		`rules: [{name: r, tokens: anthropic, cost: 5, limits: [5 per 1m fixed_window hold]}]`:                                        true,
		`rules: [{name: r, tokens: openai, cost: 5, limits: [5 per 1m fixed_window hold]}]`:                                           true,
		`rules: [{name: r, tokens: {api: openai, include_usage: false}, cost: 5, limits: [5 per 1m fixed_window hold]}]`:              false,
		`rules: [{name: r, tokens: {api: openai, include_usage: false}, mode: off, limits: [5 per 1m fixed_window hold]}]`:            false,
		`rules: [{name: r, tokens: {api: openai, include_usage: false}, cost_after: 5, limits: [5 per 1m fixed_window hold]}]`:        true,
		`rules: [{name: r, cost_after: response.json.usage.n, limits: [5 per 1m fixed_window hold]}]`:                                 false,
		"rules: [{name: r, limits: [5 per 1m]}]\nsafelist: ['request.headers[\"content-type\"] == \"a\" && body.user.name == \"b\"']": true,
	} {
		if got := parse(t, file).ReadsBody(); got != want {
			t.Errorf("ReadsBody is %t: %s", got, file)
		}
	}
}

// What a body lacks is missing; what cannot be read is an error, so that no rule is passed by.
func TestBodies(t *testing.T) {
	s := parse(t, `rules: [{name: r, match: body.model == "large", key: body.user.name, cost: 'has(body.n) ? body.n : 2', limits: [5 per 1m]}]`)
	for _, c := range []struct{ body, want string }{
		{`{"model": "large", "user": {"name": "ann"}}`, `r="ann":2`},
		{`{"model": "large", "user": {"name": "ann"}, "n": 3}`, `r="ann":3`},
		{`{"model": "large", "user": {"name": null}}`, ``},
		{`{"model": "large", "user": "ann"}`, ``},
		{`{"model": "small", "user": {"name": "ann"}}`, ``},
		{`{"user": {"name": "ann"}}`, ``},
		{`[1, 2]`, ``},
		{``, ``},
		{`{"model": "large", "user": {"name": "ann"}, "n": null}`, `rules: bad request: rule "r": cost: it reads a value that is missing; test for it with has()`},
		{`{"model": "large", "user": {"name": "ann"}, "n": "3"}`, `rules: bad request: rule "r": cost: want a number, have a string`},
		{`{"model": "large", "user": {"name": "ann"}, "n": -3}`, `rules: bad request: rule "r": cost: -3: must not be negative`},
		{`{"model": "large", "user": {"name": "ann"}, "n": 1e300}`, `rules: bad request: rule "r": cost: 1e+300: too large`},
	} {
		if got := asked(s, posted(t, c.body)); got != c.want {
			t.Errorf("%s: got %s\nwant %s", c.body, got, c.want)
		}
	}
	in := posted(t, "")
	in.Request.Body = nil // not known
	if got := asked(s, in); got != "" {
		t.Errorf("no body: got %s", got)
	}

	// Where the body is not known, a cost sees no fields, or the caller says it.
	s = parse(t, `rules: [{name: r, key: client.ip, cost: 'has(body.n) ? body.n : 2', limits: [5 per 1m]}, {name: s, key: client.ip, match: 'operation != "" || !has(body.n)', cost: 'body.n', limits: [{amount: 5, period: 1m, cost: 'has(body.n) ? body.n : 3'}]}]`)
	if got := asked(s, &rules.Input{Client: addr("192.0.2.1"), Request: get("/"), Cost: 1}); got != `r="192.0.2.1":2` {
		t.Errorf("cost of a body that is not known: got %s", got)
	}
	if got := asked(s, &rules.Input{Client: addr("192.0.2.1"), Operation: "x", Cost: 7}); got != `r="192.0.2.1":7 s="192.0.2.1":3` {
		t.Errorf("cost of a body that is not known, said by the caller: got %s", got)
	}
	if got, want := asked(s, &rules.Input{Client: addr("192.0.2.1"), Operation: "x", Cost: 1}), `rules: bad request: rule "s": cost: it reads the request's body, which only the gateway knows: test the field with has(), or let the check say its cost`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}

	s = parse(t, `rules: [{name: r, key: client.ip, cost: 'has(body.n) ? body.n : 2', limits: [50 per 1m fixed_window hold]}]`)
	for cost, want := range map[int64]string{1: "2 by has(body.n) ? body.n : 2", 7: "7 by "} {
		why, err := s.Explain(t.Context(), &rules.Input{Client: addr("192.0.2.1"), Request: get("/"), Cost: cost})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(why.Rules[0].Cost, " by ", why.Rules[0].CostBy); got != want {
			t.Errorf("cost %d: explained as %s, want %s", cost, got, want)
		}
	}

	s = parse(t, `rules: [{name: r, match: body.model == "large", key: client.ip, limits: [5 per 1m]}]`)
	in.Request.Body = &body{length: -1, err: errors.New("the body has more than 1048576 bytes")}
	if got, want := asked(s, in), `rules: bad request: rule "r": match: the body has more than 1048576 bytes`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// A name that comes twice in a body is found at any depth.
func TestNamesTwiceInBodies(t *testing.T) {
	in := posted(t, `{"user": {"id": {"n": 5}}, "other": 1}`)
	for expression, want := range map[string]string{
		`body.user.id.n`:                                `r="5":1`,
		`body["user"]["id"]["n"]`:                       `r="5":1`,
		`size(body.user.id) + body.other`:               `r="2":1`,
		`has(body.user.id.x) ? 1 : 2`:                   `r="2":1`,
		`"n" in body.user.id ? 1 : 2`:                   `r="1":1`,
		`body.user.id == {"n": 5} ? 1 : 2`:              `r="1":1`,
		`body.user.exists(k, k == "id") ? 1 : 2`:        `r="1":1`,
		`body.user.all(k, body.user[k].n == 5) ? 1 : 2`: `r="1":1`,
	} {
		s := one(t, "key: "+quoted(expression))
		in.Request.Body.(*body).twice = ""
		if got := asked(s, in); got != want {
			t.Errorf("%s: got %s, want %s", expression, got, want)
		}
	}
	in.Request.Body.(*body).twice = "user.id.n"
	for _, expression := range []string{`body.user.id.n`, `has(body.user.id.n) ? 1 : 2`, `"n" in body.user.id ? 1 : 2`, `body.user.all(k, body.user[k].n == 5) ? 1 : 2`} {
		if got, want := asked(one(t, "key: "+quoted(expression)), in), `rules: bad request: rule "r": key: user.id.n is given twice`; got != want {
			t.Errorf("%s: got %s, want %s", expression, got, want)
		}
	}
}

// A client cannot make an expression read its body again and again.
func TestManyFieldsOfBodies(t *testing.T) {
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintf(&text, `"%d": {"n": 1},`, i)
	}
	in := posted(t, `{"o": {`+strings.TrimSuffix(text.String(), ",")+`}}`)
	for expression, want := range map[string]string{
		`body.o.all(k, k in body.o) ? 1 : 2`:  `rules: bad request: rule "r": key: expressions read more than 100 fields of the body`,
		`body.o.all(k, k != "x") ? 1 : 2`:     `r="1":1`,
		`body.o == body.o ? size(body.o) : 2`: `r="200":1`,
	} {
		if got := asked(one(t, "key: "+quoted(expression)), in); got != want {
			t.Errorf("%s: got %s, want %s", expression, got, want)
		}
	}
}

// The unit is that of the rule's cost.
func TestUnits(t *testing.T) {
	s := parse(t, `
rules:
  - {name: budget, key: client.ip, tokens: openai, limits: [200 per 1m fixed_window hold, 60 per 1m, 4 in_flight, {amount: 9, period: 1h, cost: 2}], tiers: {gold: {times: 2}}}
  - {name: plain, key: client.ip, unit: bytes, cost: 10, limits: [200 per 1m fixed_window, 4 in_flight]}
  - {name: none, key: client.ip, limits: [200 per 1m fixed_window]}
tiers: {gold: attrs.a == 1}`)
	var got []string
	for _, r := range s.Rules {
		for _, l := range r.AllLimits("k") {
			got = append(got, r.UnitOf(l))
		}
	}
	want := []string{"tokens", "requests", "requests", "", "tokens", "requests", "requests", "", "bytes", "requests", ""}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// What Explain says is asked is what Asks asks.
func TestExplainedCosts(t *testing.T) {
	s := parse(t, `rules: [{name: r, key: client.ip, cost: 5000, max_hold: 10%, limits: [60 per 1m, 1000 per 1m fixed_window hold, 4 in_flight]}]`)
	x, err := s.Explain(t.Context(), posted(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	var out rules.Plan
	if err := s.Asks(posted(t, ""), &out); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(x.Rules[0].Asks), fmt.Sprint(out.Asks); got != want || x.Rules[0].Asks[1].Cost != 100 {
		t.Errorf("Explain asks %s\nAsks asks %s", got, want)
	}
}

// What was spent already is taken as it is: it is no estimate, and not capped.
func TestSpent(t *testing.T) {
	s := parse(t, `rules: [{name: r, key: client.ip, tokens: openai, max_hold: 10%, limits: [60 per 1m, 1000 per 1m fixed_window hold, 4 in_flight]}]`)
	in := &rules.Input{Client: addr("192.0.2.1"), Cost: 700}
	if got, want := asks(t, s, in), "60 per 1m: 1, 1000 per 1m fixed_window hold: 100, 4 in_flight: 1"; got != want {
		t.Errorf("an estimate: got %s, want %s", got, want)
	}
	for cost, want := range map[int64]string{700: "700", 1: "1", 0: "peek", 5000: "5000"} {
		in.Spent, in.Cost = true, cost
		if got, want := asks(t, s, in), "60 per 1m: 1, 1000 per 1m fixed_window hold: "+want+", 4 in_flight: 1"; got != want {
			t.Errorf("spent: got %s, want %s", got, want)
		}
	}
}

// A field that has the wrong kind of time names the right one.
func TestTimesOfLimits(t *testing.T) {
	for fields, want := range map[string]string{
		`per: 1m`:                           `per "1m": must be day, week, month or year; for other times write period: 1m`,
		`per: daily`:                        `"daily": must be day, week, month or year`,
		`per: day, hold: yes`:               `hold "yes": must be true, or a time such as 500ms, 30s or 5m`,
		`algorithm: in_flight, hold: 0s`:    `hold "0s": must be true, or a time such as 500ms, 30s or 5m`,
		`per: day, hold: true, debt: a lot`: `debt "a lot": must be a number of units, or a share`,
	} {
		_, err := rules.Parse("r.yaml", []byte("rules: [{name: r, key: client.ip, limits: [{amount: 5, "+fields+"}]}]"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v\nwant %s", fields, err, want)
		}
	}
}

// Rules that read an unreadable body in different ways share no key.
func TestSharedKeyOfUnreadableBody(t *testing.T) {
	const lenient, strict = "{name: a, key: body.user, limits: [5 per 1m], unreadable_body: default}", "{name: b, key: body.user, limits: [5 per 1m]}"
	for _, file := range []string{"rules: [" + lenient + ", " + strict + "]", "rules: [" + strict + ", " + lenient + "]"} {
		in := posted(t, "")
		in.Request.Body = &body{length: 1, err: rules.ErrUnreadable}
		if got := asked(parse(t, file), in); !strings.HasPrefix(got, `rules: bad request: rule "b": key: `) {
			t.Errorf("%s: %s", file, got)
		}
	}
}
