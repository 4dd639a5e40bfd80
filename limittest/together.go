package limittest

import (
	"math/big"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"pgregory.net/rapid"
)

type passed struct {
	at, units int64
	under     *terms
}

// Limits in use together that share a count admit no more than the largest of their amounts and
// bursts, and a limit that is not a bucket admits no more than alone. A request repeated after
// RetryAfter is admitted, if no other came in between.
func togetherNoMoreThanTheLargest(t *trial) {
	limits := t.together()
	own := make([]*terms, len(limits))
	for i, l := range limits {
		own[i] = termsOf(l)
	}
	var admitted []passed
	for range rapid.IntRange(5, 60).Draw(t.T, "requests") {
		t.pass(limits[0])
		i := rapid.IntRange(0, len(limits)-1).Draw(t.T, "limit")
		n := t.cost(limits[i])
		if rapid.Bool().Draw(t.T, "the rest") {
			n = t.ask(limits[i], 0).Remaining
		}
		d := t.ask(limits[i], n)
		soon := d.RetryAfter >= 0 && d.RetryAfter < 10*limits[0].Spec().Period // and not in years
		if !d.Allowed && soon && rapid.Bool().Draw(t.T, "wait") {
			t.to(t.now + d.RetryAfter.Microseconds())
			if d = t.ask(limits[i], n); !d.Allowed {
				t.fail("after the wait that was asked for: %s", show(&d))
			}
		}
		if d.Allowed && n > 0 {
			admitted = append(admitted, passed{t.now, n, own[i]})
			t.withinTheLargest(own, admitted)
		}
	}
}

func (t *trial) together() []*stint.Limit {
	l := t.limit("")
	s := l.Spec()
	bucket := s.Algorithm == stint.TokenBucket || s.Algorithm == stint.LeakyBucket
	if bucket && rapid.Bool().Draw(t.T, "unlike ticks") {
		// 28 units in a ms; the first counts in ticks of 1 ms, the second in ticks of 1 µs
		s.Period = time.Hour
		s.Amount, s.Burst = 100_000_007, 1_500_000
		first := mustLimit(s)
		s.Amount = 100_000_000
		return []*stint.Limit{first, mustLimit(s)}
	}
	limits := []*stint.Limit{l}
	for range rapid.IntRange(1, 2).Draw(t.T, "others") {
		s.Amount = rapid.Int64Range(1, 2*s.Amount).Draw(t.T, "its amount")
		if bucket {
			s.Burst = rapid.Int64Range(0, 2*s.Amount).Draw(t.T, "its burst")
		}
		limits = append(limits, mustLimit(s))
	}
	return slices.DeleteFunc(slices.Clone(limits), func(l *stint.Limit) bool { return cutsOff(l, limits) })
}

// cutsOff reports whether l cannot express a level that another limit leaves, and takes it for
// lower.
func cutsOff(l *stint.Limit, others []*stint.Limit) bool {
	m := termsOf(l)
	return m.rate != nil && slices.ContainsFunc(others, func(other *stint.Limit) bool {
		return tooLarge(other.Capacity(), m.rate.Denom())
	})
}

// withinTheLargest checks all spans of time that end with the last passed.
func (t *trial) withinTheLargest(limits []*terms, admitted []passed) {
	last := admitted[len(admitted)-1]
	m := last.under
	if m.rate != nil {
		t.bucketWithinTheLargest(limits, admitted)
		return
	}
	most, finest := m.capacity, m
	for _, other := range limits {
		most = max(most, other.capacity)
		if other.tick < finest.tick {
			finest = other
		}
	}
	if all := used(finest, admitted, last.at, nil); all.Cmp(units(most)) > 0 {
		t.fail("all admitted %s, of %d", all.FloatString(3), most)
	}
	if its := used(m, admitted, last.at, m); its.Cmp(units(m.capacity)) > 0 {
		t.fail("one admitted %s, of %d", its.FloatString(3), m.capacity)
	}
}

// used is how many of the units admitted under of (nil: any limit) count under m at t.
func used(m *terms, admitted []passed, t int64, of *terms) *big.Rat {
	h := &history{}
	for _, a := range admitted {
		if of == nil || a.under == of {
			h.charges = append(h.charges, charge{at: a.at, units: a.units})
		}
	}
	return h.used(m, t)
}

// bucketWithinTheLargest also allows the outflow of one tick.
func (t *trial) bucketWithinTheLargest(limits []*terms, admitted []passed) {
	capacity, tick, rate := int64(0), int64(1), new(big.Rat) // units in a µs
	for _, m := range limits {
		capacity, tick = max(capacity, m.capacity), max(tick, m.tick)
		if r := new(big.Rat).Quo(m.rate, units(m.tick)); r.Cmp(rate) > 0 {
			rate = r
		}
	}
	end, sum := admitted[len(admitted)-1].at, units(0)
	for _, a := range slices.Backward(admitted) {
		sum.Add(sum, units(a.units))
		most := new(big.Rat).Mul(rate, units(end-a.at+tick-1))
		if most.Add(most, units(capacity)); sum.Cmp(most) > 0 {
			t.fail("admitted %s from %d µs to %d µs, at most %s", sum.FloatString(3), a.at, end, most.FloatString(3))
		}
	}
}
