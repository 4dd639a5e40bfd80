package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// What this instance alone decided goes back to its share, though the Store is asked
// again: it had charged nothing.
func TestRefundOfLocalUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newShaky(t, 1), stint.MustLimit("5 per 1h fixed_window")
		others := stint.NewLimiter(s.store)
		for range 5 {
			if d, err := others.Allow(t.Context(), "k", l); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		for range 4 {
			s.away.Store(true)
			d, err := s.Allow(t.Context(), "k", l)
			if err != nil || !d.Allowed || d.By != stint.ByLocal {
				t.Fatal(d, err)
			}
			s.away.Store(false)
			if err := s.Refund(t.Context(), d, 1); err != nil || s.fall.State() != fleet.Closed {
				t.Fatal(s.fall.State(), err)
			}
		}
		for range 4 {
			if d, err := others.Allow(t.Context(), "k", l); err != nil || d.Allowed {
				t.Fatalf("the store admits a sixth: %v, %v", d, err)
			}
		}
		s.away.Store(true)
		same(t, s.spend(t, "k", l, 9), "store 0, local 5 of 9")
	})
}

// Of a request that was decided partly by the share and partly by nobody, only what was
// taken goes back.
func TestRefundOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaky(t, 1)
		local, free := stint.MustLimit("2 per 1h fixed_window"), stint.MustLimit("3 per 1h sliding_log")
		r := &stint.Request{Asks: []stint.Ask{
			{Key: "k", Limit: free, Cost: 1, OnError: stint.OnErrorAllow},
			{Key: "k", Limit: local, Cost: 1},
		}}
		each := make([]stint.Decision, 2)
		take := func() string {
			d, err := s.Take(t.Context(), r, each)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%s by %s and %s", d.Outcome, each[0].By, each[1].By)
		}
		same(t, take(), "allowed by store and store")
		s.away.Store(true)
		same(t, take(), "allowed by policy and local")
		s.away.Store(false)
		if err := refundAll(t.Context(), s.Store, r, each); err != nil {
			t.Fatal(err)
		}
		bare := stint.NewLimiter(s.store)
		for _, c := range []struct {
			limit *stint.Limit
			left  int64
		}{{local, 1}, {free, 2}} {
			if d, err := bare.Peek(t.Context(), "k", c.limit); err != nil || d.Remaining != c.left {
				t.Errorf("%d left of %s, want %d: %v", d.Remaining, c.limit, c.left, err)
			}
		}
		s.away.Store(true)
		same(t, take(), "allowed by policy and local")
		same(t, take(), "limited by policy and local")
	})
}

// refundAll returns what r took to where it was taken, by the answers to its asks.
func refundAll(ctx context.Context, s stint.Store, r *stint.Request, each []stint.Decision) error {
	back := *r
	back.Asks = slices.Clone(r.Asks)
	for i := range back.Asks {
		if !each[i].Allowed {
			return stint.ErrRequest
		}
		back.Asks[i].By = each[i].By
	}
	return stint.Refund(ctx, s, &back)
}

func TestRefundOfNothing(t *testing.T) {
	ctx := t.Context()
	var l stint.Limiter
	limit := stint.MustLimit("1 per 1h")
	for range 2 {
		d, _ := l.Allow(ctx, "k", limit)
		if err := l.Refund(ctx, d, 0); errors.Is(err, stint.ErrRequest) == d.Allowed {
			t.Errorf("%s: %v", d.Outcome, err)
		}
	}
	if err := l.Refund(ctx, stint.Decision{Allowed: true, Key: "k", Limit: limit, By: stint.ByPolicy}, 1); err != nil {
		t.Error(err)
	}
	if err := l.Refund(ctx, stint.Decision{Key: "k", Limit: limit}, 1); !errors.Is(err, stint.ErrRequest) {
		t.Errorf("a refusal: %v", err)
	}
	if d, _ := l.Allow(ctx, "k", limit); d.Allowed {
		t.Error("what nobody had counted was refunded")
	}
}

// A lease that the Store does not charge is charged nowhere: while it is away, this
// instance serves all that was left, and charges it afterwards, to the unit.
func TestLeaseFillsWithoutStore(t *testing.T) {
	for _, text := range []string{"8000 per 24h fixed_window lease 50%", "8000 per 24h lease 40%"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &refusing{Memory: new(stint.Memory)}
				f := &fleet.Fallback{Store: store, Instances: 1, Breaker: fleet.Breaker{Failures: -1}}
				defer f.Close()
				leases := &fleet.Leases{Store: f, Live: f.ConfirmedLive}
				defer leases.Close()
				l, limit := stint.NewLimiter(leases), stint.MustLimit(text)
				capacity := limit.Capacity()
				by := map[stint.Source]int64{}
				ask := func() bool {
					time.Sleep(5 * time.Millisecond)
					d, err := l.Allow(t.Context(), "k", limit)
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						by[d.By]++
					}
					return d.Allowed
				}
				for range 200 {
					ask()
				}
				for outage := range 5 {
					store.away.Store(true)
					for n := by[stint.ByLocal]; by[stint.ByLocal] < n+100; {
						if !ask() {
							t.Fatalf("refused in outage %d, after %v", outage, by)
						}
					}
					store.away.Store(false)
					time.Sleep(1100 * time.Millisecond) // the rest of the lease is returned
					for range 30 {
						ask()
					}
				}
				time.Sleep(3 * time.Second) // nothing is held any more
				ask()
				synctest.Wait()
				served := by[stint.ByStore] + by[stint.ByLease] + by[stint.ByLocal]
				d, err := stint.NewLimiter(store.Memory).Peek(context.Background(), "k", limit)
				if err != nil || by[stint.ByLease] == 0 {
					t.Fatal(by, err)
				}
				// 24 h bring a bucket back no more than a unit in so short a time.
				if charged := capacity - d.Remaining; charged > served+leases.Units().Void || charged < served-1 {
					t.Errorf("%d charged of %d served %v", charged, served, by)
				}
			})
		})
	}
}
