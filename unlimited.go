package stint

import (
	"fmt"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
)

// Unlimited is the Spec.Amount, the Capacity and the Remaining of a limit that lets everything
// pass, "unlimited" as text. It is more than any other limit can have, and exact in JSON.
const Unlimited = 1<<53 - 1

const unlimitedTerms = "unlimited"

// IsUnlimited reports whether l lets everything pass: its Spec.Amount is Unlimited. For a nil Limit it
// is false.
func (l *Limit) IsUnlimited() bool { return l != nil && l.spec.Amount == Unlimited }

// letsNothingPass reports whether the amount of l is 0.
func (l *Limit) letsNothingPass() bool { return l != nil && l.spec.Amount == 0 }

// unlimitedPlan is the plan of an unlimited limit for Stores that get it together with others:
// asks take nothing under it (Ask.Units), so nothing is stored, and no other limit has more
// remaining.
var unlimitedPlan = mustPlan(algo.NewPlan(algo.FixedWindow, algo.Exact-1, time.Second, 0, 0))

func mustPlan(p algo.Plan, err error) algo.Plan {
	if err != nil {
		panic(err)
	}
	return p
}

// newUnlimited makes a limit from s, whose amount is Unlimited. Besides that, only its Name matters.
func newUnlimited(s Spec) *Limit {
	id := "u:" + s.Name
	return &Limit{spec: s, id: id, terms: unlimitedTerms, counted: counts.Limit{Plan: unlimitedPlan, Salt: counts.Salt(id)}}
}

// newNothing makes a limit from s, whose amount is 0, if the rest of s is valid. Stores decide by a
// fixed window of no units: each cost is above its capacity, so nothing is ever counted. It has its
// own ID, so that it never reads the counts of larger amounts.
func newNothing(s Spec) (*Limit, error) {
	if s.Burst != 0 {
		return nil, fmt.Errorf("limit: burst %d: a limit that allows nothing has no burst", s.Burst)
	}
	one := s
	one.Amount = 1
	as, err := NewLimit(one)
	if err != nil {
		return nil, err
	}
	plan := as.counted.Plan
	if plan.Kind != algo.FixedWindow {
		plan = mustPlan(algo.NewPlan(algo.FixedWindow, 1, max(s.Period, time.Millisecond), 0, 0))
	}
	plan.Hold, plan.Busy = 0, 0
	plan.Amount, plan.Capacity, plan.Full, plan.Most = 0, 0, 0, 0
	id := "n" + as.id
	return &Limit{spec: s, id: id, terms: s.terms(), counted: counts.Limit{Plan: plan, Salt: counts.Salt(id)}}, nil
}

// decideHere answers r without a Store if all its limits are unlimited and nobody can be banned.
func decideHere(r *Request, out []Decision) (d Decision, ok bool) {
	for i := range r.Asks {
		if a := &r.Asks[i]; a.Penalty != nil || !a.Limit.IsUnlimited() {
			return d, false
		}
	}
	for i := range out {
		out[i] = unlimitedFor(&r.Asks[i])
	}
	return unlimitedFor(&r.Asks[0]), true
}

func unlimitedFor(a *Ask) (d Decision) {
	d.set(a.Key, a.Limit, &algo.Verdict{Allowed: true})
	return d
}
