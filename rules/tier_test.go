package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint/rules"
)

const tiered = `
tiers:
  gold: attrs.plan == "gold"
  big: int(attrs.seats) > 100
  paying: attrs.plan in ["gold", "silver"]
rules:
  - name: api
    match: operation != "login"
    key: attrs.user
    limits: [10 per 1m, 100 per 1h]
    tiers:
      gold: {times: 5}
      paying: {limits: [20 per 1m]}
  - name: login
    match: operation == "login"
    key: attrs.user
    limits: [5 per 1m]
  - name: upload
    match: operation == "upload"
    key: attrs.user
    limits: [1 per 1m]
    tiers: {big: {times: 2}}
`

// limited tells which limits of which rules a request faces, or what else Asks
// finds.
func limited(s *rules.Set, in *rules.Input) string {
	var out rules.Matches
	if err := s.Asks(in, &out); err != nil {
		return err.Error()
	}
	if out.List != rules.Unlisted {
		return out.List.String()
	}
	if out.Ban != nil {
		by := "network"
		if out.BanRule != nil {
			by = out.BanRule.Name
		}
		return fmt.Sprintf("ban %s by %s for %s, %d asks", out.Ban.ID, by, out.BanLeft, len(out.Asks)+len(out.Rules))
	}
	var b strings.Builder
	for i, a := range out.Asks {
		fmt.Fprintf(&b, "%s: %s; ", out.Rules[i].Name, a.Limit)
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func user(operation string, attrs ...any) *rules.Input {
	in := &rules.Input{Operation: operation, Attrs: map[string]any{"user": "u"}, Client: addr("203.0.113.1"), Cost: 1}
	for i := 0; i+1 < len(attrs); i += 2 {
		in.Attrs[attrs[i].(string)] = attrs[i+1]
	}
	return in
}

func TestTiers(t *testing.T) {
	s := parse(t, tiered)
	for _, c := range []struct {
		what string
		in   *rules.Input
		want string
	}{
		{"of no tier: the rule's own limits", user("get", "plan", "free"), "api: 10 per 1m; api: 100 per 1h"},
		{"what a tier needs is missing: not of it", user("get"), "api: 10 per 1m; api: 100 per 1h"},
		{"the first in the rule's order counts: gold is also paying", user("get", "plan", "gold"), "api: 50 per 1m; api: 500 per 1h"},
		{"limits replace", user("get", "plan", "silver"), "api: 20 per 1m"},
		{"a rule without tiers treats all alike", user("login", "plan", "gold"), "login: 5 per 1m"},
		{"each rule looks at its own tiers", user("upload", "plan", "gold", "seats", int64(500)), "api: 50 per 1m; api: 500 per 1h; upload: 2 per 1m"},
		{"a tier that fails is a malformed request", user("upload", "seats", "many"),
			`rules: bad request: tier "big": type conversion error from 'string' to 'int'`},
		{"but not where no rule that applies needs it", user("get", "seats", "many"), "api: 10 per 1m; api: 100 per 1h"},
		{"nor where the rule has no key", &rules.Input{Operation: "upload", Attrs: map[string]any{"seats": "many"}}, ""},
	} {
		if got := limited(s, c.in); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.what, got, c.want)
		}
	}
	if got := strings.Join(s.Tiers, " "); got != "gold big paying" {
		t.Errorf("tiers %s", got)
	}
}

// Who changes tier keeps the counts: same key, same ID.
func TestTierKeepsCounts(t *testing.T) {
	r := parse(t, tiered).Rules[0]
	for _, tier := range r.Tiers {
		if own, its := r.Limits[0].ID(), tier.Limits[0].ID(); own != its {
			t.Errorf("tier %s counts as %s, the rule as %s", tier.Name, its, own)
		}
	}
}

func TestManyTiers(t *testing.T) {
	file := func(n int) string {
		var b strings.Builder
		b.WriteString("rules: [{name: r, key: attrs.user, limits: [1 per 1m], tiers: {last: {times: 7}}}]\ntiers:\n")
		for i := range n - 1 {
			fmt.Fprintf(&b, "  t%d: 'true'\n", i)
		}
		return b.String() + "  last: attrs.plan == \"last\"\n"
	}
	s := parse(t, file(rules.MaxTiers))
	if got := limited(s, user("", "plan", "last")); got != "r: 7 per 1m" {
		t.Errorf("of the last tier: %s", got)
	}
	_, err := rules.Parse("r.yaml", []byte(file(rules.MaxTiers+1)))
	if err == nil || !strings.Contains(err.Error(), "r.yaml:3:3: 65 tiers: at most 64") {
		t.Errorf("got %v", err)
	}
}
