package fleet

import (
	"math/bits"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/friend"
)

var internal = stint.Internal(friend.Of{})

func planOf(l *stint.Limit) *algo.Plan { return internal.Plan(l) }

func penaltyOf(p *stint.Penalty) *algo.Penalty { return internal.PenaltyPlan(p) }

func sameLimit(a, b *stint.Limit) bool {
	return a == b || a != nil && b != nil && a.ID() == b.ID() && *planOf(a) == *planOf(b)
}

func samePenalty(a, b *stint.Penalty) bool {
	return a == b || a != nil && b != nil && a.ID() == b.ID() && *penaltyOf(a) == *penaltyOf(b)
}

// scale is a cost as one of live instances counts it: multiplied by live, but not above the
// capacity if the cost fits.
func scale(l *stint.Limit, cost, live int64) int64 {
	capacity := l.Capacity()
	if cost > capacity || live == 1 {
		return cost
	}
	if cost > capacity/live {
		return capacity
	}
	return cost * live
}

// endsWithWindow reports whether a lease of l ends with the window it was charged in.
func endsWithWindow(l *stint.Limit) bool { return planOf(l).Kind == algo.FixedWindow }

func part(l *stint.Limit, live int64) int64 { return internal.Leased(l) / 2 / max(live, 1) }

// comesBack is one instance's share of the units that come back in ns nanoseconds.
func comesBack(l *stint.Limit, ns, live int64) int64 {
	p := planOf(l)
	hi, lo := bits.Mul64(uint64(p.Amount), uint64(max(ns, 0)))
	by := uint64(algo.Duration(p.Period)) * uint64(live)
	if hi >= by {
		return p.Capacity
	}
	units, _ := bits.Div64(hi, lo, by)
	return min(int64(units), p.Capacity)
}
