package rules_test

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// Only rules that say so count preflights; lists and bans by hand apply to them all the same.
func TestPreflights(t *testing.T) {
	s := parse(t, `
safelist: [attrs.vip == true]
blocklist: [attrs.evil == true]
rules:
  - {name: all, key: attrs.user, limits: [5 per 1m]}
  - {name: options, match: request.method == "OPTIONS", key: attrs.user, limits: [5 per 1m], preflights: true}
  - {name: get, match: request.method == "GET", key: attrs.user, limits: [5 per 1m], preflights: true}
  - {name: fails, match: int(attrs.user) == 1, key: client.ip, limits: [5 per 1m], mode: shadow}
  - {name: otherwise, key: client.ip, limits: [5 per 1m], default: true}
`)
	const bans = `{"bans":[{"id":"a","rule":"all","key":"banned"},{"id":"b","network":"198.51.100.0/24"},{"id":"c","rule":"fails","key":"203.0.113.1"}]}`
	controlled := with(t, s, bans)
	for _, c := range []struct {
		what   string
		set    *rules.Set
		change func(*rules.Input)
		want   string
	}{
		{"a preflight", s, func(*rules.Input) {}, `options="ann":1`},
		{"any other request", s, func(in *rules.Input) { in.Request.Preflight = false }, `all="ann":1 options="ann":1`},
		{"one on the safelist", s, func(in *rules.Input) { in.Attrs["vip"] = true }, "safe"},
		{"one on the blocklist", s, func(in *rules.Input) { in.Attrs["evil"] = true }, "blocked"},
		{"without a key", s, func(in *rules.Input) { delete(in.Attrs, "user") }, ""},
		{"bans of others", controlled, func(*rules.Input) {}, `options="ann":1`},
		{"a banned key", controlled, func(in *rules.Input) { in.Attrs["user"] = "banned" }, "ban a"},
		{"a banned network", controlled, func(in *rules.Input) { in.Client = addr("198.51.100.9") }, "ban b"},
	} {
		in := &rules.Input{Client: addr("203.0.113.1"), Cost: 1, Attrs: map[string]any{"user": "ann"}, Request: get("/")}
		in.Request.Method, in.Request.Preflight = "OPTIONS", true
		c.change(in)
		var out rules.Plan
		got := asked(c.set, in)
		if err := c.set.Asks(in, &out); err == nil && out.Ban != nil {
			got = "ban " + out.Ban.ID
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		x, err := c.set.Explain(t.Context(), in)
		if err != nil || (x.Ban != nil) != strings.HasPrefix(c.want, "ban") {
			t.Errorf("%s: explained as %+v %v", c.what, x, err)
		}
		for _, r := range x.Rules {
			if in.Request.Preflight && r.Applies != strings.Contains(c.want, r.Rule.Name+"=") {
				t.Errorf("%s: %s applies %t: %s", c.what, r.Rule.Name, r.Applies, r.Why)
			}
		}
	}
}
