package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/limittest"
)

// shaky is a store that hangs on demand, and a Fallback around it.
type shaky struct {
	*stint.Limiter
	fall   *fleet.Fallback
	store  *stint.Memory
	faulty *limittest.Faulty
	away   atomic.Bool
}

func newShaky(t testing.TB, instances int) *shaky {
	s := &shaky{store: new(stint.Memory)}
	s.faulty = &limittest.Faulty{Store: s.store, Fault: func(int) limittest.Fault { return limittest.Fault{Hang: s.away.Load()} }}
	s.fall = &fleet.Fallback{Store: s.faulty, Instances: instances}
	s.Limiter = stint.NewLimiter(s.fall)
	t.Cleanup(s.fall.Close)
	return s
}

// spend asks n times, and tells who allowed how many.
func (s *shaky) spend(t testing.TB, key string, l *stint.Limit, n int) string {
	t.Helper()
	allowed := map[stint.Source]int{}
	for range n {
		began := time.Now()
		d, err := s.Allow(t.Context(), key, l)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > fleet.DefaultDeadline {
			t.Fatalf("it took %s", took)
		}
		if d.Allowed {
			allowed[d.By]++
		}
	}
	return fmt.Sprintf("store %d, local %d of %d", allowed[stint.ByStore], allowed[stint.ByLocal], n)
}

func same(t testing.TB, have, want string) {
	t.Helper()
	if have != want {
		t.Fatalf("have %s\nwant %s", have, want)
	}
}

// An outage starts from what was left, and what it spends is charged afterwards.
func TestFallbackContinuesCounts(t *testing.T) {
	for _, text := range []string{"10 per 1m", "10 per 1m leaky_bucket", "10 per 1m fixed_window", "10 per 1m sliding_log", "10 per 1m sliding_window"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newShaky(t, 1), stint.MustLimit(text)
				same(t, s.spend(t, "k", l, 4), "store 4, local 0 of 4")
				s.away.Store(true)
				// What the store was asked, and did not answer, is not charged again:
				// five calls, and one more while a probe fails.
				same(t, s.spend(t, "opener", l, 6), "store 0, local 6 of 6")
				synctest.Wait()
				if s.fall.State() != fleet.Open {
					t.Fatalf("%s", s.fall.State())
				}
				calls := s.faulty.Calls()
				same(t, s.spend(t, "k", l, 100), "store 0, local 6 of 100")
				same(t, s.spend(t, "other", l, 3), "store 0, local 3 of 3")
				if n := s.faulty.Calls() - calls; n != 0 {
					t.Fatalf("%d calls while it is open", n)
				}
				s.away.Store(false)
				time.Sleep(2 * time.Second)
				if s.fall.State() != fleet.Closed {
					t.Fatalf("%s", s.fall.State())
				}
				for key, left := range map[string]int64{"k": 0, "other": 7, "opener": 10} {
					if d, err := stint.NewLimiter(s.store).Peek(t.Context(), key, l); err != nil || d.Remaining != left {
						t.Errorf("%+v, %v, want %d left", d, err, left)
					}
				}
			})
		})
	}
}

// All instances together admit what was left of the limit, to one unit each.
func TestFallbackShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := stint.MustLimit("100 per 1h fixed_window")
		few := stint.MustLimit("2 per 1h fixed_window")
		s := newShaky(t, 4)
		same(t, s.spend(t, "k", l, 40), "store 40, local 0 of 40")
		s.away.Store(true)
		same(t, s.spend(t, "k", l, 40), "store 0, local 15 of 40") // 60 / 4
		same(t, s.spend(t, "new", l, 40), "store 0, local 25 of 40")
		same(t, s.spend(t, "few", few, 3), "store 0, local 1 of 3")
		d, err := s.AllowN(t.Context(), "k2", l, 30)
		if err != nil || !d.Allowed || d.Remaining != 0 {
			t.Fatalf("30 of a share of 25: %+v, %v", d, err)
		}
		if d, err = s.AllowN(t.Context(), "k3", l, 101); err != nil || d.Allowed || d.RetryAfter != stint.Never {
			t.Fatalf("101 of 100: %+v, %v", d, err)
		}
	})
}

