package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// Instances over one Redis count calls together: what they hold for each other's callers, what they
// charge of refusals that they remember, and what is given back. When Redis stops answering, each
// decides by on_store_error, in time.
func TestCallsThroughRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var all [2]*server.Server
	for i := range all {
		store := openRedis(t, redis.URL())
		all[i] = newCalls(t, `
domain: shop
descriptors:
  - {key: held, rate_limit: {unit: year, requests_per_unit: 10, hold: true}}
  - {key: user, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: q1, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1, hold: true}}
  - {key: q2, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 5, hold: true}}
  - {key: deny, on_store_error: deny, rate_limit: {unit: year, requests_per_unit: 3}}
`, "{}", over(store), func(c *server.Config) { c.Settings.DecisionTimeout = time.Second })
	}
	ask := func(s *server.Server, want string, in *rules.Input) {
		t.Helper()
		in.Descriptors.Domain = "shop"
		v, err := s.Decide(t.Context(), in, time.Time{})
		if got := sayCall(in, &v, err); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	hold := func(descriptors ...string) string {
		t.Helper()
		status, body := checked(all[0], shopCall(`"hold":"60s","cost":4,`, descriptors...))
		var answer struct{ Hold string }
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK || answer.Hold == "" {
			t.Fatalf("%d %s: want a hold", status, body)
		}
		return answer.Hold
	}
	settle := func(hold, cost string) string {
		t.Helper()
		w := callCheck(all[1], "/v1/settle", `{"hold":"`+hold+`","cost":`+cost+`}`)
		if w.Code != http.StatusOK || strings.Count(w.Body.String(), `"found":true`) == 0 {
			t.Errorf("settled: %d %s", w.Code, w.Body)
		}
		return w.Body.String()
	}
	settle(hold("held=1"), "6")
	ask(all[1], "yes: 4", calling("held=1*0"))
	// A rule with quota_mode that refused holds nothing.
	if text := settle(hold("q1=1", "q2=1"), "2"); strings.Count(text, `"found":true`) != 1 || !strings.Contains(text, "shop/q2") {
		t.Errorf("settled %s, want only q2", text)
	}
	ask(all[1], "yes: 1 3", calling("q1=1*0", "q2=1*0"))
	// What a caller reserves was not used yet.
	if status, body := checked(all[0], shopCall(`"hold":"60s","cost":11,`, "held=2")); status != http.StatusTooManyRequests {
		t.Errorf("%d %s", status, body)
	}
	ask(all[1], "yes: 10", calling("held=2*0"))

	ask(all[0], "yes: 0", calling("user=ann*3"))
	for range 3 { // the second refusal is remembered
		ask(all[0], "no: 0!", calling("user=ann"))
	}
	ask(all[1], "no: 0!", calling("user=ann*0"))
	ask(all[0], "no: 0!", calling("user=ann*2"))
	ask(all[1], "no: 0!", calling("user=ann*0")) // in debt
	ask(all[1], "yes: 1", calling("user=ann*-3"))
	ask(all[1], "yes: 0", calling("user=ann"))
	ask(all[1], "yes: 2", calling("user=ann*-2"))
	again := calling("user=ann")
	again.Descriptors.Domain = "shop"
	await.Until(t, "the other hears that its refusal is void", func() bool {
		v, err := all[0].Decide(t.Context(), again, time.Time{})
		return sayCall(again, &v, err) == "yes: 1"
	})

	thaw := redis.Freeze(t)
	defer thaw()
	began := time.Now()
	allowed := 0
	for range 4 { // of 3 units, this instance has its share
		eve := calling("user=eve")
		eve.Descriptors.Domain = "shop"
		v, err := all[0].Decide(t.Context(), eve, time.Time{})
		if err != nil {
			t.Error(err)
		}
		if v.Allowed {
			allowed++
		}
	}
	if allowed < 1 || allowed > 3 {
		t.Errorf("%d of 4 calls were allowed without Redis, want a share of 3", allowed)
	}
	in := calling("user=bob", "deny=1")
	in.Descriptors.Domain = "shop"
	if v, err := all[0].Decide(t.Context(), in, time.Time{}); err == nil {
		t.Errorf("%s: want an error", sayCall(in, &v, err))
	}
	for range 2 {
		if v, err := all[1].Decide(t.Context(), in, time.Time{}); err == nil {
			t.Errorf("%s: want an error", sayCall(in, &v, err))
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("four calls took %s without Redis", took)
	}
	if status, body := checked(all[0], shopCall("", "deny=1")); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s, want 503", status, body)
	}
}
