package rules_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/rules"
)

// A program decides its requests by the rules of a file.
func Example() {
	set, err := rules.Parse("rules.yaml", []byte(`
rules:
  - name: login
    match: request.method == "POST" && request.path == "/login"
    key: client.ip
    limits: [5 per 1m sliding_log, 100 per 1h]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	in := rules.Input{
		Client:  netip.MustParseAddr("2001:db8:1:2:3:4:5:6"),
		Request: &rules.Request{Method: "POST", Path: "/login"},
		Cost:    1,
	}
	var out rules.Plan // to be used again
	if err := set.Asks(&in, &out); err != nil {
		fmt.Println(err)
		return
	}
	d, err := new(stint.Limiter).Take(context.Background(), &stint.Request{Asks: out.Asks}, nil)
	fmt.Println(d.Outcome, "by", out.Rules[0].Name, "under", d.Limit.Terms(), "for", d.Key, err)
	// Output: allowed by login under 5 per 1m sliding_log for 2001:db8:1:2::/64 <nil>
}

func ExampleParse_errors() {
	_, err := rules.Parse("rules.yaml", []byte(`
rules:
  - name: login
    mach: request.path == "/login"
    key: client.ipp
    limits: [5 per 1y]
`))
	fmt.Println(err)
	// Output:
	// rules.yaml:4:5: unknown field "mach": did you mean match? (fields: cost, cost_after, debt, decision_timeout, default, key, limits, match, max_hold, message, messages, mode, name, on_store_error, penalty, preflights, refusal, shape, tiers, tokens, unit, unreadable_body, unsettled)
	// rules.yaml:5:10: unknown variable "client.ipp": did you mean client.ip? (variables: request.method, request.path, request.host, request.route, request.headers, request.query, request.cookies, request.credential, body, client.ip, operation, attrs, claims, secrets, cost)
	// rules.yaml:6:14: limit "5 per 1y": period "1y": must be a duration such as 500ms, 10s, 1m30s, 24h or 7d, or day, week, month or year
}

// What a request sends cannot make a rule not apply by being malformed.
func ExampleSet_Asks_malformed() {
	set, err := rules.Parse("rules.yaml", []byte(`
rules:
  - name: upload
    key: client.ip
    cost: int(request.headers["content-length"])
    limits: [1000000 per 1h]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	in := rules.Input{
		Client:  netip.MustParseAddr("192.0.2.1"),
		Request: &rules.Request{Header: http.Header{"Content-Length": {"lots"}}},
	}
	err = set.Asks(&in, new(rules.Plan))
	fmt.Println(errors.Is(err, stint.ErrRequest), err)
	// Output:
	// true rules: bad request: rule "upload": cost: type conversion error from 'string' to 'int'
}
