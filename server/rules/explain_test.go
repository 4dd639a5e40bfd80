package rules_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/rules"
)

// explained is what Explain says, a line for each step.
func explained(s *rules.Set, in *rules.Input) string {
	x, err := s.Explain(context.Background(), in)
	var b strings.Builder
	if !x.Enabled {
		b.WriteString("not enabled\n")
	}
	if x.List != rules.Unlisted {
		fmt.Fprintf(&b, "%s: %s\n", x.List, x.Entry)
	}
	if x.Ban != nil {
		fmt.Fprintf(&b, "ban %s\n", x.Ban.ID)
	}
	for _, r := range x.Rules {
		fmt.Fprintf(&b, "%s: %t: %s", r.Rule.Name, r.Applies, r.Why)
		if r.Applies {
			fmt.Fprintf(&b, "; key %s, cost %d", r.Key, r.Cost)
		}
		if r.Tier != "" {
			fmt.Fprintf(&b, ", tier %s", r.Tier)
		}
		if r.Override != nil {
			fmt.Fprintf(&b, ", override %s", r.Override.ID)
		}
		for _, a := range r.Asks {
			fmt.Fprintf(&b, ", %s", a.Limit.Terms())
		}
		b.WriteByte('\n')
	}
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	s := parse(t, `
safelist: ['client.ip in cidr("192.0.2.0/24")', 'attrs.vip == true && operation != "x"']
blocklist: ['request.headers["user-agent"].contains("badbot")']
tiers: {gold: attrs.plan == "gold"}
rules:
  - {name: all, key: client.ip, limits: [5 per 1m], tiers: {gold: {times: 2}}}
  - {name: never, key: '"x"', limits: [5 per 1m], mode: off}
  - {name: login, match: request.path == "/login", key: client.ip, limits: [5 per 1m], mode: shadow}
  - {name: post, match: 'request.method == "POST" && request.path.startsWith("/v1/")', key: client.ip, limits: [5 per 1m]}
  - {name: roles, match: 'size(attrs.roles) > 0 && attrs.roles.exists(r, r == "admin")', key: client.ip, limits: [5 per 1m]}
  - {name: user, key: '[client.ip, request.headers["x-user"]]', limits: [5 per 1m], cost: 'int(attrs.size)'}
  - {name: op, match: operation == "x", key: operation, limits: [5 per 1m]}
`)
	whole := rules.Input{Client: addr("203.0.113.1"), Cost: 1, Request: get("/login"),
		Attrs: map[string]any{"plan": "gold", "roles": []any{"user"}, "user": nil}}
	for _, c := range []struct {
		what, controls string
		in             rules.Input
		want           string
	}{
		{"rule by rule", `{}`, whole, `
all: true: it has no match, so every request with a key counts; key 203.0.113.1, cost 1, tier gold, 10 per 1m
never: false: mode off
login: true: match is true: request.path == "/login"; mode shadow, so it refuses nothing; key 203.0.113.1, cost 1, 5 per 1m
post: false: match is false, because this part of it is: request.method == "POST"
roles: false: match is false, because this part of it is: attrs.roles.exists(r, r == "admin")
user: false: key needs request.headers["x-user"], which is missing
op: false: match needs operation, which this request does not have
`},
		{"nothing is known", `{}`, rules.Input{}, `
all: false: key needs client.ip, which is not known of this request
never: false: mode off
login: false: match needs request.path, which this request does not have
post: false: match needs request.method and request.path, which this request does not have
roles: false: match needs attrs.roles, which is missing
user: false: key needs client.ip and request.headers, which this request does not have
op: false: match needs operation, which this request does not have
`},
		{"controls", `{"modes":{"all":"off","post":"shadow"},"overrides":[{"id":"o1","rule":"login","key":"203.0.113.1","times":4}],"bans":[{"id":"b1","rule":"login","key":"203.0.113.1"}]}`, whole, `
all: false: mode off, set at run time (the file says enforce)
never: false: mode off
login: true: match is true: request.path == "/login"; mode shadow, so it refuses nothing, nor does ban "b1" of this key; key 203.0.113.1, cost 1, override o1, 20 per 1m
post: false: match is false, because this part of it is: request.method == "POST"
roles: false: match is false, because this part of it is: attrs.roles.exists(r, r == "admin")
user: false: key needs request.headers["x-user"], which is missing
op: false: match needs operation, which this request does not have
`},
		{"off", `{"enabled":false}`, whole, "\nnot enabled\n"},
		{"the file's safelist", `{}`, rules.Input{Client: addr("192.0.2.7")}, "\nsafe: safelist entry 1: client.ip in cidr(\"192.0.2.0/24\")\n"},
		{"the file's blocklist", `{}`, rules.Input{Request: get("/", "User-Agent", "badbot")}, "\nblocked: blocklist entry 1: request.headers[\"user-agent\"].contains(\"badbot\")\n"},
		{"an added network", `{"safelist":[{"id":"office","network":"203.0.113.0/24"}]}`, whole, "\nsafe: safelist entry \"office\", added at run time: 203.0.113.0/24\n"},
		{"an added expression", `{"blocklist":[{"id":"login","match":" request.path == \"/login\""}]}`, whole, "\nblocked: blocklist entry \"login\", added at run time:  request.path == \"/login\"\n"},
		{"a ban of a network", `{"bans":[{"id":"b1","network":"203.0.113.0/24"}]}`, whole, "\nban b1\n"},
		{"a ban of a key", `{"bans":[{"id":"b1","rule":"all","key":"203.0.113.1"}]}`, whole, "\nban b1\n"},
		{"malformed", `{}`, rules.Input{Client: addr("203.0.113.1"), Request: get("/", "X-User", "u"), Attrs: map[string]any{"size": "x"}}, `
all: true: it has no match, so every request with a key counts; key 203.0.113.1, cost 0, 5 per 1m
never: false: mode off
login: false: match is false: request.path == "/login"
post: false: match is false, because this part of it is: request.method == "POST"
roles: false: match needs attrs.roles, which is missing
rules: bad request: rule "user": cost: type conversion error from 'string' to 'int'
`},
		{"a negative cost", `{}`, rules.Input{Cost: -1}, "\nrules: bad request: cost -1: must not be negative\n"},
	} {
		if got := "\n" + explained(with(t, s, c.controls), &c.in); got != c.want {
			t.Errorf("%s: got %swant %s", c.what, got, c.want)
		}
	}
	null := one(t, "key: '[client.ip, attrs.user]'")
	if got := explained(null, &whole); got != "r: false: key is null, or has a part that is: [client.ip, attrs.user]\n" {
		t.Error(got)
	}
}

