package rules_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stintdev/stint/rules"
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
			var out rules.Matches
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
// routes has them.
func BenchmarkAsksByPath(b *testing.B) {
	var f strings.Builder
	f.WriteString("rules:\n")
	const n = 1000
	for i := range n {
		fmt.Fprintf(&f, "  - {name: rule%d, match: 'request.method == \"POST\" && request.path == \"/v1/route%d\"', key: client.ip, limits: [100 per 1m]}\n", i, i)
	}
	s, in := parse(b, f.String()), benchInput()
	in.Request.Path = "/v1/route500"
	var out rules.Matches
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Asks(in, &out); err != nil || len(out.Asks) != 1 {
			b.Fatal(err, out.Asks)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/rule")
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
			var out rules.Matches
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
	for b.Loop() {
		parse(b, f.String())
	}
}
