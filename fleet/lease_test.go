package fleet_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/limittest"
)

// leasing is a Leases over s, as one of so many instances.
func leasing(t testing.TB, s stint.Store, live int64) *fleet.Leases {
	l := &fleet.Leases{Store: s, Live: func() int64 { return live }}
	t.Cleanup(l.Close)
	return l
}

func TestLeasesKit(t *testing.T) {
	limittest.Kit{
		New: func(t *testing.T) stint.Store { return leasing(t, new(stint.Memory), 1) },
		Fleet: func(t *testing.T) []stint.Store {
			s := new(stint.Memory)
			return []stint.Store{leasing(t, s, 2), leasing(t, s, 2)}
		},
	}.Run(t)
}

// ask asks n times for one unit, a ms apart, and counts what was allowed, and by
// leases.
func ask(t testing.TB, s stint.Store, key string, limit *stint.Limit, n int) (allowed, leased int) {
	t.Helper()
	l := stint.NewLimiter(s)
	for range n {
		d, err := l.Allow(t.Context(), key, limit)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			allowed++
		}
		if d.By == stint.ByLease {
			leased++
		}
		time.Sleep(time.Millisecond)
	}
	return allowed, leased
}

func TestLeases(t *testing.T) {
	for _, text := range []string{"10000 per 1s lease 20%", "100000 per 10s fixed_window lease 2%"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &limittest.Faulty{Store: new(stint.Memory)}
				l, limit := leasing(t, s, 1), stint.MustLimit(text)
				allowed, leased := ask(t, l, "k", limit, 2000)
				calls := s.Calls()
				if allowed != 2000 || leased < 1900 || calls > 60 {
					t.Errorf("%d allowed, %d by leases, %d calls", allowed, leased, calls)
				}
				u := l.Units()
				if u.Served != int64(leased) || u.Charged != u.Served+u.Returned+u.Void+u.Held {
					t.Errorf("%+v", u)
				}
				time.Sleep(2 * time.Second)
				if u := l.Units(); u.Held > 0 || u.Void > 0 || u.Charged != u.Served+u.Returned {
					t.Errorf("%+v when idle", u)
				}
				calls = s.Calls()
				time.Sleep(time.Minute)
				if s.Calls() != calls {
					t.Error("an idle Leases calls")
				}
				if allowed, leased := ask(t, l, "k", limit, 200); allowed != 200 || leased < 100 {
					t.Errorf("%d allowed, %d by leases after it was idle", allowed, leased)
				}
				l.Close()
				if u := l.Units(); u.Held > 0 || u.Void > 0 || u.Charged != u.Served+u.Returned {
					t.Errorf("%+v when closed", u)
				}
				before := s.Calls()
				if _, leased := ask(t, l, "k", limit, 100); leased > 0 || s.Calls() != before+100 {
					t.Error("it leases though it is closed")
				}
			})
		})
	}
}

// What is not hot, is not to be leased, or bears a penalty, goes to the store.
func TestLeasesPassOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &limittest.Faulty{Store: new(stint.Memory)}
		l := leasing(t, s, 1)
		leased := stint.MustLimit("1000 per 1s lease 20%")
		p, _ := stint.NewPenalty(stint.PenaltySpec{BanAfter: 5, BanFor: time.Hour})
		other := stint.MustLimit("other: " + leased.Terms())
		limiter := stint.NewLimiter(l)
		take := func(name string, asks ...stint.Ask) {
			before := s.Calls()
			for range 300 {
				if d, err := limiter.Take(t.Context(), &stint.Request{Asks: asks}, nil); err != nil || d.By != stint.ByStore {
					t.Errorf("%s: %+v, %v", name, d, err)
				}
				time.Sleep(time.Millisecond)
			}
			if n := s.Calls() - before; n != 300 {
				t.Errorf("%s: %d calls", name, n)
			}
		}
		take("penalty", stint.Ask{Key: "k", Limit: leased, Cost: 1, Penalty: p})
		take("two asks", stint.Ask{Key: "k", Limit: leased, Cost: 1}, stint.Ask{Key: "k", Limit: other, Cost: 1})
		take("no lease", stint.Ask{Key: "k", Limit: stint.MustLimit("1000 per 1s"), Cost: 1})
		take("a peek", stint.Ask{Key: "k", Limit: leased, Peek: true})
		for range 100 {
			take1(t, limiter, leased)
			time.Sleep(100 * time.Millisecond)
		}
		if u := l.Units(); u.Charged != 0 {
			t.Errorf("%+v for a key that is not hot", u)
		}
	})
}