// Explain and Asks agree, whatever is asked and whatever was changed.
func TestExplainAgrees(t *testing.T) {
	sets := []*rules.Set{parse(t, controlled), parse(t, tiered), parse(t, rich)}
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom(sets).Draw(t, "set")
		c := drawControls(t, base)
		s, _ := base.With(c)
		for range 5 {
			in := drawInput(t)
			var m rules.Plan
			err := s.Asks(in, &m)
			x, explainErr := s.Explain(t.Context(), in)
			if fmt.Sprint(err) != fmt.Sprint(explainErr) {
				t.Fatalf("Asks: %v, Explain: %v", err, explainErr)
			}
			if err != nil {
				continue
			}
			var asks []stint.Ask
			var of []*rules.Rule
			for _, r := range x.Rules {
				if r.Applies != (len(r.Asks) > 0) || r.Why == "" {
					t.Fatalf("rule %s: %+v", r.Rule.Name, r)
				}
				for _, a := range r.Asks {
					asks, of = append(asks, a), append(of, r.Rule)
				}
			}
			if !slices.Equal(asks, m.Asks) || !slices.Equal(of, m.Rules) || x.List != m.List || x.Ban != m.Ban || x.Enabled != s.Enabled {
				t.Fatalf("Asks: %+v\nExplain: %+v", m, x)
			}
			if len(asks) > 0 {
				if err := stint.Internal(friend.Of{}).Check(&stint.Request{Asks: asks}); err != nil && !errors.Is(err, stint.ErrRequest) {
					t.Fatal(err)
				}
			}
		}
	})
}

