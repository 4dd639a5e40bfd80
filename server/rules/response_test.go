package rules_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

// answered is a response with a JSON body; empty: it has none. It fails the test if a path is looked
// for that the rule has not named.
func answered(t testing.TB, r *rules.Rule, status int, text string) *rules.Response {
	t.Helper()
	value := decoded(t, text)
	return &rules.Response{Status: status, Bytes: int64(len(text)), Unzipped: int64(len(text)), Seconds: 2.5,
		Headers: http.Header{"X-Cost": {"12"}, "X-Costs": {"1", "2"}},
		JSON: func(path []string) (any, bool) {
			if !strings.Contains(fmt.Sprint(r.UsagePaths()), fmt.Sprint(path)) {
				t.Errorf("%v is looked for, and is not one of %v", path, r.UsagePaths())
			}
			return at(value, path)
		}}
}

// after is what CostAfter says: a number, "unknown" or the error.
func after(r *rules.Rule, resp *rules.Response) string {
	cost, known, err := r.CostAfter(resp)
	switch {
	case err != nil && (known || cost != 0):
		return "KNOWN after an error: " + err.Error()
	case err != nil:
		return err.Error()
	case !known:
		return "unknown"
	}
	return fmt.Sprint(cost)
}

func TestCostAfter(t *testing.T) {
	for _, c := range []struct {
		expression string
		status     int
		body, want string
	}{
		{`response.status`, 200, ``, `200`},
		{`response.bytes`, 200, `{"n": 1}`, `8`},
		{`response.seconds`, 200, ``, `3`},
		{`response.seconds * 10.0`, 200, ``, `25`},
		{`int(response.headers["x-cost"])`, 200, ``, `12`},
		{`size(response.headers["x-costs"])`, 200, ``, `4`},
		{`size(response.headers)`, 200, ``, `2`},
		{`int(response.headers["x-other"])`, 200, ``, `unknown`},
		{`has(response.headers.etag) ? 1 : 2`, 200, ``, `2`},
		{`7`, 500, ``, `7`},
		{`response.status >= 500 ? 0 : response.json.usage.n`, 500, ``, `0`},
		{`response.status >= 500 ? 0 : response.json.usage.n`, 200, ``, `unknown`},
		{`response.json.usage.n`, 200, `{"usage": {"n": 42}}`, `42`},
		{`response.json.usage.n`, 200, `{"usage": {"n": 41.5}}`, `42`},
		{`response.json.usage.n`, 200, `{"usage": {"n": null}}`, `unknown`},
		{`response.json.usage.n`, 200, `{"usage": {}}`, `unknown`},
		{`response.json.usage.n`, 200, `{"usage": 5}`, `unknown`},
		{`response.json.usage.n`, 200, `[]`, `unknown`},
		{`response.json.usage.n`, 200, `{"usage": {"n": "42"}}`, `rules: rule "r": cost_after: want a number, have a string`},
		{`response.json.usage.n`, 200, `{"usage": {"n": -1}}`, `rules: rule "r": cost_after: -1: must not be negative`},
		{`response.json.usage.n`, 200, `{"usage": {"n": 1e300}}`, `rules: rule "r": cost_after: 1e+300: too large`},
		{`int(response.json.usage.n)`, 200, `{"usage": {"n": "x"}}`, `rules: rule "r": cost_after: type conversion error from 'string' to 'int'`},
		{`response.json.a.i + 5 * response.json.a.o`, 200, `{"a": {"i": 10, "o": 3}}`, `25`},
		{`has(response.json.a) ? 1 : 0`, 200, `{"b": 1}`, `0`},
		{`has(response.json.a.b) ? response.json.a.b : response.json.a.c`, 200, `{"a": {"c": 4}}`, `4`},
		{`has(response.json.a) && has(response.json.a.b) ? response.json.a.b : 1`, 200, `{"a": 5}`, `1`},
		{`response.json["a"]["b c"]`, 200, `{"a": {"b c": 6}}`, `6`},
		{`has(response.json.a.b) ? 1 / response.json.a.b : 1`, 200, `{"a": {"b": 0}}`, `rules: rule "r": cost_after: division by zero`},
	} {
		s := parse(t, "rules:\n  - name: r\n    key: client.ip\n    limits: [9 per 1m fixed_window hold]\n    cost_after: "+quoted(c.expression)+"\n")
		r := s.Rules[0]
		if got := after(r, answered(t, r, c.status, c.body)); got != c.want {
			t.Errorf("%s of %s: got %s, want %s", c.expression, c.body, got, c.want)
		}
		if got := after(r, &rules.Response{}); strings.Contains(got, "panic") || strings.Contains(got, "internal") {
			t.Errorf("%s of no response: %s", c.expression, got)
		}
	}
}

// A rule that does not say what requests cost in the end does not know it.
func TestCostAfterIsNotGiven(t *testing.T) {
	r := parse(t, `rules: [{name: r, key: client.ip, limits: [9 per 1m fixed_window hold]}]`).Rules[0]
	if got := after(r, answered(t, r, 200, `{"usage": {"n": 3}}`)); got != "unknown" || len(r.UsagePaths()) > 0 {
		t.Errorf("got %s, paths %v", got, r.UsagePaths())
	}
}
