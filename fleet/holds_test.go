package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/limittest"
)

// How a call of a remote store fails.
const (
	works   = iota
	refuses // and certainly does nothing
	loses   // the answer, after it has done what was asked
	hangs
	hangsHalf // at every second call
)

// remote is a store that fails as a test wants.
type remote struct {
	*limittest.Faulty
	Memory *stint.Memory
	how    atomic.Int32
}

func newRemote() *remote {
	r := &remote{Memory: new(stint.Memory)}
	r.Faulty = &limittest.Faulty{Store: r.Memory, Fault: func(call int) (f limittest.Fault) {
		switch r.how.Load() {
		case refuses:
			f.Err = fmt.Errorf("away: %w", fleet.ErrNotCharged)
		case loses:
			f.Lost = true
		case hangs:
			f.Hang = true
		case hangsHalf:
			f.Hang = call%2 == 0
		}
		return f
	}}
	return r
}

// holding is a Fallback of one of some instances around a remote Holder.
type holding struct {
	*stint.Limiter
	t     *testing.T
	fall  *fleet.Fallback
	store *remote
}

func newHolding(t *testing.T, instances int) *holding {
	h := &holding{t: t, store: newRemote()}
	h.fall = h.instance(instances)
	h.Limiter = stint.NewLimiter(h.fall)
	return h
}

// instance is another Fallback around the same store.
func (h *holding) instance(instances int) *fleet.Fallback {
	f := &fleet.Fallback{Store: h.store, Instances: instances, Called: func(time.Duration, error) {}}
	h.t.Cleanup(f.Close)
	return f
}

// take takes units that are held, and returns who did what.
func (h *holding) take(key string, n int64, id stint.HoldID, limits ...*stint.Limit) stint.Decision {
	h.t.Helper()
	r := stint.Request{Hold: id}
	for _, l := range limits {
		r.Asks = append(r.Asks, stint.Ask{Key: key, Limit: l, Cost: n})
	}
	d, err := h.Take(h.t.Context(), &r, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

func (h *holding) do(c stint.HoldCall) stint.HoldCall {
	h.t.Helper()
	calls := []stint.HoldCall{c}
	h.fall.Holds(h.t.Context(), time.Time{}, calls)
	return calls[0]
}

func (h *holding) settle(key string, l *stint.Limit, d *stint.Decision, id stint.HoldID, n, cost int64) stint.HoldCall {
	h.t.Helper()
	return h.do(stint.HoldCall{Action: stint.HoldSettle, Key: key, Limit: l, Hold: id, Units: n, Cost: cost, By: d.By})
}

// stands is how key stands under l in a store.
func stands(t testing.TB, s stint.Store, key string, l *stint.Limit) string {
	t.Helper()
	d, err := stint.NewLimiter(s).Peek(t.Context(), key, l)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d left, %d held", d.Remaining, d.Held)
}

// open has calls fail until the breaker is open.
func (h *holding) open(how int32) {
	h.t.Helper()
	h.store.how.Store(how)
	for range 6 {
		if _, err := h.Allow(h.t.Context(), "opener", stint.MustLimit("100 per 1h")); err != nil {
			h.t.Fatal(err)
		}
	}
	synctest.Wait()
	if h.fall.State() != fleet.Open {
		h.t.Fatal(h.fall.State())
	}
}

func (h *holding) close() {
	h.t.Helper()
	h.store.how.Store(works)
	for range 1000 {
		if time.Sleep(10 * time.Millisecond); h.fall.State() == fleet.Closed {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			return
		}
	}
	h.t.Fatal("the breaker stays open")
}

// While the store answers, a hold is its.
func TestFallbackHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l, id := newHolding(t, 3), stint.MustLimit("10 per 1h fixed_window hold"), stint.NewHoldID()
		d := h.take("k", 6, id, l)
		same(t, fmt.Sprint(d.By, d.Allowed, d.Held, d.Remaining), "store true 6 4")
		if d := h.take("k", 5, stint.NewHoldID(), l); d.Allowed || !d.Busy {
			t.Errorf("%+v", d)
		}
		time.Sleep(20 * time.Second)
		if c := h.do(stint.HoldCall{Action: stint.HoldRenew, Key: "k", Limit: l, Hold: id, Units: 6}); !c.Found || c.Err != nil {
			t.Errorf("%+v", c)
		}
		time.Sleep(20 * time.Second)
		c := h.settle("k", l, &d, id, 6, 2)
		if !c.Found || c.Charged != 2 || c.Remaining != 8 || c.Held != 0 || c.Err != nil {
			t.Errorf("%+v", c)
		}
		if c = h.settle("k", l, &d, id, 6, 2); c.Found || c.Charged != 0 || c.Err != nil {
			t.Errorf("again: %+v", c)
		}
		if held, err := stint.NewLimiter(h.fall).Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: l, Cost: 8}}}, nil); !held.Allowed || err != nil {
			t.Error(held, err)
		}
	})
}

