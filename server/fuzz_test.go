package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever a check request says, it is answered: allowed, refused, blocked, or
// malformed, and then with a reason.
func FuzzCheck(f *testing.F) {
	for _, body := range []string{
		`{}`, `{"operation":"login","client":"192.0.2.1","cost":3}`, `{"t_us":1}`, `{"cost":-1}`, `{"client":"2001:db8::1%eth0"}`,
		`{"request":{"method":"POST","path":"//login?a=b&c","host":"Example.com:80","headers":{"x-api-key":"k","accept":["a","b"]},"query":{"q":"1"}}}`,
		`{"attrs":{"user":"a\u0000","size":1e3,"list":[1,{"x":null}],"deep":{"er":{"still":true}}}}`, `{"attrs":{"user":"\ud800"}}`, "{\"attrs\":{\"user\":\"\xff\"}}",
		`{"operation":"bad"}`, `{"attrs":{"user":""}}`,
		`{"hold":"60s","cost":7,"attrs":{"user":"a"}}`, `{"charge":true,"cost":8,"attrs":{"user":"a"}}`, `[{"hold":"1us"},{"charge":false},{"hold":"1h","attrs":{"user":"b"}},{"charge":true,"cost":0}]`,
		`{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}],"hits_addend":3},{"entries":[{"key":"a","value":"1"}],"is_negative_hits":true},{"entries":[{"key":"q"}],"limit":{"requests_per_unit":0,"unit":"DAY"}}]}`,
		`{"domain":"d","hold":"60s","cost":2,"descriptors":[{"entries":[{"key":"q","value":""}]},{"entries":[{"key":"p","value":"x"},{"key":"a"}]}]}`,
		`[]`, `[{}]`, `[{"attrs":{"user":"a"}},{"attrs":{"user":"\ud800","x":["]"]}},null,[{}],{"cost":1.5,"attrs":{}},-7.5e3,"\\\"]",{"operation":"bad"}]`,
	} {
		f.Add([]byte(body))
	}
	s := newCalls(f, `
domain: d
descriptors:
  - {key: a, penalty: {ban_after: 3, ban_for: 1h}, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: q, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 5, hold: true}}
  - {key: p, descriptors: [{key: a, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 1, algorithm: leaky_bucket}}]}
`, `
safelist: ['attrs.deep.er.still == true']
blocklist: ['operation == "bad"']
rules:
  - {name: user, key: attrs.user, limits: [2 per 1h], penalty: {ban_after: 3, ban_for: 1h}}
  - {name: client, key: client.ip, limits: [50 per 1h sliding_log, 9 per 1s leaky_bucket]}
  - {name: api, match: 'request.path.startsWith("/")', key: '[request.headers["x-api-key"], request.query.q]', limits: [20 per 1m fixed_window], mode: shadow}
  - {name: size, match: 'attrs.size > 5', key: string(attrs.size), cost: int(attrs.size), limits: [100 per 1m]}
  - {name: tokens, key: attrs.user, limits: [100 per 1m fixed_window hold, 9 in_flight]}
  - {name: list, match: '"x" in attrs.list || request.host.endsWith(".com")', key: request.method, limits: [100 per 1m sliding_window]}
`)
	f.Fuzz(func(t *testing.T, body []byte) {
		w := check(s, string(body))
		if !utf8.Valid(w.Body.Bytes()) {
			t.Fatalf("answer %q", w.Body)
		}
		var asked []json.RawMessage
		if w.Code == http.StatusOK && strings.HasPrefix(strings.TrimSpace(string(body)), "[") {
			var each []json.RawMessage
			if json.Unmarshal(body, &asked) != nil || json.Unmarshal(w.Body.Bytes(), &each) != nil || len(each) != len(asked) || len(each) > 1000 {
				t.Fatalf("answer %q", w.Body)
			}
			for i := range each {
				var said struct{ Status int }
				if err := json.Unmarshal(each[i], &said); err != nil {
					t.Fatalf("%q: %v", each[i], err)
				}
				isAnswered(t, said.Status, asked[i], each[i])
			}
			return
		}
		if w.Code == http.StatusRequestEntityTooLarge && json.Unmarshal(body, &asked) == nil && len(asked) > 1000 {
			return
		}
		isAnswered(t, w.Code, body, w.Body.Bytes())
	})
}

// Whatever a settlement or a renewal says, it is answered: done, nothing found, or malformed.
func FuzzSettle(f *testing.F) {
	s := newServer(f, `rules: [{name: tokens, key: attrs.user, limits: [100 per 1m fixed_window hold, 9 in_flight]}]`)
	var reply struct{ Hold string }
	if err := json.Unmarshal(check(s, `{"hold":"24h","cost":30,"attrs":{"user":"a"}}`).Body.Bytes(), &reply); err != nil || reply.Hold == "" {
		f.Fatal("no hold", err)
	}
	for _, body := range []string{
		`{}`, `[]`, `{"hold":"` + reply.Hold + `"}`, `{"hold":"` + reply.Hold + `","again":true}`, `{"hold":"` + reply.Hold + `","cost":7,"costs":{"tokens":1}}`,
		`[{"hold":"` + reply.Hold + `","costs":{}},{"hold":"AQ"},null,{"hold":{}},{"cost":-1}]`, `{"hold":"` + reply.Hold + `","cost":9223372036854775807}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/settle", "/v1/renew"} {
			w := callCheck(s, path, body)
			var all []answered
			switch text := w.Body.Bytes(); {
			case w.Code == http.StatusRequestEntityTooLarge:
				continue
			case w.Code == http.StatusOK && strings.HasPrefix(strings.TrimSpace(body), "["):
				if err := json.Unmarshal(text, &all); err != nil {
					t.Fatalf("answer %q: %v", text, err)
				}
			default:
				all = make([]answered, 1)
				if err := json.Unmarshal(text, &all[0]); err != nil {
					t.Fatalf("answer %q: %v", text, err)
				}
				all[0].Status = w.Code
			}
			for _, a := range all {
				done := a.Outcome == "settled" || a.Outcome == "renewed" || a.Outcome == "unknown"
				if !(a.Status == http.StatusOK && done) && !(a.Status == http.StatusBadRequest && a.Detail != "" && len(a.Detail) < 1000) {
					t.Errorf("%s %q: %+v", path, body, a)
				}
			}
		}
	})
}

// isAnswered fails unless answer is one to a check.
func isAnswered(t *testing.T, status int, body, answer []byte) {
	t.Helper()
	var reply struct {
		Outcome, Rule, Detail string
		Allowed               *bool
		Decisions             []any
	}
	if err := json.Unmarshal(answer, &reply); err != nil {
		t.Fatalf("answer %q: %v", answer, err)
	}
	ok := false
	switch status {
	case http.StatusOK:
		ok = reply.Allowed == nil && reply.Outcome == "charged" || reply.Allowed != nil && *reply.Allowed && reply.Outcome == "allowed"
	case http.StatusTooManyRequests:
		ok = !*reply.Allowed && reply.Rule != ""
	case http.StatusForbidden:
		ok = !*reply.Allowed && reply.Outcome == "blocked"
	case http.StatusBadRequest:
		ok = reply.Detail != "" && reply.Allowed == nil && len(reply.Detail) < 1000
	}
	if !ok {
		t.Errorf("%d %s", status, answer)
	}
	if status != http.StatusBadRequest && json.Unmarshal(body, new(map[string]any)) != nil {
		t.Errorf("%d for what is no JSON object", status)
	}
}
