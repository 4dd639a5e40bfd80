package rules_test

import (
	"fmt"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

func TestCost(t *testing.T) {
	in := &rules.Input{Client: addr("192.0.2.1"), Request: get("/12345?n=7&bad=x&neg=-3"), Cost: 4,
		Attrs: map[string]any{"size": int64(9), "f": 2.9, "huge": 1e300, "nil": nil}}
	const bad = "rules: bad request: rule \"r\": cost: "
	for _, c := range []struct{ cost, want string }{
		{`7`, `r="192.0.2.1":7`},
		{`0`, `r="192.0.2.1":0`},
		{`cost`, `r="192.0.2.1":4`},
		{`cost * 2 + 1`, `r="192.0.2.1":9`},
		{`size(request.path)`, `r="192.0.2.1":6`},
		{`int(attrs.size)`, `r="192.0.2.1":9`},
		{`int(attrs.f)`, `r="192.0.2.1":2`},
		{`int(request.query.n)`, `r="192.0.2.1":7`},
		{`has(attrs.gone) ? int(attrs.gone) : 1`, `r="192.0.2.1":1`},
		{`int(attrs.gone)`, bad + "it reads a value that is missing; test for it with has()"},
		{`int(request.query.neg)`, bad + "-3: must not be negative"},
		{`cost - 5`, bad + "-1: must not be negative"},
		{`int(request.query.bad)`, bad + "type conversion error from 'string' to 'int'"},
		{`int(attrs.huge)`, bad + "integer overflow"},
		{`int(attrs.nil)`, bad + "no such overload: int(null_type)"},
		{`9223372036854775807 + cost`, bad + "integer overflow"},
		{`cost / (cost - 4)`, bad + "division by zero"},
	} {
		if got := asked(one(t, "key: client.ip", "cost: "+quoted(c.cost)), in); got != c.want {
			t.Errorf("cost %s:\ngot  %s\nwant %s", c.cost, got, c.want)
		}
	}
	if got := asked(one(t, "key: client.ip"), in); got != `r="192.0.2.1":4` {
		t.Errorf("no cost: got %s", got)
	}
}

// What is missing makes a match false, what goes wrong makes the request
// malformed; || and && may decide without either.
func TestMissingAndWrong(t *testing.T) {
	in := &rules.Input{Client: addr("192.0.2.1"), Request: get("/a", "X-N", "zzz"),
		Attrs: map[string]any{"n": "abc", "list": []any{int64(1)}, "items": []any{map[string]any{}, map[string]any{"n": "x"}}, "nil": nil, "ip": "nobody"}}
	const yes, no = `r="k":0`, ``
	const bad = "rules: bad request: rule \"r\": match: "
	for _, c := range []struct{ match, want string }{
		{`attrs.gone == "x"`, no},
		{`attrs.gone != "x"`, no},
		{`!(attrs.gone == "x")`, no},
		{`!has(attrs.gone)`, yes},
		{`operation == ""`, no},
		{`attrs.list[3] == 1`, no},
		{`attrs.nil == null`, yes},
		{`"x" in attrs.gone`, no},
		{`"x-n" in request.headers && !("x-m" in request.headers)`, yes},
		{`attrs.gone == "x" || request.path == "/a"`, yes},
		{`request.path == "/a" || attrs.gone == "x"`, yes},
		{`attrs.gone == "x" || request.path == "/b"`, no},
		{`attrs.gone == "x" && request.path == "/a"`, no},
		{`attrs.gone == "x" ? true : true`, no},

		{`int(attrs.n) > 5`, bad + "type conversion error from 'string' to 'int'"},
		{`int(attrs.n) > 5 || request.path == "/a"`, yes},
		{`int(attrs.n) > 5 && request.path == "/b"`, no},
		{`attrs.n > 5`, bad + "no such overload"},
		{`attrs.ip in cidr("10.0.0.0/8")`, bad + `"nobody": must be a network such as 10.0.0.0/8, or an address`},
		{`request.headers["x-n"] in cidr("10.0.0.0/8")`, bad + `"zzz": must be a network such as 10.0.0.0/8, or an address`},
		{`attrs.list["x"] == 1`, bad + "unsupported index type 'string' in list"},

		// Something wrong cannot hide behind something missing, whatever the order.
		{`attrs.gone == "x" || int(attrs.n) > 5`, bad + "type conversion error from 'string' to 'int'"},
		{`int(attrs.n) > 5 || attrs.gone == "x"`, bad + "type conversion error from 'string' to 'int'"},
		{`attrs.gone == "x" && int(attrs.n) > 5`, bad + "type conversion error from 'string' to 'int'"},
		{`(attrs.gone == "x" || (attrs.gone == "y" && int(attrs.n) > 5)) || operation == "z"`, bad + "type conversion error from 'string' to 'int'"},
		{`!(attrs.gone == "x" || !(int(attrs.n) > 5))`, bad + "type conversion error from 'string' to 'int'"},
		{`attrs.items.exists(i, int(i.n) > 5)`, bad + "type conversion error from 'string' to 'int'"},
		{`attrs.items.all(i, int(i.n) > 5)`, bad + "type conversion error from 'string' to 'int'"},
		{`attrs.items.exists(i, i.m > 5)`, no},
		{`attrs.gone == "x" || has(attrs.n) || int(attrs.n) > 5`, yes},
		{`attrs.gone == "x" || request.path in ["/b", "/c"] || int(attrs.n) > 5`, bad + "type conversion error from 'string' to 'int'"},
		{`attrs.gone == "x" || request.path.matches("^/b") || int(attrs.n) > 5`, bad + "type conversion error from 'string' to 'int'"},
	} {
		if got := asked(one(t, `key: '"k"'`, "match: "+quoted(c.match)), in); got != c.want {
			t.Errorf("match %s:\ngot  %s\nwant %s", c.match, got, c.want)
		}
	}
	const lists = "%s: [%s]\nrules: [{name: r, key: '\"k\"', limits: [5 per 1m]}]"
	for _, list := range []string{"safelist", "blocklist"} {
		if got := asked(parse(t, fmt.Sprintf(lists, list, `attrs.gone == "x"`)), in); got != yes {
			t.Errorf("%s, missing: got %s", list, got)
		}
		want := "rules: bad request: " + list + " entry 2: type conversion error from 'string' to 'int'"
		if got := asked(parse(t, fmt.Sprintf(lists, list, `"false", int(attrs.n) > 5`)), in); got != want {
			t.Errorf("%s, wrong: got %s", list, got)
		}
	}
}

// A request that is not known makes all that is said of it missing.
func TestUnknown(t *testing.T) {
	for _, variable := range []string{"request.method", "request.path", "request.host", `request.headers["a"]`, `request.query["a"]`, "client.ip", "operation"} {
		for _, c := range []struct{ field, want string }{
			{"key: " + quoted(variable), ""},
			{`key: '"k"'` + "\n    match: " + quoted(variable+` == "x"`), ""},
			{`key: '"k"'` + "\n    match: " + quoted(variable+` != "x"`), ""},
			{`key: '"k"'` + "\n    cost: " + quoted(`size(`+variable+`)`), `rules: bad request: rule "r": cost: it reads a value that is missing; test for it with has()`},
		} {
			if got := asked(one(t, c.field), &rules.Input{}); got != c.want {
				t.Errorf("%s: got %s, want %s", c.field, got, c.want)
			}
		}
	}
	for _, match := range []string{`size(request.headers) == 0`, `request.headers == request.query`, `request.query.exists(n, true)`, `"a" in request.query`} {
		if got := asked(one(t, `key: '"k"'`, "match: "+quoted(match)), &rules.Input{}); got != "" {
			t.Errorf("%s: got %s", match, got)
		}
	}
}
