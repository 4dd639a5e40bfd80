package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
)

// A decision may take long, for an instance on a slow machine would else decide by its own
// share, which passes two requests more.
const shortBans = `rules: [{name: login, decision_timeout: 1m, key: '"all"', limits: [2 per 1h sliding_log, 9 per 1s], penalty: {ban_after: 3, ban_for: 10s}}]`

// refusedFor sends a request to a gateway that has no routes and returns its
// Retry-After; 0: it passed.
func refusedFor(t *testing.T, h http.Handler) time.Duration {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/", nil))
	if w.Code == http.StatusNotFound {
		return 0
	}
	wait, err := time.ParseDuration(w.Header().Get("Retry-After") + "s")
	if w.Code != http.StatusTooManyRequests || err != nil || wait == 0 {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	return wait
}

// A client that waits for as long as Retry-After says passes, also where it was banned
// for less than its limit refuses.
func TestRetryAfterOfABan(t *testing.T) {
	for name, store := range map[string]func() stint.Store{
		"memory":       func() stint.Store { return new(stint.Memory) },
		"in its stead": func() stint.Store { return failing() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newServer(t, shortBans, over(store())).Gateway()
				for round := range 3 {
					for i := range 9 { // 2 pass, the fifth is banned
						if wait := refusedFor(t, g); (wait == 0) != (i < 2) {
							t.Fatalf("round %d, request %d: refused for %s", round, i, wait)
						}
						time.Sleep(time.Second)
					}
					time.Sleep(refusedFor(t, g))
				}
			})
		})
	}
}

// The same through Redis, by two instances that remember what it refused: both tell when
// the hour is over, not the ban.
func TestRetryAfterOfABanThroughRedis(t *testing.T) {
	redis := redistest.Start(t)
	var gateways [2]http.Handler
	for i := range gateways {
		store := openRedis(t, redis.URL())
		gateways[i] = newServer(t, shortBans, over(store)).Gateway()
	}
	until := time.Now().Add(time.Hour)
	for i := range 40 {
		wait := refusedFor(t, gateways[i%2])
		if (wait == 0) != (i < 2) {
			t.Fatalf("request %d: refused for %s", i, wait)
		}
		if left := time.Until(until); wait > 0 && (wait < left || wait > left+5*time.Second) {
			t.Errorf("request %d: told %s, and the hour is over in %s", i, wait, left)
		}
	}
}
