package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/gateway"
)

const watchful = `
rules:
  - {name: watch, key: client.ip, penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}
  - {name: limit, match: 'client.ip == "192.0.2.9"', key: client.ip, limits: [1 per 1h]}
`

// witness is a store that is asked first whether it may count a violation.
type witness struct {
	*stint.Memory
	may func(context.Context, *stint.Request) error
}

func (w witness) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	if err := w.may(ctx, r); err != nil {
		return stint.Decision{}, err
	}
	return w.Memory.Violate(ctx, r)
}

// A violation counts also if the client has left, within the time that a decision
// may take.
func TestViolationAfterDisconnect(t *testing.T) {
	calls := 0
	c := newCounted(t, watchful, witness{new(stint.Memory), func(ctx context.Context, r *stint.Request) error {
		calls++
		deadline, ok := ctx.Deadline()
		if ctx.Err() != nil || !ok || time.Until(deadline) > config.Default().DecisionTimeout {
			t.Errorf("ended %v, deadline %v", ctx.Err(), deadline)
		}
		if a := r.Asks[0]; a.Key != "192.0.2.1" || a.Penalty.Spec().Name != "watch" {
			t.Errorf("counted %s under %s", a.Key, a.Penalty.Spec().Name)
		}
		return nil
	}})
	for _, status := range []int{http.StatusNotFound, http.StatusUnauthorized} {
		ctx, leave := context.WithCancel(t.Context())
		h := c.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { leave(); w.WriteHeader(status) }))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	}
	if calls != 1 {
		t.Errorf("%d violations", calls)
	}
}

// Violations are counted by rule, unless they cannot be; a request of a rule that
// only watches is allowed by none.
func TestMetricsOfResponses(t *testing.T) {
	var away error
	c := newCounted(t, watchful, witness{new(stint.Memory), func(context.Context, *stint.Request) error { return away }})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }))
	defer up.Close()
	u, err := config.ParseUpstream(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.settings.Routes = []config.Route{{Path: "/", Upstream: u}}
	c.gateway = gateway.New(c.door, gateway.Options{AccessLog: c.watch.Log, ErrorLog: c.errorLog})
	send := func() {
		c.Gateway().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	const deciding, allowed = "decision_seconds_count", `decisions_total{outcome="allowed",rule=""}`
	const storing, violations = "store_seconds_count", `response_violations_total{rule="watch"}`
	send()
	c.moved(deciding, storing+" +2", allowed, violations)
	away = errors.New("away")
	send()
	c.moved(deciding, storing+" +2", allowed, violations, `store_errors_total{kind="error"}`, `bans{rule="watch"}`) // this instance goes on counting by itself
	away = nil
	send()
	c.moved(deciding, storing+" +2", allowed, violations)
	send()
	c.moved(deciding, storing, `decisions_total{outcome="banned",rule="watch"}`)

	c.SetRules(parsed(t, "rules: []"))
	if _, kept := c.series()[violations]; kept {
		t.Error("the series of a rule that is gone is kept")
	}
}
