package rules

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// IsBudget reports whether l is a held limit under which a request holds its cost: any but an in-flight
// limit, under which it always holds one unit.
func IsBudget(l *stint.Limit) bool {
	return l.IsHeld() && l.Spec().Algorithm != stint.InFlight
}

// Holds reports whether a limit of the rule or of one of its tiers is held.
func (r *Rule) Holds() bool {
	held := func(all []*stint.Limit) bool { return slices.ContainsFunc(all, (*stint.Limit).IsHeld) }
	return held(r.Limits) || slices.ContainsFunc(r.Tiers, func(t Tier) bool { return held(t.Limits) })
}

// UnitOf is the unit of l, one of the rule's limits: Unit for the limits that count the rule's cost,
// "requests" for the others; empty: the file does not say.
func (r *Rule) UnitOf(l *stint.Limit) string {
	switch {
	case r.ownCost(l) != nil:
		return ""
	case r.countsCost(l):
		return r.Unit
	}
	return "requests"
}

// countsCost reports whether a request takes the rule's cost under l, which has no cost of its own. If
// the rule has budgets, the cost is theirs.
func (r *Rule) countsCost(l *stint.Limit) bool {
	return IsBudget(l) || !r.hasBudget && !l.IsHeld()
}

// ownCost is the cost that the file gives to l alone; nil: none. A limit of a tier or override has the cost
// of the rule's limit with the same algorithm and period.
func (r *Rule) ownCost(l *stint.Limit) *expr.Expression {
	if r.costs == nil {
		return nil
	}
	id := l.ID()
	if e := r.costs[id]; e != nil {
		return e
	}
	return r.costs[strings.TrimSuffix(id, l.Spec().Name)+r.Name]
}

// TakesCost reports whether a request takes the rule's cost under l, unless the file gives l a cost of its
// own. If the rule has no cost, the caller's counts, for all limits except in-flight limits.
func (r *Rule) TakesCost(l *stint.Limit) bool {
	return r.countsCost(l) || r.cost == nil && r.Tokens.API == NoTokens && !l.IsHeld()
}

// ask is a request's ask under l.
func (r *Rule) ask(ev *evaluation, f *found, l *stint.Limit) (stint.Ask, error) {
	a := stint.Ask{Key: f.key, Limit: l, Penalty: r.Penalty, OnError: r.OnStoreError}
	own := r.ownCost(l)
	switch {
	case f.cost == 0 && f.asksOnly && (IsBudget(l) || !l.IsHeld()):
	case own != nil:
		n, _, err := r.costIn(ev, own)
		if err != nil {
			return a, malformed(err, "rule %q: cost of limit %q", r.Name, l.Terms())
		}
		a.Cost = n
	case IsBudget(l):
		a.Cost = r.toHold(l, &f.estimate)
	case r.TakesCost(l):
		a.Cost = f.cost
	default:
		a.Cost = 1
	}
	a.Peek = a.Cost == 0
	return a, nil
}

// spares reports whether a request does not ask l: even a used-up budget lets it pass.
func (r *Rule) spares(f *found, l *stint.Limit) bool {
	return f.free && IsBudget(l) && r.ownCost(l) == nil
}

// estimate is the expected cost of a request when it is decided.
type estimate struct {
	cost int64
	// asked is the part that the client, or the caller, asked for; it is not our guess.
	asked int64
	// asksOnly: the caller wants to take nothing.
	asksOnly bool
	// spent: cost is not an estimate, but the true cost.
	spent bool
	// free: the request uses no budget units, so budgets are not asked. late: it reads an answer that may
	// have been made later.
	free, late bool
	// whole: cost is the sum of many requests, so that the cap for one does not apply.
	whole bool
}

// toHold returns how many units a request holds under the budget l. If the client's own number can never fit,
// it is not capped, so that the request is refused with no retry. All else is capped, or a request whose
// estimate is too high would wait forever.
func (r *Rule) toHold(l *stint.Limit, e *estimate) int64 {
	switch {
	case e.spent, e.whole:
		return e.cost
	case e.asked > l.Capacity():
		return e.asked
	}
	return min(e.cost, r.mostHeld(l))
}

// mostHeld is how many units one request may hold under the budget l; at least one.
func (r *Rule) mostHeld(l *stint.Limit) int64 {
	if r.MaxHold == 0 {
		return l.Capacity()
	}
	return max(1, shareOf(l.Capacity(), int64(r.MaxHold)))
}

