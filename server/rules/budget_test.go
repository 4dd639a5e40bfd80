package rules_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// What one expression, and all of a file, may come to.
func TestBudgets(t *testing.T) {
	doubled := func(times int) string {
		return `("` + strings.Repeat("a", 500) + `"` + strings.Repeat(`.replace("a","aa")`, times) + `)==client.ip`
	}
	list := func(expression string, n int) string {
		return "blocklist:\n" + strings.Repeat("  - '"+expression+"'\n", n)
	}
	searched := `client.ip == "` + strings.Repeat("a", 100) + `".replace("","` + strings.Repeat("b", 500) + `").replace("b","` + strings.Repeat("c", 15) + `")`
	for _, c := range []struct{ text, want string }{
		{list(doubled(5), 1), ""},
		{list(doubled(7), 1), "constants here exceed 65536 bytes"},
		{list(searched, 1), "constants here exceed 65536 bytes"},
		{list(strings.TrimSuffix(doubled(5), "==client.ip")+`.split("").join("").split("").size()==cost`, 1), "constants here exceed 65536 bytes"},
		{list("["+strings.Repeat(`"abc".reverse(),`, 200)+`"a"] == [client.ip]`, 1), ""},
		{list(`timestamp("2026-01-01T00:00:00Z").getHours("Europe/Berlin") == cost`+strings.Repeat(`&& timestamp("2026-01-01T00:00:00Z").getHours("Europe/Berlin") == cost`, 40), 1), ""},
		{list(`("`+strings.Repeat("a", 1900)+`" == "`+strings.Repeat("a", 1900)+`") == client.ip.contains("a")`, 1), ""},
		{list(`client.ip == ""`+strings.Repeat(`+"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".replace("","bbbbbbbbbbbbbbbbbbbb")`, 45), 1), "constants here"},
		{list(doubled(5), 800), "constants in all expressions exceed 16777216 bytes"},
		{list(`client.ip.matches("(a{1000}|b{1000}|c{1000}|d{1000})")`, 1), ""},
		{list(`client.ip.matches("(a{1000}|b{1000}|c{1000}|d{1000}|e{1000}|f{1000}|g{1000}|h{1000}|i{1000}|j{1000})")`, 1), "the pattern takes more than 10000 steps"},
		{list(`client.ip.matches("(a{1000}|b{1000})")`, 300), "the patterns of all expressions take more than 500000 steps"},
		{list(`client.ip == "`+strings.Repeat("a", 1500)+`"`, 700), "all expressions together have more than 1048576 bytes"},
	} {
		_, err := rules.Parse("r.yaml", []byte(c.text))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %.300s, want %q", clip(c.text), fmt.Sprint(err), c.want)
		}
	}
}

// Compiling stops when nobody waits for it any more.
func TestParseContextStops(t *testing.T) {
	gone := errors.New("the caller has left")
	ctx, leave := context.WithCancelCause(t.Context())
	leave(gone)
	files := []rules.File{{Name: "r.yaml", Data: []byte("blocklist: ['client.ip == \"192.0.2.1\"']")}}
	if s, err := rules.ParseContext(ctx, files); !errors.Is(err, gone) || s != nil {
		t.Errorf("got %v, %v", s, err)
	}
	if _, err := rules.ParseContext(t.Context(), files); err != nil {
		t.Error(err)
	}
	s := one(t, `match: operation == "x" && client.ip == "y"`, "key: client.ip")
	if _, err := s.Explain(ctx, &rules.Input{Cost: 1}); !errors.Is(err, gone) {
		t.Errorf("to explain: got %v", err)
	}
}

// No text of a request is longer than those that expressions are judged by.
func TestLongTextsOfRequests(t *testing.T) {
	fits, long := strings.Repeat("a", expr.MaxRequestText-1), strings.Repeat("a", expr.MaxRequestText+1)
	for match, in := range map[string]func(text string) *rules.Input{
		`request.path != "/x"`:              func(text string) *rules.Input { return &rules.Input{Request: get("/" + text)} },
		`request.headers["x-a"] != "x"`:     func(text string) *rules.Input { return &rules.Input{Request: get("/", "X-A", text)} },
		`request.query.a != "x"`:            func(text string) *rules.Input { return &rules.Input{Request: &rules.Request{RawQuery: "a=" + text}} },
		`request.query["a"].contains("aa")`: func(text string) *rules.Input { return &rules.Input{Request: &rules.Request{RawQuery: "a=" + text}} },
		`operation != "x"`:                  func(text string) *rules.Input { return &rules.Input{Operation: text} },
	} {
		s := one(t, `key: '"k"'`, "match: "+quoted(match))
		if got := asked(s, in(fits)); got == "" || strings.Contains(got, "bad request") {
			t.Errorf("%s, a text that fits: got %q", match, clip(got))
		}
		const want = `rules: bad request: rule "r": match: a text of the request has more than 69632 bytes`
		if got := asked(s, in(long)); got != want {
			t.Errorf("%s, a longer text: got %q", match, clip(got))
		}
	}
}

// However many names of headers and parameters are asked for, the answers are the same.
func TestManyNames(t *testing.T) {
	var names []any
	query := ""
	header := []string{}
	for i := range 40 {
		name := fmt.Sprintf("x-%d", i)
		if i%2 == 0 {
			query += "&" + name + "=first&" + name + "=second"
			header = append(header, fmt.Sprintf("X-%d", i), "first")
		}
		names = append(names, name)
	}
	r := get("/?"+query[1:], header...)
	r.RawQuery = query
	in := &rules.Input{Request: r, Attrs: map[string]any{"names": names}}
	for _, of := range []string{"request.query", "request.headers"} {
		match := `attrs.names.filter(n, n in ` + of + ` && ` + of + `[n] == "first").size() == 20 && !("X-0" in [` + of + `][0])`
		if asked(one(t, `key: '"k"'`, "match: "+quoted(match)), in) == "" {
			t.Errorf("%s: not all were found, or more", of)
		}
	}
}

// endsAfter is a context that ends when it was asked so many times whether it has.
type endsAfter struct {
	context.Context
	left int
}

func (c *endsAfter) Err() error {
	if c.left--; c.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// Compiling may be stopped at each of its steps: it ends with the cause, and in no other way.
func TestAttackCompilingStops(t *testing.T) {
	text := []byte(`
tiers: {gold: attrs.plan == "gold"}
safelist: ['operation == "x"']
rules:
  - {name: a, match: 'operation == "a"', key: claims.sub, cost: 'size(operation)', limits: [10 per 1m lease 5%, 5 per 1h], tiers: {gold: {times: 2}}, penalty: {ban_after: 3, ban_for: 1h}}
  - {name: b, limits: [1 per 1s], message: stop}
  - {name: c, key: client.ip, penalty: {on_status: [401], ban_after: 3, ban_for: 1h}}
alerts:
  - {name: n, when: usage >= 50% of a}
  - {name: m, when: 'rate("b", "limited") > 0'}
`)
	stopped := 0
	for n := 0; ; n++ {
		set, err := rules.ParseContext(&endsAfter{t.Context(), n}, []rules.File{{Name: "r.yaml", Data: text}})
		if err == nil && set != nil {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || set != nil {
			t.Fatalf("stopped at step %d: %v", n, err)
		}
		stopped++
	}
	if stopped < 10 {
		t.Errorf("it was stopped at %d steps", stopped)
	}
}
