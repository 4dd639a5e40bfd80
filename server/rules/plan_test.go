package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// An expression cannot be made to work for long or to fill the memory.
func TestWorkIsBounded(t *testing.T) {
	long := strings.Repeat("a", 60_000)
	in := &rules.Input{Request: get("/"+long, "X-A", long), Attrs: map[string]any{"l": slices.Repeat([]any{"x"}, 2000)}}
	for _, match := range []string{
		`attrs.l.all(a, attrs.l.all(b, a == b))`,
		`request.path.replace("", request.path) == ""`,
		`request.path.replace("a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 50000) == ""`,
		`request.path.split("").join(request.path) == ""`,
		`attrs.l.map(a, request.path).join() == ""`,
		`attrs.l.all(a, !request.headers["x-a"].contains(request.path + a))`,
		`(request.path + request.path + request.path + request.path).split("").all(x, x == "a" || x == "/")`,
	} {
		got := asked(one(t, `key: '"k"'`, "match: "+quoted(match)), in)
		if got != `rules: bad request: rule "r": match: operation cancelled: actual cost limit exceeded` &&
			got != `rules: bad request: rule "r": match: the resulting text would be too long` {
			t.Errorf("%s: got %s", match, clip(got))
		}
	}
	for match, want := range map[string]bool{
		`"a-b-c".replace("-", "") == "abc" && request.host.replace("e", "xx") == "xxxamplxx.com"`: true,
		`request.host.replace("e", "x", 1) == "xxample.com"`:                                      true,
		`request.host.replace("e", "x", 0) == "example.com"`:                                      true,
		`request.host.replace("e", "x", -1) == "xxamplx.com"`:                                     true,
		`request.host.replace("", "-") == "-e-x-a-m-p-l-e-.-c-o-m-"`:                              true,
		`request.host.split(".").join() == "examplecom"`:                                          true,
		`request.host.split(".").join("::") == "example::com"`:                                    true,
	} {
		if got := asked(one(t, `key: '"k"'`, "match: "+quoted(match)), in) != ""; got != want {
			t.Errorf("%s: %t, want %t", match, got, want)
		}
	}
}

func TestNetworks(t *testing.T) {
	in := &rules.Input{Client: addr("192.0.2.77"), Attrs: map[string]any{
		"mapped": "::ffff:192.0.2.1", "zone": "fe80::1%eth0", "net": "192.0.2.0/25", "wide": "192.0.0.0/16", "cidr": "192.0.2.0/24"}}
	for match, want := range map[string]bool{
		`client.ip in cidr("192.0.2.0/24")`:                                    true,
		`client.ip in cidr("192.0.2.77/24")`:                                   true,
		`client.ip in cidr("192.0.2.77")`:                                      true,
		`client.ip in cidr("::ffff:192.0.2.0/120")`:                            true,
		`client.ip in cidr("::/0")`:                                            false,
		`client.ip in cidr("192.0.3.0/24")`:                                    false,
		`!(client.ip in cidr("192.0.3.0/24"))`:                                 true,
		`client.ip in cidr(attrs.cidr)`:                                        true,
		`attrs.mapped in cidr("192.0.2.0/24")`:                                 true,
		`attrs.zone in cidr("fe80::/10")`:                                      true,
		`attrs.net in cidr("192.0.2.0/24")`:                                    true,
		`attrs.wide in cidr("192.0.2.0/24")`:                                   false,
		`cidr("192.0.2.9/24") == cidr("192.0.2.0/24")`:                         true,
		`[cidr("10.0.0.0/8"), cidr("192.0.2.0/24")].exists(n, client.ip in n)`: true,
	} {
		if got := asked(one(t, `key: '"k"'`, "match: "+quoted(match)), in) != ""; got != want {
			t.Errorf("%s: %t, want %t", match, got, want)
		}
	}
	const want = `rules: bad request: rule "r": match: "192.0.2.0/25/1": must be a network such as 10.0.0.0/8, or an address`
	if got := asked(one(t, `key: '"k"'`, `match: client.ip in cidr(attrs.net + "/1")`), in); got != want {
		t.Errorf("a network that is none: got %s", got)
	}
}

// The parts of an expression that are worked out at load mean what CEL means.
func TestSimplifiedParts(t *testing.T) {
	in := &rules.Input{Request: get("/b"), Attrs: map[string]any{"s": "b", "i": int64(2), "f": 2.0, "l": []any{"b"}, "t": true}}
	for match, want := range map[string]bool{
		`request.path in ["/a", "/b"]`:            true,
		`request.path in ["/a", "/c"]`:            false,
		`request.path in []`:                      false,
		`attrs.s in ["a", "b"]`:                   true,
		`attrs.i in ["a", "2"]`:                   false,
		`attrs.l in ["a", "b"]`:                   false,
		`attrs.f in [1, 2]`:                       true,
		`attrs.i in [1.0, 2.0]`:                   true,
		`attrs.i in ["2", 2]`:                     true,
		`"b" in attrs.l`:                          true,
		`request.path.matches("^/[a-c]$")`:        true,
		`attrs.s.matches("^[x-z]$")`:              false,
		`1 + 1 == 2 && request.path == "/" + "b"`: true,
		`true`:                                         true,
		`false`:                                        false,
		`has(attrs.t) && attrs.t`:                      true,
		`attrs.t || attrs.gone`:                        true,
		`(attrs.t ? "b" : "c") in ["b"]`:               true,
		`[[1, 2], [3]].exists(l, attrs.i in l)`:        true,
		`{"/b": true}[request.path]`:                   true,
		`["/a", "/b"][attrs.i - 1] == "/b"`:            true,
		`request.path.size() == 2 ? true : 1 / 1 == 2`: true,
	} {
		if got := asked(one(t, `key: '"k"'`, "match: "+quoted(match)), in) != ""; got != want {
			t.Errorf("%s: %t, want %t", match, got, want)
		}
	}
	const notBool = `rules: bad request: rule "r": match: no such overload`
	if got := asked(one(t, `key: '"k"'`, `match: attrs.s || attrs.t == false`), in); got != notBool {
		t.Errorf("|| of text: got %s", got)
	}
}