func take1(t *testing.T, l *stint.Limiter, limit *stint.Limit) {
	t.Helper()
	if _, err := l.Allow(t.Context(), "cold", limit); err != nil {
		t.Error(err)
	}
}

// While the store is away, what was leased is served; of what failed, nothing is.
func TestLeasesOutlastTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away, lost atomic.Bool
		s := &limittest.Faulty{Store: new(stint.Memory)}
		s.Fault = func(int) (f limittest.Fault) {
			if away.Load() {
				f = limittest.Fault{Err: limittest.ErrFault, Lost: lost.Load()}
			}
			return f
		}
		l, limit := leasing(t, s, 1), stint.MustLimit("10000 per 1s lease 50%")
		limiter := stint.NewLimiter(l)
		ask(t, l, "k", limit, 1000)
		held := l.Units().Held
		away.Store(true)
		lost.Store(true)
		var served, failed int64
		for range 1000 {
			if d, err := limiter.Allow(t.Context(), "k", limit); err != nil {
				failed++
			} else if d.By == stint.ByLease {
				served++
			}
		}
		if served != held || served+failed != 1000 {
			t.Errorf("%d of %d held were served, %d failed", served, held, failed)
		}
	})
}

// Many ask, refund, reset and close at once.
func TestLeasesAtOnce(t *testing.T) {
	s := new(stint.Memory)
	bucket, window := stint.MustLimit("500000 per 100ms lease 50%"), stint.MustLimit("500000 per 100ms fixed_window lease 50%")
	leases := leasing(t, s, 1)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			l := stint.NewLimiter(leases)
			for n := range 20_000 {
				limit := bucket
				if n%2 == 0 {
					limit = window
				}
				_, _ = l.AllowN(t.Context(), fmt.Sprint((i+n)%3), limit, int64(1+n%3))
				switch n % 1000 {
				case 7:
					_ = stint.Refund(t.Context(), l.Store, &stint.Request{Asks: []stint.Ask{{Key: "1", Limit: limit, Cost: 1}}})
				case 507:
					_ = l.Reset(t.Context(), "1", limit)
				case 999:
					_ = leases.Units()
				}
			}
		})
	}
	all.Wait()
	leases.Close()
	if u := leases.Units(); u.Charged == 0 || u.Held != 0 || u.Charged != u.Served+u.Returned+u.Void {
		t.Errorf("%+v", u)
	}
}

func hotLease(t testing.TB) (*stint.Limiter, *stint.Limit) {
	l, limit := leasing(t, new(stint.Memory), 1), stint.MustLimit("1000000000 per 1s lease 50%")
	limiter := stint.NewLimiter(l)
	for range 100_000 {
		_, _ = limiter.Allow(context.Background(), "k", limit)
	}
	return limiter, limit
}

func TestLeasesAllocateNothing(t *testing.T) {
	l, limit := hotLease(t)
	if n := testing.AllocsPerRun(10_000, func() { _, _ = l.Allow(t.Context(), "k", limit) }); n > 0.01 {
		t.Errorf("%v allocations", n)
	}
}

// Whoever invents keys leases nothing for them, and never takes more room.
func TestLeasesFlood(t *testing.T) {
	l := &fleet.Leases{Store: new(stint.Memory), Live: func() int64 { return 1 }, MaxKeys: 16}
	defer l.Close()
	limiter, limit := stint.NewLimiter(l), stint.MustLimit("1000 per 1s lease 20%")
	for i := range 15_000 {
		for range 1 + i%40 {
			if _, err := limiter.Allow(t.Context(), fmt.Sprint(i), limit); err != nil {
				t.Fatal(err)
			}
		}
	}
	if u := l.Units(); u.Held > 16*100 {
		t.Errorf("%+v", u)
	}
}

