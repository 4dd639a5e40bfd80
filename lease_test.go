package stint_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
)

// leasing is a Leases over s, as one of so many instances.
func leasing(t testing.TB, s stint.Store, live int64) *stint.Leases {
	l := &stint.Leases{Store: s, Live: func() int64 { return live }}
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
		other, _ := leased.Named("other")
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
		take("a peek", stint.Ask{Key: "k", Limit: leased})
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

// fleet is some instances over one store, that come and go.
type fleet struct {
	t       *testing.T
	rng     *rand.Rand
	store   *stint.Memory
	limit   *stint.Limit
	members []*stint.Leases
	taken   []taken
	crashed int64 // units that died with their instance
}

// taken is what was allowed at an instant, or, below 0, given back.
type taken struct {
	at    time.Time
	units int64
}

// join is a newcomer. Half of all are not known yet.
func (f *fleet) join() *stint.Leases {
	return &stint.Leases{Store: f.store, Live: func() int64 { return int64(len(f.members)+1) / 2 }, MaxKeys: 8}
}

// step is something that happens.
func (f *fleet) step() {
	i := f.rng.IntN(len(f.members))
	m := f.members[i]
	one := func(cost int64) *stint.Request {
		return &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: f.limit, Cost: cost}}}
	}
	switch p := f.rng.IntN(10_000); {
	case p < 3: // crashes, and another takes its place
		f.crashed += m.Units().Held
		f.members[i] = f.join()
	case p < 6:
		m.Close()
		f.members[i] = f.join()
	case p < 20:
		n := 1 + f.rng.Int64N(3)
		if len(f.taken) > 0 && f.taken[len(f.taken)-1].units >= n {
			f.taken[len(f.taken)-1].units -= n
			_ = m.GiveBack(f.t.Context(), one(n))
		}
	default:
		n := int64(1)
		if f.rng.IntN(4) == 0 {
			n = 1 + f.rng.Int64N(5)
		}
		d, err := m.Take(f.t.Context(), one(n), nil)
		if err != nil {
			f.t.Fatal(err)
		}
		if d.Allowed {
			f.taken = append(f.taken, taken{time.Now(), n})
		}
	}
	if held := f.held(); held > f.limit.Lease() {
		f.t.Fatalf("%d units held ahead, of %d that may be", held, f.limit.Lease())
	}
}

func (f *fleet) held() (n int64) {
	for _, m := range f.members {
		n += m.Units().Held
	}
	return n
}

// check looks at every span of time: no more is taken in it than amount, and what
// comes back meanwhile; of a fixed window, than amount in each.
func (f *fleet) check(period time.Duration, amount int64, window bool) {
	if window {
		in := map[int64]int64{}
		for _, k := range f.taken {
			w := k.at.UnixMicro() / period.Microseconds()
			if in[w] += k.units; in[w] > amount {
				f.t.Fatalf("%d units in a window of %d", in[w], amount)
			}
		}
		return
	}
	// The most by which any span so far is above what comes back in it, in ns × amount.
	var most, run float64
	for i, k := range f.taken {
		if i > 0 {
			run = math.Max(0, run-float64(k.at.Sub(f.taken[i-1].at))*float64(amount)/float64(period))
		}
		run += float64(k.units)
		most = math.Max(most, run)
	}
	if most > float64(amount)+1e-3 {
		f.t.Fatalf("%v units in a bucket of %d", most, amount)
	}
}

// Whatever comes, no more passes than the limit allows in any span of time, and no
// more is held ahead than the share.
func TestLeasesAreExact(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	var ahead stint.LeasedUnits
	for round := range rounds {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 0))
				window := round%2 == 1
				amount, percent := int64(200+rng.IntN(4000)), 1+rng.IntN(stint.MaxLease)
				period := time.Duration(100+rng.IntN(3000)) * time.Millisecond
				spec := stint.Spec{Amount: amount, Period: period, Lease: percent}
				if window {
					spec.Algorithm = stint.FixedWindow
				}
				limit, err := stint.NewLimit(spec)
				if err != nil {
					t.Fatal(err)
				}
				f := &fleet{t: t, rng: rng, store: new(stint.Memory), limit: limit}
				for range 1 + rng.IntN(5) {
					f.members = append(f.members, f.join())
				}
				rate := float64(amount) / period.Seconds()
				for range 20 { // of a demand each
					gap := time.Duration(1e9 / (rate * []float64{0, 0.3, 0.5, 0.9, 1, 1.5, 3, 20}[1+rng.IntN(7)]))
					for range 500 {
						f.step()
						time.Sleep(time.Duration(rng.Int64N(int64(2*gap + 1))))
					}
					if rng.IntN(4) == 0 {
						time.Sleep(time.Duration(rng.Int64N(int64(2 * period))))
					}
				}
				f.check(period, amount, window)
				for _, m := range f.members {
					u := m.Units()
					ahead.Charged += u.Charged
					ahead.Served += u.Served
					ahead.Void += u.Void
					m.Close()
				}
				ahead.Held += f.crashed
				time.Sleep(time.Second) // of those that crashed, the timers
			})
		})
	}
	t.Logf("leased %d units, of which %d were served, %d void, and %d died", ahead.Charged, ahead.Served, ahead.Void, ahead.Held)
	if ahead.Served < 1000 {
		t.Error("hardly anything was leased")
	}
}

// Many ask, give back, reset and close at once.
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
					_ = l.GiveBack(t.Context(), "1", limit, 1)
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
	l := &stint.Leases{Store: new(stint.Memory), Live: func() int64 { return 1 }, MaxKeys: 16}
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
		_ = limiter.GiveBack(t.Context(), "k", limit, 50)
		if d, _ := limiter.AllowN(t.Context(), "k", limit, 3); !d.Allowed {
			t.Errorf("%+v after units were given back", d)
		}
	})
}
