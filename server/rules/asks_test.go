package rules_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/rules"
)

func parse(t testing.TB, file string) *rules.Set {
	t.Helper()
	s, err := rules.Parse("r.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// one is a set of one rule with the given fields besides its name and limit.
func one(t testing.TB, fields ...string) *rules.Set {
	t.Helper()
	return parse(t, "rules:\n  - name: r\n    limits: [5 per 1m]\n    "+strings.Join(fields, "\n    ")+"\n")
}

// quoted is text as a single-quoted scalar.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// asked tells what Asks finds: the list, or each ask as rule=key:cost, or the
// error.
func asked(s *rules.Set, in *rules.Input) string {
	var out rules.Plan
	if err := s.Asks(in, &out); err != nil {
		if !errors.Is(err, stint.ErrRequest) {
			return "NOT ErrRequest: " + err.Error()
		}
		if len(out.Asks)+len(out.Rules) > 0 || out.List != rules.Unlisted {
			return "LEFT after an error: " + err.Error()
		}
		return err.Error()
	}
	if out.List != rules.Unlisted {
		return out.List.String()
	}
	var b strings.Builder
	for i, a := range out.Asks {
		fmt.Fprintf(&b, "%s=%q:%d ", out.Rules[i].Name, a.Key, a.Units())
	}
	return strings.TrimSpace(b.String())
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func get(path string, header ...string) *rules.Request {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	path, query, _ := strings.Cut(path, "?")
	return &rules.Request{Method: "GET", Path: path, Host: "example.com", Header: h, RawQuery: query}
}

func TestOrder(t *testing.T) {
	const file = `
safelist: ['client.ip in cidr("192.0.2.0/24")', 'attrs.vip == true']
blocklist: ['client.ip in cidr("192.0.0.0/16")', 'request.headers["user-agent"].contains("badbot")']
rules:
  - {name: all, key: '"all"', limits: [5 per 1m, 5 per 1h]}
  - {name: off, key: '"all"', limits: [5 per 1m], mode: off}
  - {name: shadow, key: client.ip, limits: [5 per 1m], mode: shadow}
  - {name: gone, match: request.path == "/gone", key: client.ip, limits: [5 per 1m]}
  - {name: path, match: request.path == "/a", key: request.path, cost: 2, limits: [5 per 1m]}
`
	s := parse(t, file)
	for _, c := range []struct {
		what string
		in   rules.Input
		want string
	}{
		{"everything that matches applies, in the file's order, an ask for each limit",
			rules.Input{Client: addr("203.0.113.1"), Request: get("/a"), Cost: 1},
			`all="all":1 all="all":1 shadow="203.0.113.1":1 path="/a":2`},
		{"the safelist goes before the blocklist",
			rules.Input{Client: addr("192.0.2.9"), Request: get("/a", "User-Agent", "badbot"), Cost: 1}, "safe"},
		{"any entry will do", rules.Input{Attrs: map[string]any{"vip": true}}, "safe"},
		{"the blocklist goes before the rules", rules.Input{Client: addr("192.0.3.9")}, "blocked"},
		{"its second entry", rules.Input{Request: get("/a", "User-Agent", "x badbot/1")}, "blocked"},
		{"nothing is known: only what needs nothing applies", rules.Input{Cost: 3}, `all="all":3 all="all":3`},
		{"a cost of 0 asks without taking", rules.Input{}, `all="all":0 all="all":0`},
		{"a negative cost is malformed", rules.Input{Cost: -1}, "rules: bad request: cost -1: must not be negative"},
	} {
		if got := asked(s, &c.in); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.what, got, c.want)
		}
	}
	off := parse(t, "enabled: false"+file)
	if got := asked(off, &rules.Input{Client: addr("192.0.2.9"), Cost: -1}); got != "" {
		t.Errorf("switched off: got %s", got)
	}
}

func TestAsksCarryLimitAndPenalty(t *testing.T) {
	s := one(t, "key: client.ip", "penalty: {warn_after: 3}")
	var out rules.Plan
	if err := s.Asks(&rules.Input{Client: addr("192.0.2.1"), Cost: 2}, &out); err != nil {
		t.Fatal(err)
	}
	r := s.Rules[0]
	want := stint.Ask{Key: "192.0.2.1", Limit: r.Limits[0], Cost: 2, Penalty: r.Penalty}
	if len(out.Asks) != 1 || out.Asks[0] != want || out.Rules[0] != r {
		t.Errorf("got %+v, want %+v", out.Asks, want)
	}
	if r.Limits[0].Spec().Name != "r" || r.Penalty.Spec().Name != "r" {
		t.Errorf("limit %q and penalty %q must have the rule's name", r.Limits[0].Spec().Name, r.Penalty.Spec().Name)
	}
	if err := stint.Internal(friend.Of{}).Check(&stint.Request{Asks: out.Asks}); err != nil {
		t.Error(err)
	}
}

func TestMatchesAreReset(t *testing.T) {
	s := parse(t, `
safelist: [attrs.safe == true]
rules: [{name: r, key: client.ip, limits: [5 per 1m, 5 per 1h]}]`)
	var out rules.Plan
	for _, c := range []struct {
		in   rules.Input
		list rules.List
		asks int
	}{
		{rules.Input{Client: addr("192.0.2.1")}, rules.Unlisted, 2},
		{rules.Input{Attrs: map[string]any{"safe": true}}, rules.Safe, 0},
		{rules.Input{Client: addr("192.0.2.2")}, rules.Unlisted, 2},
		{rules.Input{}, rules.Unlisted, 0},
	} {
		if err := s.Asks(&c.in, &out); err != nil {
			t.Fatal(err)
		}
		if out.List != c.list || len(out.Asks) != c.asks || len(out.Rules) != c.asks {
			t.Errorf("%+v: list %s, %d asks, %d rules", c.in, out.List, len(out.Asks), len(out.Rules))
		}
	}
}

func TestBounds(t *testing.T) {
	var many strings.Builder
	many.WriteString("rules:\n")
	for i := range rules.MaxRules + 1 {
		fmt.Fprintf(&many, "- {name: r%d, key: '\"k\"', limits: [1 per 1s]}\n", i)
	}
	_, err := rules.Parse("r.yaml", []byte(many.String()))
	if want := "r.yaml:2:1: 10001 rules: at most 10000"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	var limits []string
	for i := range rules.MaxLimits + 1 {
		limits = append(limits, fmt.Sprintf("1 per %ds", i+1))
	}
	file := "rules: [{name: r, key: client.ip, limits: [%s]}]"
	parse(t, fmt.Sprintf(file, strings.Join(limits[1:], ", ")))
	_, err = rules.Parse("r.yaml", []byte(fmt.Sprintf(file, strings.Join(limits, ", "))))
	if want := "r.yaml:1:43: 65 limits: at most 64"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, list := range []string{"safelist", "blocklist", "trusted_proxies"} {
		_, err = rules.Parse("r.yaml", []byte(list+": ["+strings.Repeat("x, ", rules.MaxListed)+"x]"))
		if err == nil || !strings.Contains(err.Error(), "at most 1000") {
			t.Errorf("%s: got %v", list, err)
		}
	}
}

// The texts of modes and the like are read back.
func TestNames(t *testing.T) {
	for _, m := range []rules.Mode{rules.Enforce, rules.Shadow, rules.Off} {
		if got, err := rules.ParseMode(m.String()); got != m || err != nil {
			t.Errorf("%s: got %s, %v", m, got, err)
		}
	}
	got := []string{rules.Unlisted.String(), rules.Safe.String(), rules.Blocked.String(), rules.List(9).String(), rules.Mode(9).String()}
	if want := []string{"unlisted", "safe", "blocked", "unknown(9)", "unknown(9)"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// AsksContext evaluates no rule after its context has ended, also in shadow mode, whose errors do
// not count. A Plan that was stopped can be used again.
func TestAsksContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller is gone")
	asked := 0
	set, err := parse(t, `rules:
  - {name: a, match: 'has(claims.a)', mode: shadow, key: client.ip, limits: [1 per 1s]}
  - {name: b, match: 'has(claims.b)', mode: shadow, key: client.ip, limits: [1 per 1s]}
  - {name: c, key: '"c"', limits: [1 per 1s]}
`).On(&rules.Instance{Claims: func(*rules.Request) map[string]any {
		asked++
		cancel(gone)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	in := &rules.Input{Request: get("/")}
	var m rules.Plan
	if err := set.AsksContext(ctx, in, &m); err != gone || asked != 1 || len(m.Asks) > 0 {
		t.Errorf("%v, %d rules evaluated, %d asks", err, asked, len(m.Asks))
	}
	if err := set.Asks(in, &m); err != nil || len(m.Asks) != 1 {
		t.Errorf("afterwards: %v, %d asks", err, len(m.Asks))
	}
}
