package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/server"
)

// counting is a store in memory that is one of some instances'.
type counting struct {
	telling
	live  int
	quiet *atomic.Bool // it does not say how many; nil: it does
}

func (c counting) Heartbeat(context.Context) (int, error) {
	if c.quiet != nil && c.quiet.Load() {
		return 0, errors.New("quiet")
	}
	return c.live, nil
}

const leaseRules = `rules:
  - {name: api, key: attrs.user, limits: [{amount: 10000, period: 1s, lease: 20%}]}
`

// A hot key is served by units that were charged ahead: the check API says so, nothing
// counts as degraded, and when the server ends they are refunded.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := counting{newTelling(), 2, new(atomic.Bool)}
		store.quiet.Store(true)
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
		store.quiet.Store(false)
		time.Sleep(time.Second)
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
			store := counting{newTelling(), 1, nil}
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

// An override of a hot key, which names no lease, comes and goes at some instances of a
// fleet, at each when it will: in no span of time do all that they let pass exceed the
// larger limit.
func TestLeasesOverride(t *testing.T) {
	const (
		amount = 1000
		period = time.Second
	)
	turns := 20
	if testing.Short() {
		turns = 5
	}
	for range 2 {
		seed := attack.Seed(t)
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			store := counting{newTelling(), 2, nil} // half of them are not counted yet
			rng := rand.New(rand.NewPCG(seed, 0))
			type instance struct {
				*server.Server
				operator
				override string // its ID; empty: none
			}
			var fleet []*instance
			for range 4 {
				s := newServer(t, "rules:\n  - {name: api, key: attrs.user, limits: [1000 per 1s lease 50%]}\n", over(store))
				go s.Follow(ctx)
				fleet = append(fleet, &instance{s, operator{t, s.Admin()}, ""})
			}
			synctest.Wait()
			var level, most, leased float64
			last := time.Now()
			ask := func(times int, gap time.Duration) {
				for range times {
					var r struct {
						Allowed bool
						By      string
					}
					if err := json.Unmarshal(check(fleet[rng.IntN(len(fleet))].Server, api).Body.Bytes(), &r); err != nil {
						t.Fatal(err)
					}
					if r.By == "lease" && r.Allowed {
						leased++
					}
					if r.Allowed {
						now := time.Now()
						level = max(0, level-float64(amount)*float64(now.Sub(last))/float64(period)) + 1
						most, last = max(most, level), now
					}
					time.Sleep(gap)
				}
			}
			change := func(i *instance) {
				if i.override != "" {
					i.want(200, "DELETE", "/v1/overrides/"+i.override, "")
					i.override = ""
					return
				}
				text := []string{"1000 per 1s", "1000 per 1s", "700 per 1s"}[rng.IntN(3)]
				i.override = i.id(i.want(201, "POST", "/v1/overrides", `{"rule":"api","key":"u","limits":["`+text+`"]}`))
			}
			for range turns {
				ask(600, 1200*time.Microsecond)                          // leases are made,
				time.Sleep(time.Duration(rng.Int64N(int64(period / 2)))) // and the bucket drains
				for _, i := range fleet {
					if rng.IntN(2) == 0 {
						change(i)
					}
				}
				ask(1500, 0)
				time.Sleep(time.Duration(rng.Int64N(int64(3 * period))))
			}
			if most > amount+1e-6 || leased < float64(50*turns) {
				t.Errorf("seed %d: %v passed at once of %d, %v by leases", seed, most, amount, leased)
			}
		})
	}
}