// What the store said last is used and held counts on: an instance shares what is left, and what
// it held itself ends here when it is settled here.
func TestFallbackSharesWhatIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l := newHolding(t, 2), stint.MustLimit("100 in_flight hold 30s")
		other := stint.NewLimiter(h.instance(2))
		for range 30 {
			if d, err := other.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: l}}, Hold: stint.NewHoldID()}, nil); !d.Allowed || err != nil {
				t.Fatal(d, err)
			}
		}
		var ids []stint.HoldID
		var mine stint.Decision
		for range 50 {
			ids = append(ids, stint.NewHoldID())
			mine = h.take("k", 1, ids[len(ids)-1], l)
		}
		same(t, fmt.Sprint(mine.Held, mine.Remaining), "80 20")
		h.open(hangs)
		spend := func() (allowed int) {
			for range 100 {
				d := h.take("k", 1, stint.NewHoldID(), l)
				if d.By != stint.ByLocal || !d.Allowed && !d.Busy {
					t.Fatalf("%+v", d)
				}
				if d.Allowed {
					allowed++
				}
			}
			return allowed
		}
		if n := spend(); n != 10 { // a half of 20
			t.Errorf("%d were allowed of a half of 20", n)
		}
		for _, id := range ids[:20] {
			for range 2 { // the second finds nothing
				if c := h.settle("k", l, &mine, id, 1, 0); c.Err == nil || c.Found {
					t.Fatalf("%+v", c)
				}
			}
		}
		if n := spend(); n != 10 { // a half of those 20
			t.Errorf("%d were allowed when 20 had ended", n)
		}
		// What still runs is renewed, and what others held runs out.
		for range 4 {
			time.Sleep(10 * time.Second)
			for _, id := range ids[20:] {
				if c := h.do(stint.HoldCall{Action: stint.HoldRenew, Key: "k", Limit: l, Hold: id, Units: 1, Again: true}); c.Err == nil {
					t.Fatalf("%+v", c)
				}
			}
		}
		if n := spend(); n != 35 { // of 100 - 30, a half: the local ones have run out, too
			t.Errorf("%d were allowed after T, when 30 still run here", n)
		}
	})
}

// However the answers came, instances without the store run no more than C × (2 − 1/live) at once.
func TestFallbackHoldsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const instances, c = 3, 30
		l := stint.MustLimit("30 in_flight hold 10s")
		h := newHolding(t, instances)
		falls := []*fleet.Fallback{h.fall, h.instance(instances), h.instance(instances)}
		running := 0
		var ids []stint.HoldID
		for range c { // one instance holds all
			ids = append(ids, stint.NewHoldID())
			if h.take("k", 1, ids[len(ids)-1], l).Allowed {
				running++
			}
		}
		h.store.how.Store(refuses)
		for range 3 { // three times T
			for range 2 {
				time.Sleep(5 * time.Second)
				for _, id := range ids {
					h.do(stint.HoldCall{Action: stint.HoldRenew, Key: "k", Limit: l, Hold: id, Units: 1, Again: true})
				}
			}
		}
		for _, f := range falls {
			for range 3 * c {
				d, err := stint.NewLimiter(f).Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: l}}, Hold: stint.NewHoldID()}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if d.Allowed {
					running++
				}
			}
		}
		if want := c*2 - c/instances; running != want {
			t.Errorf("%d run at once, want %d", running, want)
		}
	})
}

