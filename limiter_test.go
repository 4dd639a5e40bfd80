package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

func TestZeroLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l stint.Limiter
		limit := stint.MustLimit("2 per 1m")
		for i, want := range []struct {
			allowed   bool
			remaining int64
			retry     time.Duration
		}{{true, 1, 0}, {true, 0, 0}, {false, 0, 30 * time.Second}} {
			d, err := l.Allow(t.Context(), "a", limit)
			if err != nil || d.Allowed != want.allowed || d.Remaining != want.remaining || d.RetryAfter != want.retry {
				t.Errorf("call %d: %+v, %v", i, d, err)
			}
		}
		time.Sleep(30 * time.Second)
		if d, _ := l.Allow(t.Context(), "a", limit); !d.Allowed {
			t.Error("refused after its own RetryAfter")
		}
	})
}

// An ask that says nothing of a cost takes one unit; one that takes none says so.
func TestCostOfAnAsk(t *testing.T) {
	var l stint.Limiter
	limit := stint.MustLimit("3 per 1h")
	for i, want := range []int64{2, 2, 1, 0} {
		ask := stint.Ask{Key: "k", Limit: limit, Peek: i == 1}
		d, err := l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{ask}}, nil)
		if err != nil || !d.Allowed || d.Remaining != want {
			t.Fatalf("request %d: %+v, %v, want %d left", i, d, err, want)
		}
	}
	for name, c := range map[string]struct {
		ask  stint.Ask
		left int64
	}{"a peek": {stint.Ask{Key: "k", Limit: limit, Peek: true}, 0}, "no cost": {stint.Ask{Key: "k", Limit: limit}, 1}} {
		l := stint.Limiter{Store: new(stint.Memory)}
		_, _ = l.AllowN(t.Context(), "k", limit, 3)
		err := stint.Refund(t.Context(), l.Store, &stint.Request{Asks: []stint.Ask{c.ask}})
		if d, _ := l.Peek(t.Context(), "k", limit); err != nil || d.Remaining != c.left {
			t.Errorf("refunded %s: %d left, %v, want %d", name, d.Remaining, err, c.left)
		}
	}
}

// What took nothing is not refunded: an ask that no store counted, and one without units.
func TestRefundOfWhatWasTaken(t *testing.T) {
	m := new(stint.Memory)
	l := stint.NewLimiter(m)
	limit, other := stint.MustLimit("3 per 1h"), stint.MustLimit("other: 3 per 1h")
	for _, one := range []*stint.Limit{limit, other} {
		_, _ = l.AllowN(t.Context(), "k", one, 3)
	}
	nothing := []stint.Ask{{Key: "k", Limit: limit, By: stint.ByPolicy}, {Key: "k", Limit: limit, Peek: true}}
	if err := stint.Refund(t.Context(), bare{m}, &stint.Request{Asks: nothing}); err != nil {
		t.Errorf("nothing was taken: %v", err)
	}
	r := stint.Request{Asks: append(nothing[:1:1], stint.Ask{Key: "k", Limit: other, Cost: 2})}
	if err := stint.Refund(t.Context(), m, &r); err != nil || len(r.Asks) != 2 || r.Asks[0].By != stint.ByPolicy {
		t.Errorf("%+v, %v", r, err)
	}
	for one, want := range map[*stint.Limit]int64{limit: 0, other: 2} {
		if d, _ := l.Peek(t.Context(), "k", one); d.Remaining != want {
			t.Errorf("%s: %d left, want %d", one, d.Remaining, want)
		}
	}
}

