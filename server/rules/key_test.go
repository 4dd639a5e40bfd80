package rules_test

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/address"
	"github.com/stintdev/stint/server/rules"
)

func TestKeys(t *testing.T) {
	in := &rules.Input{
		Client:    addr("203.0.113.7"),
		Operation: "read",
		Request:   get("/p?u=7&u=8", "X-Api-Key", "k", "X-Empty", "", "X-Bad", "\xff", "X-Nul", "a\x00b", "X-Long", strings.Repeat("k", stint.MaxKey+1), "X-Max", strings.Repeat("k", stint.MaxKey)),
		Attrs: map[string]any{
			"s": "text", "i": int64(-5), "f": 2.5, "whole": 3.0, "big": 1e21, "b": true, "nil": nil, "zero": math.Copysign(0, -1),
			"list": []any{"a", int64(1)}, "holes": []any{"a", nil}, "empty": []any{}, "deep": []any{[]any{"a"}},
			"map": map[string]any{"a": "b"}, "inf": math.Inf(1), "nan": math.NaN(), "esc": "a\x00b",
		},
	}
	const bad = "rules: bad request: rule \"r\": key: "
	const noText = "rules: rule \"r\": key: the request has bytes that are not UTF-8 in its path or in a header: x-bad"
	for _, c := range []struct{ key, want string }{
		// A string is the key; other scalars are their text.
		{`"all"`, `r="all":0`},
		{`attrs.s`, `r="text":0`},
		{`attrs.i`, `r="-5":0`},
		{`7u`, `r="7":0`},
		{`attrs.f`, `r="2.5":0`},
		{`attrs.whole`, `r="3":0`},
		{`attrs.big`, `r="1000000000000000000000":0`},
		{`attrs.zero`, `r="0":0`},
		{`attrs.b`, `r="true":0`},
		{`request.query.u`, `rules: rule "r": key: the request has a parameter several times in its query: u`},
		{`request.headers["x-api-key"]`, `r="k":0`},
		{`operation + "/" + request.method`, `r="read/GET":0`},
		// A list is its parts, each ended by a NUL.
		{`[operation, attrs.i]`, `r="read\x00-5\x00":0`},
		{`[operation]`, `r="read\x00":0`},
		{`attrs.list`, `r="a\x001\x00":0`},
		{`[operation, ""]`, `r="read\x00\x00":0`},
		// Missing or null: the rule does not apply.
		{`attrs.gone`, ``},
		{`attrs.nil`, ``},
		{`null`, ``},
		{`attrs.s.deeper`, ``},
		{`attrs.map.gone`, ``},
		{`request.headers["x-gone"]`, ``},
		{`request.query.gone`, ``},
		{`request.path.split("/")[9]`, ``},
		{`[operation, attrs.gone]`, ``},
		{`[operation, attrs.nil]`, ``},
		{`attrs.holes`, ``},
		{`has(attrs.gone) ? attrs.gone : null`, ``},
		// Nothing that all would share, nothing that a store or a log would choke on.
		{`request.headers["x-empty"]`, bad + "it is empty"},
		{`["", request.headers["x-empty"]]`, bad + "it is empty"},
		{`attrs.empty`, bad + "it is empty"},
		{`request.headers["x-bad"]`, noText},
		{`[operation, request.headers["x-bad"]]`, noText},
		{`request.headers["x-nul"]`, bad + "it contains a NUL byte"},
		{`[attrs.esc]`, bad + "it contains a NUL byte"},
		{`request.headers["x-long"]`, bad + "it is longer than 4096 bytes"},
		{`[request.headers["x-max"]]`, bad + "it is longer than 4096 bytes"},
		{`attrs.deep`, bad + "a list cannot be a key"},
		{`attrs.map`, bad + "a map cannot be a key"},
		{`attrs.inf`, bad + "the number +Inf cannot be a key"},
		{`attrs.nan`, bad + "the number NaN cannot be a key"},
		// Other failures are no excuse.
		{`int(attrs.s)`, bad + "type conversion error from 'string' to 'int'"},
		{`attrs.i * 9223372036854775807`, bad + "integer overflow"},
		{`request.path.substring(50)`, bad + "index out of range: 50"},
	} {
		if got := asked(one(t, "key: "+quoted(c.key)), in); got != c.want {
			t.Errorf("key %s:\ngot  %s\nwant %s", c.key, clip(got), c.want)
		}
	}
	longest := asked(one(t, `key: request.headers["x-max"]`), in)
	if want := fmt.Sprintf("r=%q:0", strings.Repeat("k", stint.MaxKey)); longest != want {
		t.Errorf("the longest key: got %s", clip(longest))
	}
}

func clip(s string) string { return s[:min(len(s), 300)] }

// Different lists have different keys, and none has the key of a string.
func TestListKeysDoNotCollide(t *testing.T) {
	s := one(t, "key: attrs.k")
	parts := []string{"a", "b", "a:b", "b:c", "", "a,b", `a","b`, "1:a", "\\x00", "[a b]"}
	keys := map[string]string{}
	add := func(k any) {
		var out rules.Plan
		if s.Asks(&rules.Input{Attrs: map[string]any{"k": k}}, &out) != nil {
			return // empty
		}
		if other, ok := keys[out.Asks[0].Key]; ok {
			t.Fatalf("%q and %s have the key %q", k, other, out.Asks[0].Key)
		}
		keys[out.Asks[0].Key] = fmt.Sprintf("%q", k)
	}
	for _, a := range parts {
		add(a)
		add([]any{a})
		for _, b := range parts {
			add([]any{a, b})
			for _, c := range parts {
				add([]any{a, b, c})
			}
		}
	}
	if len(keys) < 1000 {
		t.Errorf("only %d keys", len(keys))
	}
}

func TestClient(t *testing.T) {
	s := parse(t, `
ipv6_prefix: 56
rules:
  - {name: key, key: client.ip, limits: [5 per 1m]}
  - {name: full, match: 'client.ip == "2001:db8:1:2ff::9"', key: '"x"', limits: [5 per 1m]}
  - {name: local, key: 'client.ip in cidr("2001:db8::/32") ? "local" : "other"', limits: [5 per 1m]}
  - {name: v4, match: 'client.ip in cidr("::ffff:203.0.113.0/120")', key: client.ip, limits: [5 per 1m]}
`)
	for _, c := range []struct{ client, want string }{
		{"203.0.113.7", `key="203.0.113.7":0 local="other":0 v4="203.0.113.7":0`},
		{"::ffff:203.0.113.7", `key="203.0.113.7":0 local="other":0 v4="203.0.113.7":0`},
		{"2001:db8:1:2ff::9", `key="2001:db8:1:200::/56":0 full="x":0 local="local":0`},
		{"2001:db8:1:2ff::9%eth0", `key="2001:db8:1:200::/56":0 full="x":0 local="local":0`},
		{"2001:db9::1", `key="2001:db9::/56":0 local="other":0`},
	} {
		if got := asked(s, &rules.Input{Client: addr(c.client)}); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.client, got, c.want)
		}
	}
	if got := asked(s, &rules.Input{}); got != "" {
		t.Errorf("unknown client: got %s", got)
	}
	for client, want := range map[string]string{"2001:db8:1:2::3": "2001:db8:1:2::/64", "192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1"} {
		if got := address.Counted(addr(client), one(t, "key: client.ip").IPv6Prefix); got != want {
			t.Errorf("Counted(%s) is %s, want %s", client, got, want)
		}
	}
	if got := address.Counted(netip.Addr{}, s.IPv6Prefix); got != "" {
		t.Errorf("the key of no client is %q", got)
	}
}