// A local hold is settled here, and what it did cost is charged when the store answers again, once
// and whether it fits or not.
func TestFallbackHoldsHere(t *testing.T) {
	for _, text := range []string{"100 per 1h hold", "100 per 1h fixed_window hold", "100 per 1h sliding_log hold", "100 per 1h sliding_window hold"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, l := newHolding(t, 2), stint.MustLimit(text)
				h.open(refuses)
				id := stint.NewHoldID()
				d := h.take("k", 30, id, l)
				same(t, fmt.Sprint(d.By, d.Allowed, d.Remaining), "local true 20")
				if d := h.take("k", 21, stint.NewHoldID(), l); d.Allowed || !d.Busy {
					t.Errorf("%+v", d)
				}
				if c := h.do(stint.HoldCall{Action: stint.HoldRenew, Key: "k", Limit: l, Hold: id, Units: 30, By: d.By}); !c.Found || c.Err != nil {
					t.Errorf("renew: %+v", c)
				}
				c := h.settle("k", l, &d, id, 30, 40)
				if !c.Found || c.Charged != 40 || c.Remaining != 10 || c.Err != nil {
					t.Errorf("%+v", c)
				}
				if c = h.settle("k", l, &d, id, 30, 40); c.Found || c.Charged != 0 || c.Err != nil {
					t.Errorf("again: %+v", c)
				}
				// What others used meanwhile does not keep it from being charged.
				if _, err := stint.NewLimiter(h.store.Memory).AllowN(t.Context(), "k", l, 90); err != nil {
					t.Fatal(err)
				}
				h.close()
				same(t, stands(t, h.store.Memory, "k", l), "0 left, 0 held")
				if n := usedIn(t, h.store.Memory, "k", l); n != 130 {
					t.Errorf("%d are used in the store, want 90 + 40", n)
				}
			})
		})
	}
}

// usedIn is how many units are used of a key in a store, also above the capacity. Then it uses more.
func usedIn(t testing.TB, s stint.Holder, key string, l *stint.Limit) int64 {
	t.Helper()
	const most = 1_000_000
	spec := l.Spec()
	spec.Debt = most - l.Capacity()
	l, err := stint.NewLimit(spec)
	if err != nil {
		t.Fatal(err)
	}
	calls := []stint.HoldCall{{Action: stint.HoldCharge, Key: key, Limit: l, Cost: most}}
	if s.Holds(t.Context(), time.Time{}, calls); calls[0].Err != nil {
		t.Fatal(calls[0].Err)
	}
	return most - calls[0].Charged
}

// heldIn is what is held of a key in a store.
func heldIn(t testing.TB, s stint.Holder, key string, l *stint.Limit) (units int64) {
	t.Helper()
	held, err := s.Held(t.Context(), key, []*stint.Limit{l})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range held {
		units += h.Units
	}
	return units
}