// Several instances charge what they have spent at once. What one finds left another
// may take before it is charged, and then the rest is.
// Limits of nothing and without end have no shares.
func TestFallbackSharesNeitherNothingNorUnlimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaky(t, 2)
		s.away.Store(true)
		some, none, free := stint.MustLimit("some: 10 per 1h"), stint.MustLimit("none: 0 per 1h"), stint.MustLimit("unlimited")
		each := make([]stint.Decision, 3)
		asks := []stint.Ask{{Key: "k", Limit: some}, {Key: "k", Limit: free}, {Key: "k", Limit: none, Peek: true}}
		d, err := s.Take(t.Context(), &stint.Request{Asks: asks}, each)
		if err != nil || !d.Allowed || each[0].Remaining != 4 || each[1].Remaining != stint.Unlimited || each[2].Remaining != 0 {
			t.Errorf("it answers %+v, %v, to each %+v", d, err, each)
		}
		asks[2].Peek = false
		if d, err := s.Take(t.Context(), &stint.Request{Asks: asks}, each); err != nil || d.Allowed || d.Limit != none || d.RetryAfter != stint.Never || each[0].Remaining != 4 {
			t.Errorf("under a limit of nothing it answers %+v, %v, to each %+v", d, err, each)
		}
		if d, err := s.Allow(t.Context(), "k", free); err != nil || !d.Allowed || d.By != stint.ByStore {
			t.Errorf("without end: %+v, %v", d, err)
		}
	})
}

func TestFallbackRepaysBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := stint.MustLimit("60 per 1h sliding_log")
		s := newShaky(t, 1)
		rival := &rivalled{Store: s.fall.Store, after: func(stint.Decision) {}}
		s.fall.Store = rival
		s.away.Store(true)
		s.spend(t, "opener", l, 5)
		same(t, s.spend(t, "k", l, 70), "store 0, local 60 of 70")
		direct := stint.NewLimiter(s.store)
		if _, err := direct.AllowN(t.Context(), "k", l, 30); err != nil {
			t.Fatal(err)
		}
		others := 2
		rival.after = func(d stint.Decision) {
			if !d.Allowed && others > 0 {
				others--
				if _, err := direct.AllowN(t.Context(), "k", l, 10); err != nil {
					t.Error(err)
				}
			}
		}
		s.away.Store(false)
		time.Sleep(10 * time.Second)
		if d, err := direct.Peek(t.Context(), "k", l); err != nil || d.Remaining != 0 || others != 0 {
			t.Errorf("%d are left, and %d others did not come: %v", d.Remaining, others, err)
		}
	})
}

// rivalled is a store that others charge between one call and the next.
type rivalled struct {
	stint.Store
	after func(stint.Decision)
}

func (s *rivalled) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	d, err := s.Store.Take(ctx, r, out)
	if err == nil {
		s.after(d)
	}
	return d, err
}

// A store that answers well-formed lies is believed: nobody else could know better.
func TestFallbackTrustsTheStore(t *testing.T) {
	l := stint.MustLimit("2 per 1h")
	for _, allows := range []bool{true, false} {
		f := &fleet.Fallback{Store: liar(allows)}
		for range 10 {
			if d, err := stint.NewLimiter(f).Allow(t.Context(), "k", l); err != nil || d.Allowed != allows || d.By != stint.ByStore {
				t.Errorf("%+v, %v, want allowed %t", d, err, allows)
			}
		}
		f.Close()
	}
}

// liar is a store that gives the same answer to all.
type liar bool

func (s liar) Take(_ context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	d := stint.Decision{Allowed: bool(s), Limit: r.Asks[0].Limit, Key: r.Asks[0].Key}
	if s {
		d.Outcome, d.Remaining = stint.Allowed, 1
	} else {
		d.Outcome, d.RetryAfter = stint.Limited, time.Minute
	}
	for i := range out {
		out[i] = d
	}
	return d, nil
}

// What the store allows again, the mirror does not hold back.
func TestFallbackFollowsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newShaky(t, 1), stint.MustLimit("10 per 1m")
		same(t, s.spend(t, "k", l, 12), "store 10, local 0 of 12")
		if err := stint.Refund(t.Context(), s.store, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: l, Cost: 8}}}); err != nil {
			t.Fatal(err)
		}
		same(t, s.spend(t, "k", l, 2), "store 2, local 0 of 2")
		s.away.Store(true)
		same(t, s.spend(t, "k", l, 9), "store 0, local 6 of 9")
		time.Sleep(12 * time.Second)
		same(t, s.spend(t, "k", l, 9), "store 0, local 2 of 9")
	})
}

func TestFallbackBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaky(t, 1)
		l := stint.MustLimit("1 per 1m fixed_window")
		p, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 2, BanFor: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ask := func() string {
			d, err := s.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: l, Cost: 1, Penalty: p}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(d.Outcome, " by ", d.By)
		}
		same(t, strings.Join([]string{ask(), ask(), ask()}, ", "), "allowed by store, limited by store, banned by store")
		s.away.Store(true)
		time.Sleep(10 * time.Minute)
		same(t, ask(), "banned by local")
		time.Sleep(50 * time.Minute)
		same(t, ask(), "allowed by local")
	})
}

// Where the store left off counting violations, the instance goes on.
func TestFallbackContinuesViolations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaky(t, 1)
		l := stint.MustLimit("1 per 1h fixed_window")
		p, err := stint.NewPenalty(stint.PenaltySpec{WarnAfter: 3, BanAfter: 5, BanFor: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		told := func(d stint.Decision, err error) string {
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(d.Outcome, " ", d.Violations, " by ", d.By)
		}
		ask := func() string {
			return told(s.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: l, Cost: 1, Penalty: p}}}, nil))
		}
		same(t, strings.Join([]string{ask(), ask()}, ", "), "allowed 0 by store, limited 1 by store")
		same(t, told(s.Violate(t.Context(), "k", p)), "limited 2 by store")
		s.away.Store(true)
		time.Sleep(time.Minute)
		same(t, strings.Join([]string{ask(), ask(), ask(), ask()}, ", "), "warned 3 by local, warned 4 by local, banned 5 by local, banned 0 by local")
	})
}

func TestFallbackPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newShaky(t, 1), stint.MustLimit("1 per 1h fixed_window")
		other := stint.MustLimit("2 per 1h sliding_log")
		strict := penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour})
		s.away.Store(true)
		ask := func(limit *stint.Limit, o stint.OnError) stint.Ask {
			return stint.Ask{Key: "k", Limit: limit, Cost: 1, OnError: o}
		}
		for i, c := range []struct {
			asks []stint.Ask
			want string
		}{
			{[]stint.Ask{ask(l, stint.OnErrorAllow)}, "allowed by policy"},
			{[]stint.Ask{ask(l, stint.OnErrorAllow)}, "allowed by policy"},
			{[]stint.Ask{ask(l, stint.OnErrorDeny)}, "error"},
			{[]stint.Ask{ask(l, stint.OnErrorLocal)}, "allowed by local"},
			{[]stint.Ask{ask(l, stint.OnErrorLocal)}, "limited by local"},
			{[]stint.Ask{ask(l, stint.OnErrorAllow), ask(other, stint.OnErrorLocal)}, "allowed by local"},
			{[]stint.Ask{ask(other, stint.OnErrorLocal), ask(l, stint.OnErrorDeny)}, "error"}, // and nothing is charged
			{[]stint.Ask{ask(other, stint.OnErrorLocal)}, "allowed by local"},
			{[]stint.Ask{ask(l, stint.OnErrorAllow), ask(other, stint.OnErrorLocal)}, "limited by local"},
			{[]stint.Ask{{Key: "k", Penalty: strict, OnError: stint.OnErrorDeny}}, "error"},
			{[]stint.Ask{{Key: "k", Penalty: strict, OnError: stint.OnErrorAllow}}, "allowed by policy"},
			{[]stint.Ask{{Key: "k", Penalty: strict}}, "allowed by local"},
			{[]stint.Ask{ask(l, stint.OnErrorAllow), {Key: "k", Penalty: strict}}, "allowed by policy"},
			{[]stint.Ask{{Key: "k", Penalty: strict}, ask(other, stint.OnErrorLocal)}, "limited by local"},
		} {
			out := make([]stint.Decision, len(c.asks))
			d, err := s.Take(t.Context(), &stint.Request{Asks: c.asks}, out)
			have := fmt.Sprint(d.Outcome, " by ", d.By)
			if err != nil {
				have = "error"
			}
			if have != c.want {
				t.Errorf("%d: %s (%v), want %s", i, have, err, c.want)
			}
		}
	})
}

// Whoever has little time gets a decision within it, and whoever has left none;
// neither is a failure of the store's.
func TestFallbackOfShortContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newShaky(t, 1), stint.MustLimit("1000 per 1h")
		s.away.Store(true)
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if d, err := s.Allow(ctx, "k", l); err != nil || d.By != stint.ByLocal || ctx.Err() != nil {
				t.Fatal(d, err)
			}
			cancel()
			if _, err := s.Allow(ctx, "k", l); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if s.fall.State() != fleet.Closed {
			t.Errorf("%s", s.fall.State())
		}
		if _, err := s.Allow(t.Context(), "", l); !errors.Is(err, stint.ErrRequest) {
			t.Error(err)
		}
	})
}