// A dry run answers each ask as if it came alone, and leaves no trace: neither of what it
// would take nor of what would be a violation.
func TestDryRun(t *testing.T) {
	memory := new(stint.Memory)
	l := stint.NewLimiter(memory)
	p := penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour})
	three, one := stint.MustLimit("3 per 1h fixed_window"), stint.MustLimit("1 per 1h")
	_, _ = l.Allow(t.Context(), "k", one)
	r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: three, Cost: 2}, {Key: "k", Limit: three, Cost: 4}, {Key: "k", Limit: one, Penalty: p}}}
	if err := stint.Internal(friend.Of{}).DryRun(t.Context(), memory, &r, make([]stint.Decision, 3)); !errors.Is(err, stint.ErrRequest) { // asked twice
		t.Error(err)
	}
	for range 2 {
		for i, want := range []struct {
			ask  stint.Ask
			says string
		}{
			{r.Asks[0], "true 3 0s"}, {r.Asks[1], fmt.Sprint("false 3 ", stint.Never.Round(time.Minute))}, {r.Asks[2], "false 0 1h0m0s"},
		} {
			out := make([]stint.Decision, 1)
			err := stint.Internal(friend.Of{}).DryRun(t.Context(), memory, &stint.Request{Asks: []stint.Ask{want.ask}}, out)
			if got := fmt.Sprint(out[0].Allowed, out[0].Remaining, " ", out[0].RetryAfter.Round(time.Minute)); err != nil || got != want.says {
				t.Errorf("ask %d: %s, %v, want %s", i, got, err, want.says)
			}
		}
	}
	if n := memory.Len(); n != 1 {
		t.Errorf("%d counts and records", n)
	}
	for name, r := range map[string]stint.Request{"no asks": {}, "no limit": {Asks: []stint.Ask{{Key: "k", Penalty: p}}}} {
		if err := stint.Internal(friend.Of{}).DryRun(t.Context(), memory, &r, make([]stint.Decision, len(r.Asks))); !errors.Is(err, stint.ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := stint.Internal(friend.Of{}).DryRun(t.Context(), memory, &stint.Request{Asks: r.Asks[:1]}, nil); !errors.Is(err, stint.ErrRequest) {
		t.Errorf("no room: %v", err)
	}
}

// A probe takes something: a server that takes no writes does not pass for one that decides.
func TestProbe(t *testing.T) {
	readOnly := func(r *stint.Request) (err error) {
		if r.Asks[0].Units() > 0 {
			err = errors.New("read only")
		}
		return err
	}
	for name, c := range map[string]struct {
		fails func(*stint.Request) error
		want  bool
	}{"decides": {func(*stint.Request) error { return nil }, true}, "read only": {readOnly, false}} {
		if err := stint.Internal(friend.Of{}).Probe(t.Context(), failsIf{new(stint.Memory), c.fails}, nil, "k"); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A probe and a dry run count under names of their own: an unnamed limit of a caller shares
// nothing with them.
func TestOwnLimitsShareNothing(t *testing.T) {
	second := stint.MustLimit("5 per 1s")
	for name, first := range map[string]func(context.Context, stint.Store) error{
		"probe": func(ctx context.Context, s stint.Store) error {
			return stint.Internal(friend.Of{}).Probe(ctx, s, second, "k")
		},
		"dry run": func(ctx context.Context, s stint.Store) error {
			out := make([]stint.Decision, 1)
			err := stint.Internal(friend.Of{}).DryRun(ctx, s, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: second}}}, out)
			if !out[0].Allowed || out[0].Remaining != 5 {
				t.Errorf("a dry run of a new key: %+v", out[0])
			}
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			memory := new(stint.Memory)
			if err := first(t.Context(), memory); err != nil {
				t.Error(name, err)
			}
			if d, err := stint.NewLimiter(memory).Peek(t.Context(), "k", second); err != nil || d.Remaining != 5 {
				t.Errorf("after a %s: %+v, %v", name, d, err)
			}
		})
	}
}

type failsIf struct {
	stint.Store
	fails func(*stint.Request) error
}

func (s failsIf) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if err := s.fails(r); err != nil {
		return stint.Decision{}, err
	}
	return s.Store.Take(ctx, r, out)
}

