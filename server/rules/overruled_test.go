package rules_test

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// Who bans or favours a client that a list decides about is told so.
func TestOverruled(t *testing.T) {
	base, err := rules.ParseFiles([]rules.File{{Name: "e.yaml", Envoy: true, Data: []byte(`
domain: shop
descriptors:
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}
`)}, {Name: "r.yaml", Data: []byte(`
safelist:  ['client.ip in cidr("192.0.2.0/24")', 'request.path == "/health"', 'attrs.staff == true']
blocklist: ['client.ip in cidr("203.0.113.0/24")']
rules:
  - {name: login, key: client.ip, limits: [5 per 1m]}
  - {name: user, key: attrs.user, limits: [5 per 1m]}
  - {name: quiet, key: client.ip, limits: [5 per 1m], mode: shadow}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := base.With(&rules.Controls{
		Safelist: []rules.Listed{{Note: rules.Note{ID: "s"}, Network: "2001:db8::/32"}},
	})
	if problems != nil {
		t.Fatal(problems)
	}
	for _, c := range []struct {
		ban  rules.Ban
		want string // a part of the reason; empty: it acts
	}{
		{rules.Ban{Network: "192.0.2.0/25"}, "safelist entry 1"},
		{rules.Ban{Network: "192.0.2.7"}, "safelist entry 1"},
		{rules.Ban{Network: "192.0.0.0/16"}, ""},
		{rules.Ban{Network: "192.0.2.0/23"}, ""},
		{rules.Ban{Network: "203.0.113.0/24"}, ""},
		{rules.Ban{Network: "2001:db8:1::/48"}, `safelist entry "s", added at run time: 2001:db8::/32`},
		{rules.Ban{Rule: "login", Key: "192.0.2.7"}, "safelist entry 1"},
		{rules.Ban{Rule: "login", Key: "2001:db8:1:2::/64"}, `safelist entry "s"`},
		{rules.Ban{Rule: "login", Key: "198.51.100.7"}, ""},
		{rules.Ban{Rule: "user", Key: "192.0.2.7"}, ""}, // a user who is called so
		{rules.Ban{Rule: "quiet", Key: "198.51.100.7"}, "mode shadow"},
		{rules.Ban{Rule: "shop/remote_address", Key: "192.0.2.7"}, "safelist entry 1"},
		{rules.Ban{Rule: "shop/remote_address", Key: "198.51.100.7"}, ""},
		{rules.Ban{Rule: "shop/user", Key: "192.0.2.7"}, ""},
	} {
		if got := set.BanOverruled(&c.ban); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("ban of %q%q: %q, want %q", c.ban.Network, c.ban.Key, got, c.want)
		}
	}
	for key, want := range map[rules.Key]string{"192.0.2.7": "the safelist comes before limits", "203.0.113.9": "the blocklist comes before limits", "198.51.100.7": ""} {
		got := set.OverrideOverruled(&rules.Override{Rule: "login", Key: key, Times: 2})
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("override of %s: %q, want %q", key, got, want)
		}
	}
	for _, c := range []struct{ network, match, want string }{
		{network: "192.0.2.0/25", want: "the safelist comes before the blocklist and lets these clients pass: safelist entry 1"},
		{network: "192.0.2.0/23"},
		{network: "203.0.113.7"},
		{match: `client.ip == "192.0.2.7"`},
	} {
		if got := set.BlockOverruled(&rules.Listed{Network: c.network, Match: c.match}); (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("blocklist %+v: %q", c, got)
		}
	}
	if got := set.OverrideOverruled(&rules.Override{Rule: "login", Tier: "gold", Times: 2}); got != "" {
		t.Errorf("override of a tier: %q", got)
	}
}