// Nothing that opened or asked stays behind.
func TestFallbackLeaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newShaky(t, 1), stint.MustLimit("1 per 1h")
		s.away.Store(true)
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() { _, _ = s.Allow(t.Context(), "k", l) })
		}
		all.Wait()
		s.fall.Close() // synctest fails if a goroutine is left
	})
}

func TestFallbackKit(t *testing.T) {
	limittest.Kit{
		New:   func(*testing.T) stint.Store { return &fleet.Fallback{Store: new(stint.Memory)} },
		Steps: 20_000,
	}.Run(t)
}

// refusing is a store that says that it charges nothing.
type refusing struct {
	*stint.Memory
	away atomic.Bool
}

func (r *refusing) Take(ctx context.Context, req *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if r.away.Load() {
		return stint.Decision{}, fmt.Errorf("%w: away", fleet.ErrNotCharged)
	}
	return r.Memory.Take(ctx, req, out)
}

// What certainly was not charged to the Store is charged to it when it is back, also
// what was asked before the breaker opened.
func TestFallbackChargesUnsent(t *testing.T) {
	store := &refusing{Memory: new(stint.Memory)}
	f := &fleet.Fallback{Store: store, Instances: 1}
	defer f.Close()
	l, limit := stint.NewLimiter(f), stint.MustLimit("1000000 per 24h fixed_window")
	store.away.Store(true)
	spent := 0
	for ; f.State() != fleet.Open; spent++ {
		if d, err := l.Allow(t.Context(), "a", limit); err != nil || d.By != stint.ByLocal || !d.Allowed {
			t.Fatalf("%d: %+v, %v", spent, d, err)
		}
	}
	store.away.Store(false)
	await.Until(t, "the breaker closes", func() bool { return f.State() == fleet.Closed })
	// The breaker does not wait for what is owed to be charged.
	await.Until(t, "what was spent is charged", func() bool {
		d, err := stint.NewLimiter(store.Memory).Peek(t.Context(), "a", limit)
		return err == nil && d.Remaining == 1_000_000-int64(spent)
	})
}

// A call that never left this instance is charged with the next that is answered,
// though the breaker never opened.
func TestFallbackChargesUnsentSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &refusing{Memory: new(stint.Memory)}
		f := &fleet.Fallback{Store: store, Instances: 1}
		defer f.Close()
		l, limit := stint.NewLimiter(f), stint.MustLimit("100 per 24h fixed_window")
		for i, away := range []bool{true, true, false} {
			store.away.Store(away)
			if d, err := l.Allow(t.Context(), "a", limit); err != nil || !d.Allowed || (d.By == stint.ByLocal) != away {
				t.Fatalf("%d: %+v, %v", i, d, err)
			}
		}
		synctest.Wait()
		if d, err := stint.NewLimiter(store.Memory).Peek(t.Context(), "a", limit); err != nil || d.Remaining != 97 || f.State() != fleet.Closed {
			t.Errorf("%d are left of 100 after 3, breaker %s: %v", d.Remaining, f.State(), err)
		}
	})
}

// What has left the store leaves the mirror first, too: what an instance took itself
// just now is still in use there when the store goes away.
func TestFallbackKeepsTheNewest(t *testing.T) {
	for _, text := range []string{"10 per 10s sliding_log", "10 per 10s sliding_window", "10 per 10s fixed_window"} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(10 * time.Second))) // where windows begin
			s, limit := newShaky(t, 1), stint.MustLimit(text)
			var took []taken
			take := func(n int64) {
				d, err := s.AllowN(t.Context(), "k", limit, n)
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					took = append(took, taken{time.Now(), n})
				}
			}
			// Another instance's leave first, and this one hears of it late.
			if _, err := stint.NewLimiter(s.store).AllowN(t.Context(), "k", limit, 5); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			take(1)
			time.Sleep(time.Second)
			take(4)
			time.Sleep(6 * time.Second)
			take(1)
			s.away.Store(true)
			time.Sleep(4 * time.Second)
			for range 10 {
				take(1)
			}
			u := use{spec: limit.Spec(), took: took, last: time.Now()}
			if n := u.at(time.Now()); n > 10 {
				t.Errorf("%s: %v units in use: %+v", text, n, took)
			}
		})
	}
}