// Bad requests are refused before they reach a store.
func TestBadRequests(t *testing.T) {
	asks := func(n int) (all []stint.Ask) {
		for i := range n {
			all = append(all, stint.Ask{Key: fmt.Sprint(i), Limit: stint.MustLimit("1 per 1s")})
		}
		return all
	}
	if _, err := new(stint.Limiter).Take(t.Context(), &stint.Request{Asks: asks(stint.MaxAsks)}, nil); err != nil {
		t.Error(err)
	}
	var l stint.Limiter
	ctx, limit := t.Context(), stint.MustLimit("2 per 1m")
	ask := stint.Ask{Key: "a", Limit: limit, Cost: 1}
	strict := penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour})
	for name, r := range map[string]stint.Request{
		"nothing":          {},
		"empty key":        {Asks: []stint.Ask{{Limit: limit}}},
		"long key":         {Asks: []stint.Ask{{Key: strings.Repeat("k", stint.MaxKey+1), Limit: limit}}},
		"too many asks":    {Asks: asks(stint.MaxAsks + 1)},
		"no limit":         {Asks: []stint.Ask{{Key: "a"}}},
		"a ban's cost":     {Asks: []stint.Ask{{Key: "a", Cost: 1, Penalty: strict}}},
		"limit not made":   {Asks: []stint.Ask{{Key: "a", Limit: new(stint.Limit)}}},
		"penalty not made": {Asks: []stint.Ask{{Key: "a", Limit: limit, Penalty: new(stint.Penalty)}}},
		"negative cost":    {Asks: []stint.Ask{{Key: "a", Limit: limit, Cost: -1}}},
		"a peek's cost":    {Asks: []stint.Ask{{Key: "a", Limit: limit, Cost: 1, Peek: true}}},
		"asked twice":      {Asks: []stint.Ask{ask, ask}},
		"before 1970":      {Asks: []stint.Ask{ask}, At: time.Unix(-1, 0)},
		"far future":       {Asks: []stint.Ask{ask}, At: time.Unix(1<<40, 0)},
	} {
		if _, err := l.Take(ctx, &r, nil); !errors.Is(err, stint.ErrRequest) {
			t.Errorf("%s: Take: error %v, want ErrRequest", name, err)
		}
		if len(r.Asks) == 1 && r.At.IsZero() {
			a := &r.Asks[0]
			if err := l.Refund(ctx, stint.Decision{Allowed: true, Key: a.Key, Limit: a.Limit}, a.Cost); a.Penalty == nil && !a.Peek && !errors.Is(err, stint.ErrRequest) {
				t.Errorf("%s: Refund: error %v, want ErrRequest", name, err)
			}
		}
		answers := make([]stint.Answer, 2)
		l.TakeBatch(ctx, []stint.Request{r, {Asks: []stint.Ask{{Key: name, Limit: limit}}, At: r.At}}, answers)
		if !errors.Is(answers[0].Err, stint.ErrRequest) || r.At.IsZero() && (answers[1].Err != nil || !answers[1].Allowed) {
			t.Errorf("%s: TakeBatch: %+v", name, answers)
		}
	}
	if _, err := l.Take(ctx, &stint.Request{Asks: []stint.Ask{ask}}, make([]stint.Decision, 2)); !errors.Is(err, stint.ErrRequest) {
		t.Errorf("too many places: error %v", err)
	}
	if _, err := l.Pardon(ctx, "a", nil); !errors.Is(err, stint.ErrRequest) {
		t.Errorf("Pardon of nothing: error %v", err)
	}
	if err := l.Reset(ctx, "a"); !errors.Is(err, stint.ErrRequest) {
		t.Errorf("Reset of nothing: error %v", err)
	}
}

func TestAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l stint.Limiter
		perUser, perIP := stint.MustLimit("5 per 1m"), stint.MustLimit("2 per 1m sliding_log")
		r := stint.Request{Asks: []stint.Ask{{Key: "user", Limit: perUser, Cost: 1}, {Key: "ip", Limit: perIP, Cost: 1}}}
		each := make([]stint.Decision, 2)
		for range 2 {
			if d, err := l.Take(t.Context(), &r, each); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		d, err := l.Take(t.Context(), &r, each)
		if err != nil || d.Allowed || d.Limit != perIP || d.Key != "ip" || d.RetryAfter != time.Minute {
			t.Errorf("whole: %+v, %v", d, err)
		}
		if !each[0].Allowed || each[0].Remaining != 3 {
			t.Errorf("the user's limit was charged for a refused request: %+v", each[0])
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l stint.Limiter
		limit := stint.MustLimit("1 per 10s")
		start := time.Now()
		for i := range 4 {
			if err := l.Wait(t.Context(), "a", limit); err != nil {
				t.Fatal(err)
			}
			if got, want := time.Since(start), time.Duration(i)*10*time.Second; got != want {
				t.Errorf("call %d passed after %s, want %s", i, got, want)
			}
		}
	})
}

