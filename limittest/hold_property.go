package limittest

import (
	"math/big"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"pgregory.net/rapid"
)

// checkHeldBudget: while requests settle for no more than they held, usage and holds never exceed the
// limit, at any time and in any window; if they settle for more, they exceed it by no more than that.
func checkHeldBudget(t testing.TB, e *env) {
	w := &world{store: e.open()}
	asHolder(t, w.store)
	rapid.Check(t, func(rt *rapid.T) { heldBudget(w.trial(rt)) })
}

func heldBudget(t *trial) {
	s := t.limit("", stint.TokenBucket, stint.FixedWindow, stint.SlidingLog, stint.SlidingWindow).Spec()
	s.Hold = min(24*time.Hour, max(time.Millisecond, rapid.SampledFrom([]time.Duration{s.Period / 10, s.Period, 3 * s.Period}).Draw(t.T, "hold").Truncate(time.Microsecond)))
	b := heldBudgetTrial{trial: t, limit: mustLimit(s), exceeds: rapid.Bool().Draw(t.T, "exceeds")}
	for i := range rapid.IntRange(2, 40).Draw(t.T, "steps") {
		t.pass(b.limit)
		b.act(i)
		b.check()
	}
}

type heldBudgetTrial struct {
	*trial
	limit   *stint.Limit
	exceeds bool // some settle for more than they held
	held    []stint.HoldCall
	charged []charge
	excess  int64
}

func (b *heldBudgetTrial) act(i int) {
	if len(b.held) == 0 || rapid.Bool().Draw(b.T, "request") {
		n, r := max(1, b.cost(b.limit)), stint.HoldID{}
		if rapid.IntRange(0, 3).Draw(b.T, "holds") > 0 {
			r = numbered(b.world.trials<<10 + i)
		}
		d, _ := b.hold(b.now, r, stint.Ask{Key: b.key, Limit: b.limit, Cost: n})
		switch {
		case !d.Allowed:
		case r == stint.HoldID{}:
			b.charged = append(b.charged, charge{at: b.now, units: n})
		default:
			b.held = append(b.held, stint.HoldCall{Key: b.key, Limit: b.limit, Hold: r, Units: n})
		}
		return
	}
	which := rapid.IntRange(0, len(b.held)-1).Draw(b.T, "which")
	c := b.held[which] // again and again, too
	if rapid.IntRange(0, 3).Draw(b.T, "renews") == 0 {
		c.Action = stint.HoldRenew
		b.call(b.now, c)
		return
	}
	c.Cost = rapid.OneOf(rapid.Just(c.Units), rapid.Int64Range(0, c.Units)).Draw(b.T, "true cost")
	if b.exceeds {
		c.Cost += rapid.Int64Range(0, 5).Draw(b.T, "excess")
	}
	calls := []stint.HoldCall{c}
	b.call(b.now, calls...)
	switch done := &calls[0]; {
	case !done.Found && done.Charged != 0, done.Charged > done.Cost, done.Found && !b.exceeds && done.Charged != done.Cost:
		b.fail("a settlement: %s", showCall(done))
	case done.Charged > 0:
		b.charged = append(b.charged, charge{at: b.now, units: done.Charged})
		b.excess += max(0, done.Charged-done.Units)
	}
}

func (b *heldBudgetTrial) check() {
	d := b.ask(b.limit, 0)
	if !b.exceeds && (!d.Allowed || d.Remaining+d.Held > b.limit.Capacity()) {
		b.fail("more is used and held than the limit says: %s", show(&d))
	}
	m := termsOf(b.limit)
	last := b.now
	for i, first := range b.charged {
		sum := units(0)
		for _, c := range b.charged[i:] {
			if m.rate != nil || m.share(c.at, last) != notAtAll && m.share(first.at, last) != notAtAll {
				sum.Add(sum, units(c.units))
			}
		}
		most := units(m.capacity + b.excess)
		switch m.algorithm {
		case stint.TokenBucket:
			most.Add(most, new(big.Rat).Mul(m.rate, units(last/m.tick-first.at/m.tick)))
		case stint.SlidingWindow:
			most.Add(most, units(m.capacity)) // of two windows, one of them in part
		}
		if sum.Cmp(most) > 0 {
			b.fail("%s: charged %s from %d µs on, at most %s", b.limit, sum.FloatString(3), first.at, most.FloatString(3))
		}
	}
}
