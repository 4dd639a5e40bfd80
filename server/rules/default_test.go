package rules_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

func asksOf(t *testing.T, s *rules.Set, in *rules.Input) string {
	t.Helper()
	var m rules.Plan
	if err := s.Asks(in, &m); err != nil {
		return "error"
	}
	x, err := s.Explain(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	var asks, explained []string
	for i := range m.Asks {
		asks = append(asks, m.Rules[i].Name+" "+rules.Key(m.Asks[i].Key).String())
	}
	for _, r := range x.Rules {
		for _, a := range r.Asks {
			explained = append(explained, r.Rule.Name+" "+rules.Key(a.Key).String())
		}
	}
	// Explain keeps the file's order; Asks has default rules last.
	if len(asks) != len(explained) || len(asks) == 1 && asks[0] != explained[0] {
		t.Errorf("asks %q, explained %q", asks, explained)
	}
	return strings.Join(asks, "; ")
}

// A default rule is for what no other rule limits. One in shadow mode refuses
// nothing, and so does not take a request from it.
func TestDefaultRule(t *testing.T) {
	s := parse(t, `
rules:
  - {name: rest, default: true, key: client.ip, limits: [1000 per 1m]}
  - {name: login, match: request.path == "/login", key: client.ip, limits: [5 per 1m]}
  - {name: user, match: request.path == "/user", key: attrs.user, limits: [5 per 1m]}
  - {name: trial, match: request.path == "/new", key: client.ip, limits: [5 per 1m], mode: shadow}
  - {name: off, match: request.path == "/off", key: client.ip, limits: [5 per 1m], mode: off}
  - {name: bad, match: request.path == "/bad", key: attrs.user + "", limits: [5 per 1m]}
  - {name: also, default: true, match: request.path == "/also", key: client.ip, limits: [7 per 1m]}
`)
	for _, c := range []struct {
		path  string
		attrs map[string]any
		want  string
	}{
		{"/login", nil, "login 192.0.2.1"},
		{"/", nil, "rest 192.0.2.1"},
		{"/user", map[string]any{"user": "ann"}, "user ann"},
		{"/user", nil, "rest 192.0.2.1"}, // without a key, the rule does not apply
		{"/new", nil, "trial 192.0.2.1; rest 192.0.2.1"},
		{"/off", nil, "rest 192.0.2.1"},
		{"/also", nil, "rest 192.0.2.1; also 192.0.2.1"},
		{"/bad", map[string]any{"user": int64(3)}, "error"}, // a malformed request is not let past its rule
	} {
		in := &rules.Input{Client: netip.MustParseAddr("192.0.2.1"), Cost: 1, Attrs: c.attrs, Request: &rules.Request{Method: "GET", Path: c.path}}
		if got := asksOf(t, s, in); got != c.want {
			t.Errorf("%s %v: %q, want %q", c.path, c.attrs, got, c.want)
		}
	}

	in := &rules.Input{Client: netip.MustParseAddr("192.0.2.1"), Cost: 1, Request: &rules.Request{Method: "GET", Path: "/login"}}
	x, err := s.Explain(t.Context(), in)
	if err != nil || x.Rules[0].Applies || x.Rules[0].Why != "default, and another rule applies: login" {
		t.Errorf("%+v, %v", x.Rules[0], err)
	}
	in.Request.Path = "/off"
	if x, err = s.Explain(t.Context(), in); err != nil || !x.Rules[0].Applies || x.Rules[0].Why != "default, and no other enforced rule applies" {
		t.Errorf("%+v, %v", x.Rules[0], err)
	}
	in.Request.Path = "/login"
	quiet, problems := s.With(&rules.Controls{Modes: map[string]rules.Mode{"login": rules.Shadow}})
	if got := asksOf(t, quiet, in); problems != nil || got != "login 192.0.2.1; rest 192.0.2.1" {
		t.Errorf("with login in shadow: %q, %v", got, problems)
	}
	banned, problems := s.With(&rules.Controls{Bans: []rules.Ban{{Note: rules.Note{ID: "b"}, Rule: "login", Key: "192.0.2.1"}}})
	var m rules.Plan
	if err := banned.Asks(in, &m); err != nil || problems != nil || m.Ban == nil || len(m.Asks) > 0 {
		t.Errorf("banned: %+v, %v, %v", m.Ban, err, problems)
	}
}

// A rule without a key counts what is done and by whom.
func TestDefaultKey(t *testing.T) {
	s := parse(t, `
rules:
  - {name: a, limits: [5 per 1m]}
`)
	if s.Rules[0].Key != rules.DefaultKey {
		t.Errorf("key %q", s.Rules[0].Key)
	}
	client := netip.MustParseAddr("2001:db8:1:2:3::4")
	for _, c := range []struct {
		in   rules.Input
		want string
	}{
		{rules.Input{Operation: "export", Client: client}, `a ["export","2001:db8:1:2::/64"]`},
		{rules.Input{Client: client, Request: &rules.Request{Path: "/x", Route: "api"}}, `a ["api","2001:db8:1:2::/64"]`},
		{rules.Input{Operation: "export", Client: client, Request: &rules.Request{Route: "api"}}, `a ["export","2001:db8:1:2::/64"]`},
		{rules.Input{Client: client, Request: &rules.Request{Path: "/x"}}, `a ["","2001:db8:1:2::/64"]`},
		{rules.Input{Operation: "export"}, `a ["export",""]`},
		{rules.Input{}, ""},
		{rules.Input{Operation: "a\x00b", Client: client}, "error"},
	} {
		c.in.Cost = 1
		if got := asksOf(t, s, &c.in); got != c.want {
			t.Errorf("%+v: %q, want %q", c.in, got, c.want)
		}
	}
	k, err := s.AsCounted(s.Rules[0], "export")
	if err == nil {
		t.Errorf("a key of one part was taken as %s", k)
	}
	_, problems := s.With(&rules.Controls{Bans: []rules.Ban{{Note: rules.Note{ID: "b"}, Rule: "a", Key: "export\x00192.0.2.1\x00"}}})
	if problems != nil {
		t.Error(problems)
	}
}

// A descriptor whose rule is enforced takes the call from default rules, also if that rule is
// unlimited or the call gives units back. Asks and Explain agree on that.
func TestDefaultRuleBesideDescriptors(t *testing.T) {
	s, err := rules.ParseFiles([]rules.File{
		{Name: "r.yaml", Data: []byte(`rules: [{name: rest, default: true, key: '"all"', limits: [5 per 1m]}]`)},
		{Name: "d.yaml", Envoy: true, Data: []byte(`
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: trial, rate_limit: {unit: minute, requests_per_unit: 3}, shadow_mode: true}
`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		descriptor string
		giveBack   bool
		rest       bool
	}{
		{"user", false, false},
		{"user", true, false},
		{"free", false, false},
		{"trial", false, true},
		{"unknown", false, true},
	} {
		in := &rules.Input{Cost: 1, Descriptors: &rules.Descriptors{Domain: "shop", List: []rules.Descriptor{
			{Entries: []rules.Entry{{Key: c.descriptor, Value: "x"}}, Cost: 1, GiveBack: c.giveBack},
		}}}
		var m rules.Plan
		if err := s.Asks(in, &m); err != nil {
			t.Fatal(err)
		}
		asked := slices.ContainsFunc(m.Rules, func(r *rules.Rule) bool { return r.Name == "rest" })
		x, err := s.Explain(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if e := x.Rules[0]; e.Rule.Name != "rest" || asked != c.rest || e.Applies != c.rest {
			t.Errorf("%s, given back %t: rest is asked %t, explained %t (%s); want %t", c.descriptor, c.giveBack, asked, e.Applies, e.Why, c.rest)
		}
	}
}