// Under a leaky bucket, departures come at an even pace.
func TestWaitShapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l stint.Limiter
		limit := stint.MustLimit("10 per 1s leaky_bucket")
		start := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		left := map[time.Duration]int{}
		for range 10 {
			wg.Go(func() {
				if err := l.Wait(t.Context(), "a", limit); err != nil {
					t.Error(err)
				}
				mu.Lock()
				left[time.Since(start)]++
				mu.Unlock()
			})
		}
		wg.Wait()
		for i := range 10 {
			if at := time.Duration(i) * 100 * time.Millisecond; left[at] != 1 {
				t.Errorf("%d left after %s, want 1", left[at], at)
			}
		}
	})
}

func TestWaitRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l stint.Limiter
		limit := stint.MustLimit("1 per 10s")
		if err := l.Wait(t.Context(), "a", limit); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		err := l.Wait(ctx, "a", limit)
		var refused *stint.RefusedError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &refused) || refused.RetryAfter != 10*time.Second {
			t.Errorf("a deadline that cannot be met: %v", err)
		}
		err = l.WaitN(t.Context(), "a", limit, 2)
		if errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &refused) || refused.RetryAfter != stint.Never {
			t.Errorf("a cost that never fits: %v", err)
		}
		if time.Since(start) != 0 {
			t.Errorf("refused after %s, want at once", time.Since(start))
		}
	})
}

// A waiter that gives up leaves nothing charged, and its place to the next.
func TestCancelledWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l stint.Limiter
		limit := stint.MustLimit("2 per 10s leaky_bucket")
		if err := l.Wait(t.Context(), "a", limit); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := l.Wait(ctx, "a", limit); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled in its delay: %v", err)
		}
		if err := l.Wait(ctx, "a", limit); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
		time.Sleep(3 * time.Second)
		if d, _ := l.Peek(t.Context(), "a", limit); d.Remaining != 1 || d.ResetAfter != time.Second {
			t.Errorf("left charged: %+v", d) // by more than the one that passed
		}
		start := time.Now()
		if err := l.Wait(t.Context(), "a", limit); err != nil || time.Since(start) != time.Second {
			t.Errorf("the next leaves after %s: %v", time.Since(start), err)
		}
	})
}

// A waiter whose turn comes after its deadline takes no place in the queue, so that
// those who can wait have it.
func TestWaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l stint.Limiter
		limit := stint.MustLimit("10 per 1s leaky_bucket")
		hurried, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		start := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := l.Wait(t.Context(), "a", limit); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for range 100 {
			var refused *stint.RefusedError
			err := l.Wait(hurried, "a", limit)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &refused) || time.Since(start) != 0 {
				t.Fatalf("after %s: %v", time.Since(start), err)
			}
			if want := "stint: must wait 300ms to leave at the pace of 10 per 1s leaky_bucket, which is past the deadline"; err.Error() != want {
				t.Errorf("have %s\nwant %s", err, want)
			}
		}
		if err := l.Wait(t.Context(), "a", limit); err != nil || time.Since(start) != 300*time.Millisecond {
			t.Errorf("the next leaves after %s: %v", time.Since(start), err)
		}
		all.Wait()
	})
}