// A request whose answer was lost is decided here, and what it may hold in the store is given up
// when that answers again; so is what a caller left behind.
func TestFallbackLostHolds(t *testing.T) {
	for _, how := range []int32{loses, hangs, refuses} {
		synctest.Test(t, func(t *testing.T) {
			h, l := newHolding(t, 1), stint.MustLimit("10 per 1h fixed_window hold 1h")
			h.store.how.Store(how)
			id := stint.NewHoldID()
			d := h.take("k", 3, id, l)
			same(t, fmt.Sprint(d.By, d.Allowed), "local true")
			answers := []stint.Answer{{}}
			h.TakeBatch(t.Context(), []stint.Request{{Hold: stint.NewHoldID(), Asks: []stint.Ask{{Key: "k", Limit: l, Cost: 2}}}}, answers)
			same(t, fmt.Sprint(answers[0].By, answers[0].Allowed, answers[0].Err), "local true <nil>")
			denied := stint.Request{Hold: stint.NewHoldID(), Asks: []stint.Ask{{Key: "k", Limit: l, Cost: 2, OnError: stint.OnErrorDeny}}}
			if _, err := h.Take(t.Context(), &denied, nil); err == nil {
				t.Error("an ask with OnErrorDeny was decided without the store")
			}
			left, leave := context.WithCancel(t.Context())
			if leave(); how == hangs {
				_, _ = h.Take(left, &stint.Request{Hold: stint.NewHoldID(), Asks: []stint.Ask{{Key: "k", Limit: l, Cost: 2}}}, nil)
			}
			if n := heldIn(t, h.store.Memory, "k", l); (n >= 3) != (how == loses) { // 7, unless a probe has opened the breaker meanwhile
				t.Errorf("the store holds %d", n)
			}
			c := h.settle("k", l, &d, id, 3, 4)
			same(t, fmt.Sprint(c.Found, c.Charged, c.Err), "true 4 <nil>")
			h.store.how.Store(works)
			time.Sleep(4 * time.Second) // nobody else asks
			if n := heldIn(t, h.store.Memory, "k", l); n != 0 {
				t.Errorf("the store still holds %d", n)
			}
			if d, err := h.Allow(t.Context(), "other", l); err != nil || d.By != stint.ByStore {
				t.Fatal(d, err)
			}
			synctest.Wait()
			same(t, stands(t, h.store.Memory, "k", l), "6 left, 0 held")
		})
	}
}

// Lost holds are forgotten when they have run out, and are not kept without bound.
func TestFallbackLostHoldsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l := newHolding(t, 1), stint.MustLimit("10 in_flight hold 1s")
		h.fall.MaxOwed = 5000
		h.store.how.Store(loses)
		for i := range 100 {
			h.take(fmt.Sprint("k", i), 1, stint.NewHoldID(), l)
		}
		h.store.how.Store(works)
		calls := h.store.Calls()
		time.Sleep(10 * time.Second)
		if _, err := h.Allow(t.Context(), "other", stint.MustLimit("10 per 1h")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := h.store.Calls() - calls; n > 6 { // probes, and the one above
			t.Errorf("%d calls about holds that have run out", n)
		}
	})
}

// A charge is done without the store, and charged later if it certainly was not.
func TestFallbackCharges(t *testing.T) {
	for _, c := range []struct {
		how  int32
		want int64
	}{{works, 120}, {refuses, 120}, {loses, 120}, {hangs, 0}} {
		for _, text := range []string{"100 per 1h", "100 per 1h fixed_window hold", "100 per 1h sliding_log"} {
			synctest.Test(t, func(t *testing.T) {
				h, l := newHolding(t, 2), stint.MustLimit(text)
				h.store.how.Store(c.how)
				for range 3 {
					if c := h.do(stint.HoldCall{Action: stint.HoldCharge, Key: "k", Limit: l, Cost: 40}); !c.Found || c.Charged != 40 || c.Err != nil {
						t.Errorf("%+v", c)
					}
				}
				if d, err := h.Allow(t.Context(), "k", l); err != nil || d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
				h.store.how.Store(works)
				time.Sleep(2 * time.Second)
				if _, err := h.Allow(t.Context(), "other", l); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if n := usedIn(t, h.store.Memory, "k", l); n != c.want {
					t.Errorf("%s, %d: %d are used", text, c.how, n)
				}
			})
		}
	}
}