func BenchmarkLeases(b *testing.B) {
	l, limit := hotLease(b)
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := l.Allow(b.Context(), "k", limit); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Of a bucket that is exhausted, an instance asks ten times a second, gets its part of
// what comes back, and tells those it refuses when it asks again.
func TestLeasesOfTheExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &limittest.Faulty{Store: new(stint.Memory)}
		l, limit := leasing(t, s, 4), stint.MustLimit("24000 per 1m lease 10%")
		limiter := stint.NewLimiter(l)
		ask(t, l, "k", limit, 50) // hot
		_, _ = limiter.AllowN(t.Context(), "k", limit, limit.Capacity()-100)
		_, _ = ask(t, l, "k", limit, 500)
		calls := s.Calls()
		allowed, _ := ask(t, l, "k", limit, 10_000)
		if calls = s.Calls() - calls; calls > 250 {
			t.Errorf("%d calls in 10 s", calls)
		}
		if allowed < 3900 || allowed > 4000 {
			t.Errorf("%d allowed of 4000 that came back", allowed)
		}
		for {
			d, err := limiter.Allow(t.Context(), "k", limit)
			if err != nil {
				t.Fatal(err)
			}
			if d.By != stint.ByLease || d.Allowed {
				time.Sleep(time.Millisecond)
				continue
			}
			if d.RetryAfter <= 0 || d.RetryAfter > 100*time.Millisecond || d.Outcome != stint.Limited {
				t.Fatalf("%+v", d)
			}
			time.Sleep(d.RetryAfter)
			if d, _ := limiter.Allow(t.Context(), "k", limit); !d.Allowed {
				t.Errorf("%+v after the wait that was told", d)
			}
			break
		}
		// What is undone here is seen at once.
		for d := (stint.Decision{Allowed: true}); d.Allowed || d.By != stint.ByLease; time.Sleep(time.Millisecond) {
			d, _ = limiter.AllowN(t.Context(), "k", limit, 3)
		}
		_ = stint.Refund(t.Context(), limiter.Store, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 50}}})
		if d, _ := limiter.AllowN(t.Context(), "k", limit, 3); !d.Allowed {
			t.Errorf("%+v after units were refunded", d)
		}
	})
}

// While an exhausted bucket is refused here, each cost is told how long it waits.
func TestLeasesRetryAfterOfEachCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := leasing(t, new(stint.Memory), 1), stint.MustLimit("100 per 1s burst 200 lease 20%")
		by := stint.NewLimiter(l)
		ask(t, l, "k", limit, 1000)
		for _, cost := range []int64{1, 2, 20, 50, 100, 160, 161, 1000} {
			for { // until it is refused here
				d, err := by.Allow(t.Context(), "k", limit)
				if err != nil {
					t.Fatal(err)
				}
				if !d.Allowed && d.By == stint.ByLease {
					break
				}
				time.Sleep(time.Millisecond)
			}
			d, err := by.AllowN(t.Context(), "k", limit, cost)
			if d.Allowed || err != nil {
				t.Fatalf("%+v, %v", d, err)
			}
			if cost > 160 {
				if d.RetryAfter != stint.Never {
					t.Errorf("cost %d: %+v", cost, d)
				}
				continue
			}
			time.Sleep(d.RetryAfter)
			if again, err := by.AllowN(t.Context(), "k", limit, cost); !again.Allowed || err != nil {
				t.Errorf("cost %d: refused again after %s: %+v", cost, d.RetryAfter, again)
			}
			ask(t, l, "k", limit, 1000)
		}
	})
}

// At the end all that is leased goes back, of however many keys.
func TestLeasesOfManyKeysGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 250
		m, limit := new(stint.Memory), stint.MustLimit("1000 per 1h fixed_window lease 20%")
		s := &limittest.Faulty{Store: m}
		l := leasing(t, s, 1)
		limiter, leased := stint.NewLimiter(l), 0
		for range 15 {
			for key := range keys {
				d, err := limiter.Allow(t.Context(), fmt.Sprint(key), limit)
				if err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				if d.By == stint.ByLease {
					leased++
				}
			}
			time.Sleep(time.Millisecond)
		}
		before := s.Calls()
		l.Close()
		if calls := s.Calls() - before; calls != 3 || leased == 0 {
			t.Errorf("%d calls gave back what is leased of %d keys, which served %d; want 3 calls, of 100 each", calls, keys, leased)
		}
		for key := range keys {
			if d, _ := stint.NewLimiter(m).Peek(t.Context(), fmt.Sprint(key), limit); d.Remaining != 1000-15 {
				t.Fatalf("of key %d %d are left, want %d", key, d.Remaining, 1000-15)
			}
		}
		if u := l.Units(); u.Held != 0 || u.Void != 0 || u.Charged != u.Served+u.Returned {
			t.Errorf("%+v", u)
		}
	})
}
