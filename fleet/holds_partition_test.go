package fleet_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// An instance that cannot reach the store for longer than T still runs what it runs, and the store
// gives its places to others: twice the limit runs at once, and no more. When it is back, its holds
// count again, fitting or not.
func TestPartitionLongerThanT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const live, c, last = 3, 30, 10 * time.Second
		l := stint.MustLimit("30 in_flight hold 10s")
		h := newHolding(t, live) // the one that is cut off
		direct := &fleet.Fallback{Store: h.store.Memory, Instances: live}
		defer direct.Close()
		there := stint.NewLimiter(direct)
		var absent, others []*stint.Reservation
		fill := func(l2 *stint.Limiter, to *[]*stint.Reservation) {
			for range 2 * c {
				r, _, err := l2.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: l}}})
				if err != nil {
					t.Fatal(err)
				}
				if r != nil {
					*to = append(*to, r)
				}
			}
		}
		fill(h.Limiter, &absent)
		h.store.how.Store(hangs)
		most := 0
		for at := time.Duration(0); at < 4*last; at += last / 8 {
			fill(there, &others)
			fill(h.Limiter, &absent)
			n := len(absent) + len(others)
			if most = max(most, n); at < last/2 && n > c || n > 2*c {
				t.Fatalf("after %s %d run at the absent instance and %d at others", at, len(absent), len(others))
			}
			if at > 2*last && len(absent) > c/2 { // its own end, and it takes new ones
				if err := absent[0].Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
				absent = absent[1:]
			}
			time.Sleep(last / 8)
		}
		if most != 2*c {
			t.Errorf("at most %d ran at once, want %d", most, 2*c)
		}
		h.store.how.Store(works)
		time.Sleep(last)
		if n := heldIn(t, h.store.Memory, "k", l); n <= c || n > 2*c {
			t.Errorf("%d are held when the instance is back, and it runs %d beside %d", n, len(absent), len(others))
		}
		for _, r := range append(absent, others...) {
			if err := r.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(last)
		if n := heldIn(t, h.store.Memory, "k", l); n != 0 {
			t.Errorf("%d are held in the end", n)
		}
	})
}

// What the store said is used is not counted as held, and the other way round: what ends leaves what
// is used, and what was used stays.
func TestFallbackKnowsUsedAndHeld(t *testing.T) {
	for _, text := range []string{"100 per 24h hold 1h", "100 per 24h fixed_window hold 1h", "100 per 24h sliding_log hold 1h", "100 per 24h sliding_window hold 1h"} {
		synctest.Test(t, func(t *testing.T) {
			h, l := newHolding(t, 1), stint.MustLimit(text)
			if d, err := h.AllowN(t.Context(), "k", l, 30); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			id := stint.NewHoldID()
			h.take("k", 40, stint.NewHoldID(), l)
			same(t, stands(t, h.fall, "k", l), "30 left, 40 held")
			second := h.take("k", 20, id, l)
			h.store.how.Store(hangs)
			same(t, stands(t, h.fall, "k", l), "10 left, 60 held")
			if c := h.settle("k", l, &second, id, 20, 5); c.Err == nil {
				t.Errorf("%+v", c)
			}
			same(t, stands(t, h.fall, "k", l), "25 left, 40 held")
			if d := h.take("k", 26, stint.NewHoldID(), l); d.Allowed || !d.Busy {
				t.Errorf("%+v", d)
			}
			time.Sleep(time.Hour) // nobody renews the first
			if d := h.take("k", 65, stint.NewHoldID(), l); !d.Allowed {
				t.Errorf("%s: %+v", text, d)
			}
		})
	}
}

// late is a store whose call of Take arrives after its caller has given up.
type late struct {
	*remote
	by time.Duration
}

func (s *late) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if s.by == 0 {
		return s.remote.Take(ctx, r, out)
	}
	again := *r
	again.Asks = append([]stint.Ask(nil), r.Asks...)
	time.AfterFunc(s.by, func() { _, _ = s.Memory.Take(context.Background(), &again, nil) })
	<-ctx.Done()
	return stint.Decision{}, ctx.Err()
}

// What a call holds that arrives late is given up, however late it is.
func TestFallbackLateHolds(t *testing.T) {
	for _, by := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 6 * time.Second, 5 * time.Minute} {
		t.Run(by.String(), func(t *testing.T) { testLateHolds(t, by) })
	}
}

func testLateHolds(t *testing.T, by time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s := &late{remote: newRemote(), by: by}
		f := &fleet.Fallback{Store: s, Instances: 1, Called: func(time.Duration, error) {}}
		defer f.Close()
		l, limiter := stint.MustLimit("4 in_flight hold 1h"), stint.NewLimiter(f)
		if _, err := limiter.Take(t.Context(), &stint.Request{Hold: stint.NewHoldID(), Asks: []stint.Ask{{Key: "k", Limit: l}}}, nil); err != nil {
			t.Fatal(err)
		}
		s.by = 0
		for range 30 {
			if _, err := limiter.Allow(t.Context(), "other", stint.MustLimit("100 per 1h")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100*time.Millisecond + by/10)
		}
		if n := heldIn(t, s.Memory, "k", l); n != 0 {
			t.Errorf("%d are still held for nobody", n)
		}
	})
}
