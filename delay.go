package stint

import "github.com/stintdev/stint/internal/algo"

// within is the arithmetic of a's limit for a: with a MaxDelay, a leaky bucket that holds
// no more than flows out in that time is as full as it may be.
func (a *Ask) within() *algo.Plan {
	if a.MaxDelay == 0 {
		return &a.Limit.plan
	}
	p := a.Limit.plan.Within(a.Units(), max(0, a.MaxDelay.Microseconds()))
	return &p
}

// settle ends the decision about a; see algo.Plan.Settle. What remains is what others
// find, who may wait longer.
func (a *Ask) settle(s *algo.State, v *algo.View, allowed bool) algo.Verdict {
	d := a.within().Settle(s, v, a.Units(), allowed)
	if a.MaxDelay != 0 {
		d.Remaining = a.Limit.plan.Left(v)
	}
	return d
}
