package server_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
)

// counting is a store in memory that is one of some instances'.
type counting struct {
	telling
	live int
}

func (c counting) Beat(context.Context) (int, error) { return c.live, nil }

const leaseRules = `rules:
  - {name: api, key: attrs.user, limits: [{amount: 10000, period: 1s, lease: 20%}]}
`

// A hot key is served by units that were charged ahead: the check API says so, nothing
// counts as degraded, and when the server ends they are given back.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := counting{newTelling(), 2}
		s := newServer(t, leaseRules, over(store), func(c *server.Config) { c.Settings.DegradedHeader = true })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		outcome(t, s, api)
		for range 100 {
			expect(t, outcome(t, s, api), "allowed")
		}
		if n := store.Calls(); n != 101 {
			t.Errorf("%d calls before the instances were counted", n)
		}
		go s.Follow(ctx)
		synctest.Wait()
		by := map[string]int{}
		for range 1000 {
			w := check(s, api)
			var r struct {
				By        string
				Decisions []struct{ By string }
			}
			if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			if by[r.By]++; r.Decisions[0].By != r.By || w.Header().Get("Stint-Degraded") != "" {
				t.Errorf("%s %v", w.Body, w.Header())
			}
			time.Sleep(time.Millisecond)
		}
		if by["lease"] < 900 || by["lease"]+by[""] != 1000 {
			t.Errorf("decided by %v", by)
		}
		if n := metric(t, s, `stint_lease_units_total{state="served"}`); n != float64(by["lease"]) {
			t.Errorf("%v served", n)
		}
		if n := metric(t, s, `stint_fallback_decisions_total{policy="local",rule="api"}`); n != 0 {
			t.Errorf("%v fallback decisions", n)
		}
		s.Close()
		if n := metric(t, s, "stint_lease_units_held"); n != 0 {
			t.Errorf("%v held after the end", n)
		}
	})
}

// An operator who resets a key starts it anew: what this instance holds of a fixed
// window is void, and of a bucket it may stay.
func TestLeasesReset(t *testing.T) {
	for algorithm, void := range map[string]bool{"fixed_window": true, "token_bucket": false} {
		synctest.Test(t, func(t *testing.T) {
			store := counting{newTelling(), 1}
			s := newServer(t, `rules:
  - {name: api, key: attrs.user, limits: [100000 per 10s `+algorithm+` lease 20%]}
`, over(store))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go s.Follow(ctx)
			synctest.Wait()
			for range 100 {
				expect(t, outcome(t, s, api), "allowed")
				time.Sleep(time.Millisecond)
			}
			held := metric(t, s, "stint_lease_units_held")
			operator{t, s.Admin()}.want(200, "POST", "/v1/keys/reset", `{"rule":"api","key":"u"}`)
			after := metric(t, s, "stint_lease_units_held")
			if held == 0 || (after == 0) != void {
				t.Errorf("%s: %v units held, and %v after a reset", algorithm, held, after)
			}
			s.Close()
		})
	}
}
