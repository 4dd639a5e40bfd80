package server_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/rulestest"
)

// The same, of requests that a history does not have.
func TestKindsInSmall(t *testing.T) {
	passes := upstream(t, pass)
	type ask = func(*kindHistory) *seen
	checks := func(body string) ask {
		return func(h *kindHistory) *seen { s, _ := h.asks("/v1/check", body); return s }
	}
	sends := func(method, target string, body io.Reader, headers ...string) ask {
		return func(h *kindHistory) *seen {
			w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/", body)
			r.Method, r.RequestURI = method, target
			for _, line := range headers {
				name, value, _ := strings.Cut(line, ": ")
				r.Header.Add(name, value)
			}
			h.gateway.ServeHTTP(final{w}, r)
			s := &seen{asked: method + " " + target}
			s.answered(w.Code, w.Header(), w.Body.Bytes())
			return s
		}
	}
	broken := func() io.Reader {
		return io.MultiReader(strings.NewReader(`{"n":`), iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	const sized = "rules: [{name: sized, match: has(attrs.size), key: '\"all\"', cost: int(attrs.size), limits: [10 per 1h]}]"
	const bodies = `rules: [{name: bodies, key: '"all"', cost: 'has(body.n) ? int(body.n) : 1', limits: [10 per 1h], unreadable_body: `
	const tokens = "rules: [{name: tokens, key: '\"all\"', tokens: openai, limits: [100000 per 1h fixed_window hold]}]"
	small := func(c *server.Config) { c.Settings.Instance = config.Instance{InFlight: 10, Bytes: 200 << 10} }
	const malformed = `{"attrs":{"size":"x"}}`
	for _, c := range []struct {
		name, rules string
		ask         ask
		places      string // that want says
		want        string
		change      func(*server.Config)
	}{
		{"the debug line of a safe request", "safelist: [operation == \"ping\"]\nrules: []", checks(`{"operation":"ping"}`), "counter span debug", "safe", nil},
		{"the debug line of an unmatched request", "rules: []", checks(`{}`), "counter span debug", "unmatched", nil},
		{"the debug line of a malformed request", sized, checks(malformed), "counter span debug", "malformed", nil},
		{"the debug line of an overloaded request", "rules: []", func(h *kindHistory) *seen {
			h.look(func() *seen { return checks(`{}`)(h) })
			h.spans.Reset()
			return checks(`{}`)(h)
		}, "counter span debug", "overloaded",
			func(c *server.Config) { c.Settings.Instance.Limit = stint.MustLimit("1 per 1h") }},
		{"the span of a charge", sized, checks(`{"charge":true,"attrs":{"size":2}}`), "span request", "", nil},
		{"the spans of charges", sized, checks(`[{"charge":true,"attrs":{"size":2}},{"charge":true,"attrs":{"size":2}}]`), "span", "", nil},
		{"the counter of a malformed charge", sized, checks(`{"charge":true,` + malformed[1:]), "counter request", "malformed", nil},
		{"the counter of malformed charges", sized, checks(`[{"charge":true,` + malformed[1:] + `]`), "counter", "malformed", nil},
		{"the span of a check that cannot be read", sized, checks(unreadable), "counter request", "malformed", nil},
		{"the counter and the span of a target that cannot be read", "rules: []", sends("GET", "/%zz", nil), "counter request access", "malformed", nil},
		{"the counter and the span of a host that cannot be read", "rules: []", func(h *kindHistory) *seen {
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Host = "a b"
			h.gateway.ServeHTTP(w, r)
			return new(seen)
		}, "counter request access", "malformed", nil},
		{"the counter and the span of an ambiguous target", "rules: [{name: p, match: 'request.path == \"/a\"', key: '\"all\"', limits: [10 per 1h]}]", sends("GET", "/a%2fb", nil), "counter request access", "malformed", nil},
		{"the span of a question that names no request", "trusted_proxies: [192.0.2.1]\nrules: []", func(h *kindHistory) *seen {
			h.api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://localhost/v1/authorize", nil))
			return new(seen)
		}, "counter request", "malformed", nil},
		{"a body that breaks off, where the rule refuses those", bodies + "refuse}]", sends("POST", "/", broken()), "counter span request access", "malformed", nil},
		{"a body that breaks off, where the rule has a default", bodies + "default}]", sends("POST", "/", broken()), "counter span request access", "malformed", nil},
		{"a body with tokens that breaks off", tokens, sends("POST", "/v1/chat/completions", broken()), "counter span request access", "malformed", nil},
		{"a body with tokens for which there is no room", tokens, sends("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[`+strings.Repeat(`{"role":"user","content":"text"},`, 9000)+`{}]}`)), "counter span request access", "overloaded", small},
		{"a body for which there is no room", bodies + "default}]", sends("POST", "/", strings.NewReader("["+strings.Repeat("{},", 3000)+"{}]")), "counter span request access", "overloaded", small},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &kindHistory{doorsOfKinds: new(doorsOfKinds), scenario: &rulestest.Scenario{Rules: c.rules, Envoy: "domain: none\n"}}
				if c.change == nil {
					c.change = func(*server.Config) {}
				}
				h.start(t, passes, c.change)
				saw := h.look(func() *seen { return c.ask(h) })
				for _, place := range strings.Fields(c.places) {
					if got := fmt.Sprint(saw.at[place]); got != "["+c.want+"]" {
						t.Errorf("the place %s says %s, want %q; %s", place, got, c.want, saw)
					}
				}
			})
		})
	}
}