// shareOf is a share of n in percent, rounded down. n is less than 2^52 and percent at most maxDebt.
func shareOf(n, percent int64) int64 { return n/100*percent + n%100*percent/100 }

// callerSays reports whether the cost comes from the caller of a check, because the rule would find it in a
// body that is not known.
func (r *Rule) callerSays(ev *evaluation) bool {
	reads := r.cost != nil && r.cost.Uses("body") || r.cost == nil && r.Tokens.API != NoTokens
	return reads && ev.cost != 1 && !ev.knowsBody()
}

// estimateOf is the cost of a request, before it is capped.
func (r *Rule) estimateOf(ev *evaluation) (estimate, error) {
	switch {
	case r.watches:
		return estimate{}, nil
	case ev.in.Spent && r.hasBudget:
		return estimate{cost: ev.cost, spent: true}, nil
	case r.callerSays(ev):
	case r.cost != nil:
		cost, unread, err := r.costIn(ev, r.cost)
		e := estimate{cost: cost}
		if r.costIsAsked && !unread {
			e.asked = cost
		}
		return e, err
	case r.Tokens.API != NoTokens:
		return r.Tokens.estimate(ev.in.Request, r.unreadable())
	}
	return estimate{cost: ev.cost, asked: ev.cost, asksOnly: ev.cost == 0}, nil
}

// asksFor reports whether e reads values that the client chooses, so that its value is not our guess.
func asksFor(e *expr.Expression) bool {
	for _, chosen := range []string{"body", "request.headers", "request.query", "request.cookies", "request.credential", "attrs", "cost"} {
		if e.Uses(chosen) {
			return true
		}
	}
	return false
}

// noFields stands for an unknown body when a cost is computed: fields are missing, and not an error.
// Otherwise an expression with a default for a missing field would refuse all requests at /v1/authorize and
// /v1/check.
type noFields struct{}

func (noFields) Lookup([]string) (any, bool, error) { return nil, false, nil }

func numberIn(ev *evaluation, e *expr.Expression) (int64, error) {
	unknown := !ev.knowsBody() && e.Uses("body")
	if unknown {
		ev.scope.Body = noFields{}
	}
	n, ok, err := e.Int(&ev.scope)
	if unknown {
		ev.scope.Body = nil
	}
	switch {
	case err != nil:
		return 0, err
	case !ok && unknown:
		return 0, errors.New("it reads the request's body, which only the gateway knows: test the field with has(), or let the check say its cost")
	case !ok:
		return 0, errors.New("it reads a value that is missing; test for it with has()")
	case n < 0:
		return 0, fmt.Errorf("%d: must not be negative", n)
	}
	return n, nil
}

// debt is the debt of a rule, or of a limit in its mapping form: how far settlements may exceed the capacity.
// Zero: not given.
type debt struct {
	given   bool
	percent bool // n is a share of the capacity
	n       int64
}

// maxDebt is the largest debt in percent.
const maxDebt = 1000

func parseDebt(text string) (debt, error) {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || percent && n > maxDebt {
		return debt{}, fmt.Errorf("debt %q: must be a number of units, or a share of the limit from 0%% to %d%%, such as 50%%", expr.Clip(text), maxDebt)
	}
	if !percent && n >= algo.Exact {
		return debt{}, fmt.Errorf("debt %d: must be a number of units below 2^52", n)
	}
	return debt{true, percent, n}, nil
}

// of is l with the debt d, unless l has one of its own.
func (d debt) of(l *stint.Limit) (*stint.Limit, error) {
	s := l.Spec()
	if !d.given || s.Debt != 0 {
		return l, nil
	}
	if s.Debt = d.n; d.percent {
		s.Debt = shareOf(l.Capacity(), d.n)
	}
	if s.Debt == 0 {
		s.Debt = stint.NoDebt
	}
	with, err := stint.NewLimit(s)
	if err != nil {
		return nil, fmt.Errorf("limit %q: %w", l.Terms(), unprefixed(err))
	}
	return with, nil
}

// indebted is l with the debt of the rule's budgets.
func (r *Rule) indebted(l *stint.Limit) (*stint.Limit, error) {
	if !IsBudget(l) {
		return l, nil
	}
	return r.debt.of(l)
}