// What nobody counted is not settled, and a store without holds refuses to hold, whether it answers
// or not.
func TestFallbackWithoutHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l := newHolding(t, 1), stint.MustLimit("10 in_flight")
		h.store.how.Store(hangs)
		id := stint.NewHoldID()
		d, err := h.Take(t.Context(), &stint.Request{Hold: id, Asks: []stint.Ask{{Key: "k", Limit: l, OnError: stint.OnErrorAllow}}}, nil)
		same(t, fmt.Sprint(d.By, d.Allowed, err), "policy true <nil>")
		calls := h.store.Calls()
		c := h.settle("k", l, &d, id, 1, 1)
		same(t, fmt.Sprint(c.Found, c.Charged, c.Err, h.store.Calls()-calls), "false 0 <nil> 0")

		var plain struct{ stint.Store }
		plain.Store = new(stint.Memory)
		f := &fleet.Fallback{Store: plain}
		defer f.Close()
		if _, err := stint.NewLimiter(f).Take(t.Context(), &stint.Request{Hold: id, Asks: []stint.Ask{{Key: "k", Limit: l}}}, nil); !errors.Is(err, stint.ErrUnsupported) {
			t.Error(err)
		}
		free := stint.Request{Hold: id, Asks: []stint.Ask{{Key: "k", Limit: stint.MustLimit("10 per 1h")}}}
		if d, err := stint.NewLimiter(f).Take(t.Context(), &free, nil); err != nil || !d.Allowed {
			t.Error("a request that holds nothing:", d, err)
		}
		if c := []stint.HoldCall{{Key: "k", Limit: l, Hold: id}}; true {
			if f.Holds(t.Context(), time.Time{}, c); !errors.Is(c[0].Err, stint.ErrUnsupported) {
				t.Error(c[0].Err)
			}
		}
		if _, err := f.Held(t.Context(), "k", []*stint.Limit{l}); !errors.Is(err, stint.ErrUnsupported) {
			t.Error(err)
		}
		if f.State() != fleet.Closed {
			t.Error(f.State())
		}
	})
}

// Many calls go in parts, in their order, and those for this instance are done between them.
func TestFallbackHoldsInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l := newHolding(t, 1), stint.MustLimit("1000 in_flight hold 1m")
		h.store.how.Store(refuses)
		here := stint.NewHoldID()
		h.take("k", 1, here, l)
		h.store.how.Store(works)
		var calls []stint.HoldCall
		for i := range 200 {
			id := stint.NewHoldID()
			d := h.take("k", 1, id, l)
			calls = append(calls, stint.HoldCall{Action: stint.HoldSettle, Key: "k", Limit: l, Hold: id, Units: 1, By: d.By})
			if i == 100 {
				calls = append(calls, stint.HoldCall{Action: stint.HoldSettle, Key: "k", Limit: l, Hold: here, Units: 1, By: stint.ByLocal})
			}
		}
		before := h.store.Calls()
		h.fall.Holds(t.Context(), time.Time{}, calls)
		for i, c := range calls {
			if !c.Found || c.Err != nil {
				t.Fatalf("%d: %+v", i, c)
			}
		}
		if n := h.store.Calls() - before; n != 4 {
			t.Errorf("%d calls", n)
		}
		if n := heldIn(t, h.store.Memory, "k", l); n != 0 {
			t.Errorf("%d are held", n)
		}
	})
}

// What other instances have settled takes no room from the holds that are made without the store:
// an answer about its key ends it here, and where none comes, it gives way.
func TestHoldsSettledElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolding(t, 1)
		h.fall.Local = &stint.Memory{MaxKeys: 1000} // and 8,192 holds
		limit := stint.MustLimit("flying: 100 in_flight")
		hold := func(key string) stint.HoldID {
			id := stint.NewHoldID()
			if d := h.take(key, 1, id, limit); !d.Allowed {
				t.Fatalf("%s: %+v", key, d)
			}
			return id
		}
		settle := func(key string, id stint.HoldID) {
			calls := []stint.HoldCall{{Key: key, Limit: limit, Hold: id, Units: 1}}
			if h.store.Memory.Holds(t.Context(), time.Time{}, calls); !calls[0].Found {
				t.Fatalf("%s is not held", key)
			}
		}
		for range 50 {
			settle("busy", hold("busy"))
		}
		time.Sleep(2 * time.Second)
		id := hold("busy")
		if got := stands(t, h.fall.Local, "busy", limit); got != "99 left, 1 held" {
			t.Errorf("after the next answer: %s", got)
		}
		settle("busy", id)
		for i := range 10_000 {
			key := fmt.Sprint("key ", i)
			settle(key, hold(key))
		}
		h.store.how.Store(refuses)
		for i := range 8_000 {
			hold(fmt.Sprint("key ", i))
		}
	})
}