// However many give up while they wait, and whenever: those who leave are never closer
// to each other than the pace.
func TestWaitKeepsThePace(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			limiter, limit := new(stint.Limiter), stint.MustLimit("10 per 1s leaky_bucket burst 21")
			var mu sync.Mutex
			var left []time.Time
			var all sync.WaitGroup
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if n := random.IntN(3); n == 0 {
					time.AfterFunc(time.Duration(random.Int64N(int64(2*time.Second))), cancel)
				} else if n == 1 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(random.Int64N(int64(2*time.Second))))
				}
				all.Go(func() {
					defer cancel()
					if limiter.Wait(ctx, "a", limit) != nil {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					left = append(left, time.Now())
				})
				time.Sleep(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
			}
			all.Wait()
			for i := range left[1:] {
				if apart := left[i+1].Sub(left[i]); apart < 100*time.Millisecond-time.Microsecond {
					t.Errorf("seed %d: departure %d comes %s after the one before", seed, i+1, apart)
				}
			}
			if len(left) < 25 {
				t.Errorf("seed %d: %d of 100 left", seed, len(left))
			}
		})
	}
}

// bare is a Store and nothing more.
type bare struct{ stint.Store }

func TestUnsupported(t *testing.T) {
	l := stint.NewLimiter(bare{new(stint.Memory)})
	limit := stint.MustLimit("1 per 1s")
	for name, err := range map[string]error{
		"Refund": stint.Refund(t.Context(), l.Store, &stint.Request{Asks: []stint.Ask{{Key: "a", Limit: limit, Cost: 1}}}),
		"Reset":  l.Reset(t.Context(), "a", limit),
	} {
		if !errors.Is(err, stint.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	answers := make([]stint.Answer, 2)
	rs := []stint.Request{{Asks: []stint.Ask{{Key: "a", Limit: limit, Cost: 1}}}, {Asks: []stint.Ask{{Key: "a", Limit: limit, Cost: 1}}}}
	l.TakeBatch(t.Context(), rs, answers)
	if !answers[0].Allowed || answers[1].Allowed {
		t.Errorf("TakeBatch without an BatchTaker: %+v", answers)
	}
}

func TestStrictest(t *testing.T) {
	allow := func(left int64) stint.Decision {
		return stint.Decision{Allowed: true, Outcome: stint.Allowed, Remaining: left, Delay: time.Duration(left)}
	}
	deny := func(retry time.Duration) stint.Decision {
		return stint.Decision{Outcome: stint.Limited, RetryAfter: retry}
	}
	for _, c := range []struct {
		each []stint.Decision
		want int
	}{
		{[]stint.Decision{allow(3), allow(1), allow(2)}, 1},
		{[]stint.Decision{allow(1), allow(1)}, 0},
		{[]stint.Decision{allow(0), deny(time.Second), deny(time.Minute)}, 2},
		{[]stint.Decision{deny(stint.Never), deny(time.Minute), allow(0)}, 0},
	} {
		got, want := stint.Strictest(c.each), c.each[c.want]
		want.Delay = 0
		for _, e := range c.each {
			want.Delay = max(want.Delay, e.Delay)
		}
		if got != want {
			t.Errorf("%+v: %+v, want %+v", c.each, got, want)
		}
	}
	if stint.Strictest(nil) != (stint.Decision{}) {
		t.Error("the strictest of nothing is something")
	}
}

func TestAllocations(t *testing.T) {
	ctx := t.Context()
	for _, text := range []string{"1000000 per 1h", "1000000 per 1h leaky_bucket", "1000000 per 1h fixed_window", "1000000 per 1h sliding_window",
		"1 per 1h", "1 per 1h sliding_log"} {
		var l stint.Limiter
		limit := stint.MustLimit(text)
		if n := testing.AllocsPerRun(1000, func() { _, _ = l.Allow(ctx, "a", limit) }); n != 0 {
			t.Errorf("Allow under %q allocates %.0f times", text, n)
		}
	}
	// A log that admits must keep what it admitted: it grows, now and then.
	var l stint.Limiter
	limit := stint.MustLimit("1000000 per 1h sliding_log")
	if n := testing.AllocsPerRun(10000, func() { _, _ = l.Allow(ctx, "a", limit) }); n >= 1 {
		t.Errorf("Allow under %q allocates %.0f times", limit, n)
	}
}
