package rules_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// benchSet has n rules, each with an expression of two parts, and both lists.
// benchInput passes the lists and matches the first rule.
func benchSet(tb testing.TB, n int) *rules.Set {
	var f strings.Builder
	f.WriteString(`safelist: ['client.ip in cidr("192.0.2.0/24")']
blocklist: ['request.headers["user-agent"].contains("badbot")']
rules:
`)
	for i := range n {
		fmt.Fprintf(&f, `
  - name: rule%d
    match: request.method == "POST" && request.path.startsWith("/v%d/")
    key: client.ip
    limits: [100 per 1m]
`, i, i)
	}
	return parse(tb, f.String())
}

func benchInput() *rules.Input {
	return &rules.Input{
		Client: netip.MustParseAddr("203.0.113.7"),
		Cost:   1,
		Request: &rules.Request{Method: "POST", Path: "/v0/items", Host: "example.com",
			Header: http.Header{"User-Agent": {"Mozilla/5.0"}}},
	}
}

func BenchmarkAsks(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			s, in := benchSet(b, n), benchInput()
			var out rules.Plan
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Asks(in, &out); err != nil || len(out.Asks) != 1 {
					b.Fatal(err, out.Asks)
				}
			}
		})
	}
}

// A thousand rules, each for a path of its own, as a file made from an API's
// routes has them; by themselves, with tiers, and with as many bans and overrides
// in force as there can be, of which none is for the request.
func BenchmarkAsksByPath(b *testing.B) {
	const n = 1000
	file := func(tiers string) *rules.Set {
		var f strings.Builder
		f.WriteString("tiers: {gold: 'attrs.plan == \"gold\"', silver: 'attrs.plan == \"silver\"'}\nrules:\n")
		for i := range n {
			fmt.Fprintf(&f, "  - {name: rule%d, match: 'request.method == \"POST\" && request.path == \"/v1/route%d\"', key: client.ip, limits: [100 per 1m]%s}\n", i, i, tiers)
		}
		return parse(b, f.String())
	}
	plain, tiered := file(""), file(", tiers: {gold: {times: 10}, silver: {times: 2}}")
	controls := &rules.Controls{}
	for i := range rules.MaxBans {
		key := rules.Key(fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		rule := fmt.Sprint("rule", i%n)
		controls.Overrides = append(controls.Overrides, rules.Override{Note: rules.Note{ID: fmt.Sprint("o", i)}, Rule: rule, Key: key, Times: 2})
		controls.Bans = append(controls.Bans, rules.Ban{Note: rules.Note{ID: fmt.Sprint("b", i)}, Rule: rule, Key: key})
		if i%2 == 0 {
			controls.Bans[i] = rules.Ban{Note: rules.Note{ID: fmt.Sprint("b", i)}, Network: fmt.Sprintf("10.%d.%d.0/%d", i/250, i%250, 24-i/2%2)}
		}
	}
	controlled, problems := plain.With(controls)
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	for _, c := range []struct {
		what string
		set  *rules.Set
	}{{"plain", plain}, {"tiers", tiered}, {"controls", controlled}} {
		b.Run(c.what, func(b *testing.B) {
			in := benchInput()
			in.Request.Path, in.Attrs = "/v1/route500", map[string]any{"plan": "silver"}
			var out rules.Plan
			b.ReportAllocs()
			for b.Loop() {
				if err := c.set.Asks(in, &out); err != nil || len(out.Asks) != 1 {
					b.Fatal(err, out.Asks)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/rule")
		})
	}
}

// What parts of a rule cost, each alone in a set.
func BenchmarkExpression(b *testing.B) {
	in := benchInput()
	in.Attrs = map[string]any{"user": "u42", "roles": []any{"a", "b", "admin"}}
	for _, c := range []struct{ what, rule string }{
		{"nothing", `key: '"all"'`},
		{"client", `key: client.ip`},
		{"list key", `key: '[client.ip, request.path]'`},
		{"attr key", `key: attrs.user`},
		{"header key", `key: 'request.headers["user-agent"]'`},
		{"missing key", `key: 'request.headers["x-api-key"]'`},
		{"regex", `match: 'request.path.matches("^/v[0-9]+/")', key: '"all"'`},
		{"in list", `match: 'request.method in ["POST", "PUT"]', key: '"all"'`},
		{"loop", `match: 'attrs.roles.exists(r, r == "admin")', key: '"all"'`},
	} {
		b.Run(strings.ReplaceAll(c.what, " ", "-"), func(b *testing.B) {
			s := parse(b, "rules: [{name: r, limits: [1 per 1s], "+c.rule+"}]")
			var out rules.Plan
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Asks(in, &out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	var f strings.Builder
	f.WriteString("rules:\n")
	for i := range 100 {
		fmt.Fprintf(&f, "- {name: r%d, match: 'request.method == \"POST\" && request.path == \"/v%d\"', key: client.ip, limits: [100 per 1m]}\n", i, i)
	}
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			for b.Loop() {
				if _, err := rules.Open([]rules.File{{Name: "r.yaml", Data: []byte(f.String())}}).Parse(b.Context(), workers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What 10,000 bans and 10,000 overrides cost a request that none of them is for,
// and how long it takes to put them into force.
func BenchmarkControls(b *testing.B) {
	file, c := benchSet(b, 1), &rules.Controls{}
	for i := range rules.MaxBans / 2 {
		network := fmt.Sprintf("10.%d.%d.0/%d", i/250, i%250, 24-i%2)
		key := rules.Key(fmt.Sprintf("192.168.%d.%d", i/250, i%250))
		c.Bans = append(c.Bans,
			rules.Ban{Note: rules.Note{ID: fmt.Sprint("n", i)}, Network: network},
			rules.Ban{Note: rules.Note{ID: fmt.Sprint("k", i)}, Rule: "rule0", Key: key})
	}
	for i := range rules.MaxOverrides {
		key := rules.Key(fmt.Sprintf("172.16.%d.%d", i/250, i%250))
		c.Overrides = append(c.Overrides, rules.Override{Note: rules.Note{ID: fmt.Sprint("o", i)}, Rule: "rule0", Key: key, Times: 2})
	}
	b.Run("asks", func(b *testing.B) {
		s, problems := file.With(c)
		if len(problems) > 0 {
			b.Fatal(problems)
		}
		in := benchInput()
		var out rules.Plan
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Asks(in, &out); err != nil || len(out.Asks) != 1 {
				b.Fatal(err, out.Asks)
			}
		}
	})
	b.Run("with", func(b *testing.B) {
		for b.Loop() {
			file.With(c)
		}
	})
}

// A request that one rule of many applies to, by what tells the rules apart.
func BenchmarkAsksOfMany(b *testing.B) {
	for _, by := range []struct{ what, match string }{
		{"operation", `operation == "o%d"`},
		{"attribute", `attrs.x == "o%d"`},
		{"header", `request.headers["x-tenant"] == "o%d"`},
		{"path", `request.path == "/o%d"`},
		{"under", `request.method == "POST" && request.path.under("/o%d")`},
		{"network", ""},
	} {
		for _, n := range []int{1, 10, 1000, 10_000} {
			b.Run(fmt.Sprintf("by=%s/rules=%d", by.what, n), func(b *testing.B) {
				var f strings.Builder
				f.WriteString("rules:\n")
				for i := range n {
					match := fmt.Sprintf(by.match, i)
					if by.what == "network" {
						match = fmt.Sprintf("client.ip in cidr(%q)", nth(i))
					}
					fmt.Fprintf(&f, "- {name: rule%d, match: '%s', key: client.ip, limits: [100 per 1m]}\n", i, match)
				}
				s := parse(b, f.String())
				what := fmt.Sprint("o", n/2)
				in := &rules.Input{Client: nth(n / 2), Cost: 1, Operation: what, Attrs: map[string]any{"x": what},
					Request: &rules.Request{Method: "POST", Path: "/" + what, Host: "example.com", Header: http.Header{"X-Tenant": {what}}}}
				var out rules.Plan
				b.ReportAllocs()
				for b.Loop() {
					if err := s.Asks(in, &out); err != nil || len(out.Asks) != 1 {
						b.Fatal(err, out.Asks)
					}
				}
			})
		}
	}
}

// nth is the n-th of some addresses.
func nth(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }
