package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stintdev/stint"
)

// A request that is refused, or cannot be decided, takes nothing. This file gives back what it took under the
// limits that allowed it, and releases what it holds. What stays: a place in the queue of a leaky bucket, the
// units of a call of Envoy's service that were used before the call, violations and bans, and what rules in
// shadow mode and the limits of an instance count.

// afterTimeout bounds how long a request waits for the store after it was decided or has ended. A settlement
// that takes longer is made in the background.
const afterTimeout = time.Second

// outliving is ctx for what must be given back or charged, whether the caller still waits or not.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), afterTimeout)
}

// settle does what follows from the decision. An allowed call of Envoy's service makes the refunds that it
// asks for. What t took is undone, if t is not allowed. Refused units are charged, if they were used before
// the call and their rule says so. Then it is known what became of t.
func (t *evaluation) settle(ctx context.Context, b book, at time.Time) {
	call := t.in.Descriptors
	if t.err == nil && len(t.back) > 0 && (t.Allowed || call.Each) {
		t.err = t.refundAsked(ctx, b, at)
	}
	if t.err != nil || !t.Allowed {
		t.undo(ctx, b, at)
	}
	if t.err == nil && call != nil {
		t.chargeRefused(ctx, b, at)
	}
	t.Kind = KindOf(&t.Verdict, t.err)
}

// undo undoes what t took: all of it, if t was not decided. A refused call of Envoy's service keeps its units
// if each descriptor is decided by itself.
func (t *evaluation) undo(ctx context.Context, b book, at time.Time) {
	refused, call := t.err == nil, t.in.Descriptors
	why := "a request was refused, and could not be refunded under the limits that allowed it"
	if _, is := isOverloaded(t.err); is {
		why = "this instance is overloaded, and could not refund a request that it refused"
	}
	if refused && t.ending != nil && t.ending.holds {
		t.ending.refused()
	}
	if !refused || call == nil || !call.Each {
		taken{t.groups, t.ending}.undo(ctx, b, why, func(g *group, i int) bool { return refused && t.chargedCost(g, i) > 0 })
	}
	if refused && call != nil {
		for i := range t.groups {
			t.place(&t.groups[i])
		}
	}
	b.releaseShadows(ctx, t, at)
}

// taken is what a request took, in its allowed groups. ending has its holds; nil: it holds nothing, or others
// settle its holds.
type taken struct {
	groups []group
	ending *ending
}

// ask is the ask of t whose place in the evaluation is i.
func (t taken) ask(i int) *stint.Ask {
	for g := range t.groups {
		r := &t.groups[g]
		if r.places == nil {
			return &r.request.Asks[i]
		}
		if at := slices.Index(r.places, i); at >= 0 {
			return &r.request.Asks[at]
		}
	}
	return nil
}

// undo gives the units of t back to where they were taken, but for the asks that stay, and releases its holds.
// why is the line for the log if that fails.
func (t taken) undo(ctx context.Context, b book, why string, stays func(g *group, i int) bool) {
	if t.ending != nil && t.ending.holds {
		if err := t.ending.end(ctx, nil); err != nil {
			b.failed("what a request held could not be given back", err)
		}
	}
	for i := range t.groups {
		if g := &t.groups[i]; !g.inShadow() && g.allowed() {
			if err := g.giveBack(ctx, b, t.ending != nil, func(i int) bool { return stays != nil && stays(g, i) }); err != nil {
				b.failed(why, err)
			}
		}
	}
}

// giveBack gives back the asks of g that do not stay, and shows that in g's answer. settled means that
// another settles what g holds. A place in the queue of a leaky bucket stays taken: requests behind it may
// have it already, so it would be given twice.
func (g *group) giveBack(ctx context.Context, b book, settled bool, stays func(i int) bool) error {
	ctx, cancel := outliving(ctx)
	defer cancel()
	r := stint.Request{At: g.request.At}
	var calls []stint.HoldCall
	for i, a := range g.request.Asks {
		if stays(i) || !isRefundable(&a) {
			continue
		}
		a.By = g.answer.Each[i].By
		switch {
		case g.request.Hold == stint.HoldID{} || !isHeld(&a):
			r.Asks = append(r.Asks, a)
		case !settled:
			calls = append(calls, stint.HoldCall{Key: a.Key, Limit: a.Limit, Hold: g.request.Hold, Units: a.Units(), For: g.request.HoldFor, By: a.By})
		}
	}
	b.hold(ctx, g.request.At, calls)
	err := b.refund(ctx, &r, false)
	for i := range calls {
		err = errors.Join(err, calls[i].Err)
	}
	if err != nil {
		return err
	}
	for i := range g.answer.Each {
		if d, a := &g.answer.Each[i], &g.request.Asks[i]; !stays(i) && isRefundable(a) {
			d.Remaining = min(d.Remaining+a.Units(), a.Limit.Capacity())
		}
	}
	return nil
}

// isRefundable reports whether a took units that can be refunded.
func isRefundable(a *stint.Ask) bool {
	return a.Units() > 0 && a.Limit.Spec().Algorithm != stint.LeakyBucket
}

