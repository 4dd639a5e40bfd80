package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

func setOf(prefixes ...string) *rules.Networks {
	n := rules.NewNetworks()
	for _, p := range prefixes {
		n.Add(netip.MustParsePrefix(p))
	}
	return n
}

// onLists is a file for an instance with these lists.
func onLists(t testing.TB, file string, lists *rules.Lists) *rules.Set {
	t.Helper()
	s, err := parse(t, file).On(&rules.Instance{Lists: lists})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A list holds what its networks hold, in every expression, and changes while rules are in force.
func TestLists(t *testing.T) {
	lists := rules.NewLists("bad", "unread", "odd-name.2")
	lists.Set("bad", setOf("192.0.2.0/25", "192.0.2.0/24", "2001:db8::/48", "203.0.113.7/32"))
	lists.Set("odd-name.2", setOf())
	in := func(client string) *rules.Input {
		return &rules.Input{Client: addr(client), Cost: 1, Attrs: map[string]any{"net": "192.0.2.128/26", "wide": "192.0.0.0/16", "mapped": "::ffff:192.0.2.1", "zone": "2001:db8::1%eth0", "odd": "x"}}
	}
	for match, want := range map[string]string{
		`client.ip in list("bad")`:                                    `r="all":1`,
		`!(client.ip in list("bad"))`:                                 "",
		`client.ip in list("odd-name.2")`:                             "",
		`attrs.net in list("bad")`:                                    `r="all":1`,
		`attrs.wide in list("bad")`:                                   "",
		`attrs.mapped in list("bad")`:                                 `r="all":1`,
		`attrs.zone in list("bad")`:                                   `r="all":1`,
		`attrs.none in list("bad")`:                                   "",
		`attrs.odd in list("bad")`:                                    `"x": must be a network`,
		`client.ip in list("unread")`:                                 `the list "unread" was not read yet`,
		`["10.0.0.1", client.ip].exists(a, a in list("bad"))`:         `r="all":1`,
		`["10.0.0.1"].exists(list, client.ip in list("bad"))`:         `r="all":1`,
		`cost == 5 && client.ip in list("unread")`:                    "",
		`client.ip in cidr("10.0.0.0/8") || client.ip in list("bad")`: `r="all":1`,
	} {
		s := onLists(t, "rules: [{name: r, match: "+quoted(match)+`, key: '"all"', limits: [9 per 1h]}]`, lists)
		if got := asked(s, in("192.0.2.200")); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", match, got, want)
		}
	}
	s := onLists(t, `{blocklist: ['client.ip in list("bad")'], nat64_prefixes: ["2001:db8:64::/96"], rules: [{name: r, key: client.ip, limits: [9 per 1h]}]}`, lists)
	blocked := func(client string) bool {
		var m rules.Plan
		if err := s.Asks(in(client), &m); err != nil {
			t.Error(client, err)
		}
		return m.List == rules.Blocked
	}
	for client, want := range map[string]bool{"192.0.2.255": true, "192.0.3.0": false, "2001:db8:0:1::": true, "2001:db8:1::": false, "203.0.113.7": true, "2001:db8:64::c000:201": true, "::ffff:192.0.2.9": true} {
		if got := blocked(client); got != want {
			t.Errorf("%s: blocked %t", client, got)
		}
	}
	lists.Set("bad", setOf("192.0.3.0/24"))
	if blocked("192.0.2.1") || !blocked("192.0.3.0") {
		t.Error("the former content is in force")
	}
}

// A name that the instance does not have is found where a file or an operator says it, and so is what cannot
// be a name.
func TestListsAreKnown(t *testing.T) {
	const file = "blocklist:\n- client.ip in list(\"good\")\n- client.ip in list(\"bat\")\nrules: []\n"
	lists := rules.NewLists("bad", "good")
	lists.Set("good", setOf())
	if _, err := parse(t, file).On(&rules.Instance{Lists: lists}); err == nil || err.Error() != `r.yaml:3:21: there is no list "bat" under server.lists: did you mean bad?` {
		t.Error(err)
	}
	if _, err := parse(t, file).On(&rules.Instance{}); err == nil || strings.Count(err.Error(), "there is no list") != 2 {
		t.Error(err)
	}
	if got := asked(parse(t, file), &rules.Input{Client: addr("192.0.2.1")}); !strings.Contains(got, "no lists are known here") {
		t.Errorf("without an instance: %s", got)
	}
	s := onLists(t, "rules: []", lists)
	if _, problems := s.With(&rules.Controls{Blocklist: []rules.Listed{{Note: rules.Note{ID: "1"}, Match: `client.ip in list("bat")`}}}); len(problems) != 1 || !strings.Contains(fmt.Sprint(problems), `there is no list "bat"`) {
		t.Error(problems)
	}
	for match, want := range map[string]string{
		`client.ip in list(operation)`: "the name of a list must be a literal string", `list("bad") == "x"`: "no matching overload", `size(list("bad")) > 1`: "no matching overload",
		`list("bad") == list("bad")`: "", `1 in list("bad")`: "no matching overload",
	} {
		if _, err := rules.Parse("r.yaml", []byte("blocklist: ["+quoted(match)+"]")); err == nil || !strings.Contains(err.Error(), want) {
			if want != "" || err != nil {
				t.Errorf("%s: %v", match, err)
			}
		}
	}
}

// Lists change while requests are decided.
func TestListsAtOnce(t *testing.T) {
	lists := rules.NewLists("bad")
	lists.Set("bad", setOf("192.0.2.0/24"))
	s := onLists(t, `{blocklist: ['client.ip in list("bad")'], rules: []}`, lists)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var m rules.Plan
			for range 500 {
				if err := s.Asks(&rules.Input{Client: addr("192.0.2.1")}, &m); err != nil || m.List != rules.Blocked {
					t.Error(m.List, err)
				}
			}
		})
	}
	for range 100 {
		lists.Set("bad", setOf("192.0.2.0/24", "10.0.0.0/8"))
	}
	all.Wait()
}

// A million networks in a list, beside one in an expression.
func BenchmarkLists(b *testing.B) {
	const n = 1_000_000
	many := rules.NewNetworks()
	for i := range n {
		many.Add(netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i >> 16), byte(i >> 8), byte(i), 0}), 24))
	}
	lists := rules.NewLists("bad")
	lists.Set("bad", many)
	addrs := make([]netip.Addr, 1024)
	for i := range addrs {
		addrs[i] = netip.AddrFrom4([4]byte{byte(i * 7), byte(i * 13), byte(i * 31), byte(i)})
	}
	b.Run("networks", func(b *testing.B) {
		i := 0
		for b.Loop() {
			many.Contains(addrs[i%1024])
			i++
		}
	})
	for _, match := range []string{`client.ip in list("bad")`, `client.ip in cidr("127.0.0.0/8")`} {
		s := onLists(b, "rules: [{name: r, match: "+quoted(match)+", key: client.ip, limits: [9 per 1h]}]", lists)
		b.Run(match, func(b *testing.B) {
			var out rules.Plan
			in := &rules.Input{Cost: 1}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				in.Client = addrs[i%1024]
				if err := s.Asks(in, &out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
