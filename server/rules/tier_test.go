package rules_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
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
	var out rules.Plan
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
		fmt.Fprintf(&b, "%s: %s; ", out.Rules[i].Name, a.Limit.Terms())
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

// Every tier has counts of its own, and overrides change numbers, not counts: those
// of a key, of a tier, and of a tier that only they name.
func TestTiersCountApart(t *testing.T) {
	base := parse(t, tiered)
	plain, gold, big := user("get"), user("get", "plan", "gold"), user("get", "seats", int64(200))
	for _, c := range []struct {
		controls        string
		plain, gold, is string
	}{
		{`{}`, "10 per 1m t1m:api, 100 per 1h t1h:api", "50 per 1m t1m:api@gold, 500 per 1h t1h:api@gold", ""},
		{`{"overrides":[{"id":"1","rule":"api","key":"u","times":3}]}`,
			"30 per 1m t1m:api, 300 per 1h t1h:api", "150 per 1m t1m:api@gold, 1500 per 1h t1h:api@gold", ""},
		{`{"overrides":[{"id":"1","rule":"api","key":"u","limits":["7 per 1m"]}]}`, "7 per 1m t1m:api", "7 per 1m t1m:api@gold", ""},
		{`{"overrides":[{"id":"1","rule":"api","tier":"gold","limits":["7 per 1m"]}]}`,
			"10 per 1m t1m:api, 100 per 1h t1h:api", "7 per 1m t1m:api@gold", ""},
		{`{"overrides":[{"id":"1","rule":"api","tier":"big","times":2}]}`,
			"10 per 1m t1m:api, 100 per 1h t1h:api", "50 per 1m t1m:api@gold, 500 per 1h t1h:api@gold", "20 per 1m t1m:api@big, 200 per 1h t1h:api@big"},
		{`{"overrides":[{"id":"1","rule":"api","key":"u","limits":["7 per 1m"]},{"id":"2","rule":"api","tier":"big","times":2}]}`,
			"7 per 1m t1m:api", "7 per 1m t1m:api@gold", "7 per 1m t1m:api@big"},
	} {
		s := with(t, base, c.controls)
		for _, of := range []struct {
			tier string
			in   *rules.Input
			want string
		}{{"", plain, c.plain}, {"gold", gold, c.gold}, {"big", big, c.is}} {
			if of.want == "" {
				continue
			}
			var out rules.Plan
			if err := s.Asks(of.in, &out); err != nil {
				t.Fatal(err)
			}
			var limits []*stint.Limit
			for _, a := range out.Asks {
				limits = append(limits, a.Limit)
			}
			granted, _ := s.Rules[0].EffectiveLimits("u", of.tier)
			if got, told := counts(limits), counts(granted); got != of.want || told != of.want {
				t.Errorf("%s, tier %q:\ngot  %s\ntold %s\nwant %s", c.controls, of.tier, got, told, of.want)
			}
			all := counts(s.Rules[0].AllLimits("u"))
			for _, l := range limits {
				if !strings.Contains(all, l.ID()) {
					t.Errorf("%s: a reset leaves %s", c.controls, l.ID())
				}
			}
		}
		if got, want := fmt.Sprint(s.Rules[0].CountedTiers()), "[gold paying"; !strings.HasPrefix(got, want) || (c.is != "") != strings.HasSuffix(got, " big]") {
			t.Errorf("%s: tiers %s", c.controls, got)
		}
	}
}

// counts are limits and what they count under.
func counts(limits []*stint.Limit) string {
	var all []string
	for _, l := range limits {
		all = append(all, l.Terms()+" "+l.ID())
	}
	return strings.Join(all, ", ")
}

// The longest names of a rule and a tier make a name of a limit.
func TestLongTier(t *testing.T) {
	rule, tier := strings.Repeat("r", 64), strings.Repeat("t", 64)
	s := parse(t, "tiers: {"+tier+": 'true'}\nrules: [{name: "+rule+", key: client.ip, limits: [1 per 1m], tiers: {"+tier+": {times: 2}}}]")
	if got := s.Rules[0].Tiers[0].Limits[0].Spec().Name; got != rule+"@"+tier {
		t.Error(got)
	}
}

// What replaces a limit with a lease keeps that, since the counts stay and others may
// still hold units of it; another lease is refused.
func TestOverrideLease(t *testing.T) {
	s := parse(t, `
tiers: {big: 'true', small: 'true'}
rules:
  - {name: api, key: attrs.user, limits: [1000 per 1m lease 10%], tiers: {big: {limits: [9000 per 1m]}}}
`)
	one := func(limit string) string {
		return `{"overrides":[{"id":"1","rule":"api","tier":"small","limits":["` + limit + `"]}]}`
	}
	for limit, want := range map[string]string{
		"500 per 1m":              "500 per 1m lease 10% t1m:api@small",
		"500 per 1m lease 10%":    "500 per 1m lease 10% t1m:api@small",
		"500 per 1h lease 20%":    "500 per 1h lease 20% t1h:api@small",
		"500 per 1m fixed_window": "500 per 1m fixed_window f1m:api@small",
	} {
		granted, _ := with(t, s, one(limit)).Rules[0].EffectiveLimits("u", "small")
		if got := counts(granted); got != want {
			t.Errorf("%s: got %s, want %s", limit, got, want)
		}
	}
	for controls, want := range map[string]string{
		one("500 per 1m lease 20%"): `limit "500 per 1m lease 20%": its lease must be 10%, like the rule's 1000 per 1m lease 10%, because both share a count: leave it out`,
		`{"overrides":[{"id":"1","rule":"api","tier":"big","limits":["500 per 1m lease 5%"]}]}`: `limit "500 per 1m lease 5%": the rule's 9000 per 1m has no lease, and both share a count: leave the lease out`,
		`{"overrides":[{"id":"1","rule":"api","key":"u","limits":["500 per 1m lease 10%"]}]}`:   `tier big: limit "500 per 1m lease 10%": the rule's 9000 per 1m has no lease, and both share a count: leave the lease out`,
	} {
		var c rules.Controls
		if err := json.Unmarshal([]byte(controls), &c); err != nil {
			t.Fatal(err)
		}
		if _, problems := s.With(&c); len(problems) != 1 || problems[0].Text != want {
			t.Errorf("%s: %+v", controls, problems)
		}
	}
	if granted, _ := with(t, s, `{"overrides":[{"id":"1","rule":"api","key":"u","limits":["500 per 1m"]}]}`).Rules[0].EffectiveLimits("u", "big"); counts(granted) != "500 per 1m t1m:api@big" {
		t.Error(counts(granted))
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