// refundAsked makes the refunds that t asks for, and reads the state of their keys.
func (t *evaluation) refundAsked(ctx context.Context, b book, at time.Time) error {
	ctx, cancel := outliving(ctx)
	defer cancel()
	if err := b.refund(ctx, &stint.Request{Asks: t.back, At: at}, true); err != nil {
		return err
	}
	t.GivenBack = make([]stint.Decision, len(t.back))
	var calls []stint.HoldCall // which charge nothing
	var of []*stint.Decision   // of calls
	for i := range t.back {
		key, limit := t.back[i].Key, t.back[i].Limit
		t.GivenBack[i] = stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: limit, Key: key, Remaining: limit.Capacity()}
		if isChargeable(limit) {
			calls = append(calls, stint.HoldCall{Action: stint.HoldCharge, Key: key, Limit: limit})
			of = append(of, &t.GivenBack[i])
		}
	}
	b.hold(ctx, at, calls)
	for i, d := range of {
		if c := &calls[i]; c.Err != nil {
			b.failed(noStore, c.Err)
		} else {
			d.Remaining, d.Held, d.ResetAfter = c.Remaining, c.Held, c.ResetAfter
		}
	}
	return nil
}

// chargedCost returns how many units the i-th ask of g is charged if it is refused: those of descriptors that
// take more than one unit, because these were used before the call. Nothing is charged under a limit of 0
// units.
func (t *evaluation) chargedCost(g *group, i int) (cost int64) {
	rule, a := g.rules[i], &g.request.Asks[i]
	switch {
	case rule.Descriptor == nil, !rule.Descriptor.ChargeRefused, a.Units() < 2, !isChargeable(a.Limit):
		return 0
	case t.in.Descriptors.Ahead, g.request.Hold != stint.HoldID{}: // not used yet
		return 0
	}
	place := i
	if g.places != nil {
		place = g.places[i]
	}
	for k := range t.Descriptors {
		m, d := &t.Descriptors[k], &t.in.Descriptors.List[k]
		if m.Rule != rule || m.Key != a.Key || m.GiveBack || m.Limit == nil || m.Limit.Amount == 0 || d.Cost < 2 {
			continue
		}
		if m.Ask == place || d.Override == nil && m.Ask >= 0 { // an operator's override may have several limits
			cost = min(cost+min(d.Cost, a.Units()), a.Units()) // costs are bounded in asks
		}
	}
	return cost
}

// isChargeable reports whether units can be charged under l without being asked for.
func isChargeable(l *stint.Limit) bool { return l.Spec().Algorithm != stint.InFlight }

// refused reports whether a limit has refused g. A ban that runs counts nothing.
func refused(a *stint.Answer) bool { return a.Err == nil && !a.Allowed && a.Limit != nil }

// charges appends the calls that charge g's units, if it is refused.
func (t *evaluation) charges(g *group, calls []stint.HoldCall) []stint.HoldCall {
	for i := range g.request.Asks {
		if cost := t.chargedCost(g, i); cost > 0 {
			a := &g.request.Asks[i]
			calls = append(calls, stint.HoldCall{Action: stint.HoldCharge, Key: a.Key, Limit: a.Limit, Cost: cost})
		}
	}
	return calls
}

// chargeRefused charges the refused units of t's enforced groups, and shows the keys after that. Those of
// groups in shadow mode were charged by calls of their own.
func (t *evaluation) chargeRefused(ctx context.Context, b book, at time.Time) {
	var calls []stint.HoldCall
	for i := range t.groups {
		if g := &t.groups[i]; !g.inShadow() && refused(&g.answer) {
			calls = t.charges(g, calls)
		}
	}
	if len(calls) > 0 {
		ctx, cancel := outliving(ctx)
		defer cancel()
		b.hold(ctx, at, calls)
		for i := range calls {
			if err := calls[i].Err; err != nil {
				b.failed(noStore, err)
			}
		}
	}
	t.showCharged(calls)
}

// showCharged shows the keys of t after calls, which charged its enforced groups.
func (t *evaluation) showCharged(calls []stint.HoldCall) {
	charged := len(calls) > 0
	for i := range t.groups {
		switch g := &t.groups[i]; {
		case g.charged != nil: // in shadow mode
			t.keepLeft()
			g.showCharged(*g.charged)
			t.place(g)
		case !g.inShadow() && len(calls) > 0 && refused(&g.answer):
			t.keepLeft()
			calls = g.showCharged(calls)
			t.place(g)
		}
	}
	if charged {
		for i := range t.Each {
			if d := &t.Each[i]; d.Limit != nil && d.Limit == t.Limit && d.Key == t.Key {
				t.Remaining, t.ResetAfter = d.Remaining, d.ResetAfter
			}
		}
	}
}

// showCharged puts the state of g's keys after calls, which charges returned, into g's answer. It returns the
// other calls.
func (g *group) showCharged(calls []stint.HoldCall) []stint.HoldCall {
	for i := range g.request.Asks {
		a := &g.request.Asks[i]
		if len(calls) == 0 || calls[0].Key != a.Key || calls[0].Limit != a.Limit {
			continue
		}
		if c := &calls[0]; c.Err == nil {
			g.answer.Each[i].Remaining, g.answer.Each[i].ResetAfter = c.Remaining, c.ResetAfter
		}
		calls = calls[1:]
	}
	return calls
}

// keepLeft records the remaining units before the first charge.
func (t *evaluation) keepLeft() {
	if t.Left != nil {
		return
	}
	t.Left = make([]int64, len(t.Each))
	for i := range t.Each {
		t.Left[i] = t.Each[i].Remaining
	}
}
