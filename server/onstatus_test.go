package server_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// asTold answers with the status that the path ends in, after early hints.
func asTold(w http.ResponseWriter, r *http.Request) {
	status, err := strconv.Atoi(path.Base(r.URL.Path))
	if err != nil {
		status = http.StatusOK
	}
	w.WriteHeader(http.StatusEarlyHints)
	w.WriteHeader(status)
}

// final drops interim responses, as a client's library does.
type final struct{ *httptest.ResponseRecorder }

func (f final) WriteHeader(status int) {
	if status >= 200 {
		f.ResponseRecorder.WriteHeader(status)
	}
}

// asked are the statuses of requests to a gateway, and what the limits say of each.
func asked(h http.Handler, targets ...string) string {
	var all []string
	for _, target := range targets {
		r := httptest.NewRequest("GET", target, nil)
		if user := r.URL.Query().Get("user"); user != "" {
			r.Header.Set("X-User", user)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(final{w}, r)
		all = append(all, strings.TrimSpace(fmt.Sprint(w.Code, " ", w.Header().Get("X-RateLimit-Remaining"))))
	}
	return strings.Join(all, ", ")
}

// Responses lead to bans, for the rules that name their statuses.
func TestOnStatus(t *testing.T) {
	const by = `key: 'request.headers["x-user"]', `
	dead, err := url.Parse("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	up := upstream(t, asTold)
	for _, c := range []struct {
		about, rules string
		ask          []string
		want         string
	}{
		{"as often as the penalty says, and no header tells of it",
			`{name: r, ` + by + `penalty: {on_status: [401, 403], ban_after: 3, ban_for: 1h}}`,
			[]string{"/401?user=a", "/403?user=a", "/200?user=a", "/404?user=a", "/401?user=b", "/401?user=a", "/200?user=a", "/200?user=b", "/200"},
			"401, 403, 200, 404, 401, 401, 429, 200, 200"},
		{"beside limits",
			`{name: r, ` + by + `limits: [5 per 1h], penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}`,
			[]string{"/401?user=a", "/401?user=a", "/?user=a", "/?user=b"},
			"401 4, 401 3, 429, 200 4"},
		{"beside another rule's limits, whose headers stay",
			`{name: w, ` + by + `penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}, {name: r, ` + by + `limits: [5 per 1h]}`,
			[]string{"/401?user=a", "/401?user=a", "/?user=a", "/?user=b"},
			"401 4, 401 3, 429, 200 4"},
		{"beside a limit that has more left than the look",
			`{name: w, ` + by + `penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}, {name: r, ` + by + `limits: [2000000000 per 24h fixed_window]}`,
			[]string{"/?user=a"}, "200 1999999999"},
		{"whatever the rule says of costs",
			`{name: r, cost: 99, ` + by + `penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}, {name: bad, cost: 'int(request.headers["x-user"])', ` + by + `penalty: {on_status: [402], ban_after: 2, ban_for: 1h}}`,
			[]string{"/200?user=a", "/401?user=a", "/401?user=a", "/200?user=a"},
			"200, 401, 401, 429"},
		{"a rule of several limits counts a response once",
			`{name: r, ` + by + `limits: [50 per 1h, 60 per 24h], penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}`,
			[]string{"/401?user=a", "/200?user=a", "/401?user=a", "/200?user=a"},
			"401 49, 200 48, 401 47, 429"},
		{"each rule by itself",
			`{name: r, ` + by + `penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}, {name: s, key: '"all"', penalty: {on_status: [404], ban_after: 1, ban_for: 1h}}`,
			[]string{"/401?user=a", "/404?user=b", "/401?user=c", "/200?user=a"},
			"401, 404, 429, 429"},
		{"not in shadow mode",
			`{name: r, mode: shadow, ` + by + `penalty: {on_status: [401], ban_after: 1, ban_for: 1h}}`,
			[]string{"/401?user=a", "/401?user=a", "/200?user=a"},
			"401, 401, 200"},
		{"not where the gateway itself fails, nor for early hints",
			`{name: r, ` + by + `penalty: {on_status: [502, 404, 103], ban_after: 1, ban_for: 1h}}`,
			[]string{"/dead?user=a", "/dead?user=a", "/200?user=a", "/502?user=a", "/200?user=a"},
			"502, 502, 200, 502, 429"},
		{"not where there is no route",
			`{name: r, match: 'request.host == "nowhere"', ` + by + `penalty: {on_status: [404], ban_after: 1, ban_for: 1h}}`,
			[]string{"http://nowhere/x?user=a", "http://nowhere/x?user=a"},
			"404, 404"},
	} {
		t.Run(c.about, func(t *testing.T) {
			h := newServer(t, "rules: ["+c.rules+"]", routes(
				config.Route{Host: "example.com", Path: "/dead", Upstream: dead}, config.Route{Host: "example.com", Path: "/", Upstream: up})).Gateway()
			if got := asked(h, c.ask...); got != c.want {
				t.Errorf("%v:\n%s, want\n%s", c.ask, got, c.want)
			}
		})
	}
}

// What came in shadow mode has led to no ban when the rule is enforced.
func TestOnStatusInShadow(t *testing.T) {
	const shadow = `rules: [{name: limit, key: client.ip, limits: [9 per 1h]}, {name: watch, mode: shadow, key: client.ip, penalty: {on_status: [401], ban_after: 1, ban_for: 1h}}]`
	s := newServer(t, shadow, everythingTo(upstream(t, asTold)))
	before := asked(s.Gateway(), "/401", "/401")
	set, err := rules.Parse("rules.yaml", []byte(strings.Replace(shadow, "shadow", "enforce", 1)))
	if err != nil {
		t.Fatal(err)
	}
	s.SetRules(set)
	if got := before + ", " + asked(s.Gateway(), "/401", "/200"); got != "401 8, 401 7, 401 6, 429" {
		t.Error(got)
	}
}

const watchful = `
rules:
  - {name: watch, key: client.ip, message: Go away., penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}
`

// A rule without limits shows in no report, but its ban does.
func TestLimitlessRulesAreNotReported(t *testing.T) {
	s := newServer(t, watchful+"  - {name: limit, match: 'operation == \"x\"', key: client.ip, limits: [2000000000 per 24h fixed_window]}\n", everythingTo(upstream(t, asTold)))
	for _, c := range []struct{ body, want string }{
		{`{"client":"192.0.2.1"}`, `{"outcome":"allowed","rule":"","allowed":true,"limit":0,"remaining":0,"retry_after_us":0,"reset_after_us":0,"delay_us":0,"used":0,"ban_left_us":0,"decisions":[]}`},
		{`{"client":"192.0.2.1","operation":"x"}`, `"decisions":[{"rule":"limit","limit_text":"2000000000 per 24h fixed_window",`},
	} {
		w := check(s, c.body)
		if w.Code != 200 || !strings.Contains(w.Body.String(), c.want) || strings.Contains(w.Body.String(), "1000000000 per") {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
		}
	}
	if h := check(s, `{"client":"192.0.2.1"}`).Header(); h.Get("X-RateLimit-Limit") != "" {
		t.Errorf("headers %v", h)
	}
	asked(s.Gateway(), "/401", "/401")
	w := check(s, `{"client":"192.0.2.1"}`)
	if w.Code != 429 || !strings.Contains(w.Body.String(), `"outcome":"banned","rule":"watch","message":"Go away."`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	out, err := simulated(t, watchful, strings.NewReader(`{"t_us":1,"client":"192.0.2.1"}`), new(stint.Memory))
	if err != nil || out != `{"outcome":"allowed","rule":"","decisions":[],"ban_left_us":0}`+"\n" {
		t.Errorf("simulated: %s %v", out, err)
	}
}

// Who asks the admin API about a key of a rule without limits learns of its penalty, and
// that there is nothing to refund.
func TestKeysOfRulesWithoutLimits(t *testing.T) {
	s := newServer(t, watchful, everythingTo(upstream(t, asTold)))
	o := operator{t, s.Admin()}
	asked(s.Gateway(), "/401")
	o.want(200, "POST", "/v1/keys/show", `{"rule":"watch","key":"192.0.2.1"}`, `"limits":[]`, `"penalty":{"violations":1,`)
	o.want(200, "POST", "/v1/explain", `{"client":"192.0.2.1"}`, "penalty: 1 violation", "It would be allowed.")
	o.want(422, "POST", "/v1/keys/refund", `{"rule":"watch","key":"192.0.2.1","cost":1}`, "watch has no limits")
	o.want(200, "GET", "/v1/rules", "", `"name":"watch"`, `"limits":[]`)
}

// Where the store is away, this instance counts for the rules that say so.
func TestOnStatusWithoutStore(t *testing.T) {
	for _, c := range []struct{ policy, want string }{
		{"local", "401, 401, 429"},
		{"allow", "401, 401, 401"},
	} {
		s := newServer(t, strings.Replace(watchful, "message:", "on_store_error: "+c.policy+", message:", 1), over(failing()), everythingTo(upstream(t, asTold)))
		if got := asked(s.Gateway(), "/401", "/401", "/401"); got != c.want {
			t.Errorf("%s: %s, want %s", c.policy, got, c.want)
		}
	}
}

// If a violation cannot be counted, that is logged, and the response passes.
func TestViolationFails(t *testing.T) {
	var away atomic.Bool
	store := &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault {
		if away.Load() {
			return limittest.Fault{Hang: true}
		}
		return limittest.Fault{}
	}}
	var log bytes.Buffer
	s := newServer(t, watchful, over(store), func(c *server.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) },
		everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) { away.Store(true); asTold(w, r) })))
	if got := asked(s.Gateway(), "/401"); got != "401" || !strings.Contains(log.String(), "the store does not decide") {
		t.Errorf("%s, log: %s", got, &log)
	}
}