// drawControls draws controls of which most, and not all, fit the set.
func drawControls(t *rapid.T, s *rules.Set) *rules.Controls {
	names, tiers := []string{"gone"}, append([]string{"gone"}, s.Tiers...)
	for _, r := range s.Rules {
		names = append(names, r.Name)
	}
	id := 0
	note := func() rules.Note { id++; return rules.Note{ID: fmt.Sprint(id)} }
	rule, tier := rapid.SampledFrom(names), rapid.SampledFrom(tiers)
	key := rapid.SampledFrom([]rules.Key{"u", "v", "203.0.113.1", "2001:db8::/64", "u\x00pair\x00", ""})
	network := rapid.SampledFrom([]string{"203.0.113.0/24", "203.0.113.1", "2001:db8::/32", "x"})
	match := rapid.SampledFrom([]string{`operation == "pair"`, `attrs.plan == "gold"`, "int(attrs.seats) == 3", "false", "x"})
	of := func(what string, most int, add func()) {
		for range rapid.IntRange(0, most).Draw(t, what) {
			add()
		}
	}
	c := &rules.Controls{Modes: map[string]rules.Mode{}}
	of("modes", 2, func() { c.Modes[rule.Draw(t, "rule")] = rules.Mode(rapid.IntRange(0, 3).Draw(t, "mode")) })
	of("overrides", 4, func() {
		v := rules.Override{Note: note(), Rule: rule.Draw(t, "rule"), Times: rapid.Int64Range(1, 3).Draw(t, "times")}
		if rapid.Bool().Draw(t, "limits") {
			v.Times, v.Limits = 0, []string{"3 per 1s", "9 per 1m"}
		}
		if rapid.Bool().Draw(t, "by key") {
			v.Key = key.Draw(t, "key")
		} else {
			v.Tier = tier.Draw(t, "tier")
		}
		c.Overrides = append(c.Overrides, v)
	})
	for _, list := range []*[]rules.Listed{&c.Safelist, &c.Blocklist} {
		if rapid.IntRange(0, 3).Draw(t, "list") == 0 {
			*list = append(*list, rules.Listed{Note: note(), Network: network.Draw(t, "network")})
			*list = append(*list, rules.Listed{Note: note(), Match: match.Draw(t, "match")})
		}
	}
	of("bans", 2, func() {
		c.Bans = append(c.Bans, rules.Ban{Note: note(), Rule: rule.Draw(t, "rule"), Key: key.Draw(t, "key")})
	})
	if rapid.IntRange(0, 5).Draw(t, "ban a network") == 0 {
		c.Bans = append(c.Bans, rules.Ban{Note: note(), Network: network.Draw(t, "network")})
	}
	return c
}

func drawInput(t *rapid.T) *rules.Input {
	in := &rules.Input{
		Operation: rapid.SampledFrom([]string{"", "get", "pair", "quiet", "login", "upload"}).Draw(t, "operation"),
		Client:    rapid.SampledFrom([]netip.Addr{{}, addr("203.0.113.1"), addr("::ffff:203.0.113.9"), addr("2001:db8::5"), addr("192.0.2.1")}).Draw(t, "client"),
		Cost:      rapid.Int64Range(-1, 3).Draw(t, "cost"),
		Attrs:     map[string]any{},
	}
	if rapid.Bool().Draw(t, "request") {
		in.Request = get(rapid.SampledFrom([]string{"/", "/login", "/a/b"}).Draw(t, "path"), "X-Safe", "10.0.0.1")
	}
	for _, attr := range []struct {
		name   string
		values []any
	}{
		{"user", []any{"u", "v", nil, ""}}, {"plan", []any{"gold", "silver", "free"}}, {"seats", []any{int64(3), int64(200), "x"}},
		{"cost", []any{int64(2), "x"}}, {"evil", []any{true}}, {"a", []any{"x"}},
	} {
		if i := rapid.IntRange(-1, len(attr.values)-1).Draw(t, attr.name); i >= 0 {
			in.Attrs[attr.name] = attr.values[i]
		}
	}
	return in
}

func ExampleSet_Explain() {
	s, err := rules.Parse("rules.yaml", []byte(`
rules:
  - name: per-user
    key: request.headers["x-user"]
    limits: [1000 per 1h]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	var c rules.Controls
	if err := json.Unmarshal([]byte(`{"overrides": [{"id": "7", "reason": "load test", "rule": "per-user", "key": "ann", "times": 10}]}`), &c); err != nil {
		fmt.Println(err)
		return
	}
	s, problems := s.With(&c)
	fmt.Println(len(problems), "problems")
	for _, header := range []string{"X-User", "X-Usr"} {
		x, err := s.Explain(context.Background(), &rules.Input{Request: &rules.Request{Header: map[string][]string{header: {"ann"}}}, Cost: 1})
		if err != nil {
			fmt.Println(err)
			return
		}
		r := x.Rules[0]
		fmt.Println(r.Applies, r.Why)
		if r.Override != nil {
			fmt.Println("because of", r.Override.Reason, "limited to", r.Asks[0].Limit.Terms())
		}
	}
	// Output:
	// 0 problems
	// true it has no match, so every request with a key counts
	// because of load test limited to 10000 per 1h
	// false key needs request.headers["x-user"], which is missing
}
