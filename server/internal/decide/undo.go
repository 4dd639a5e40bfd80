package decide

import (
	"context"
	"errors"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// A request that is refused, or cannot be decided, takes nothing. This file gives back what it took under the
// limits that allowed it, and releases what it holds. What stays: a place in the queue of a leaky bucket, the
// units of a call of Envoy's service that were used before the call, violations and bans, and what rules in
// shadow mode and the limits of an instance count.

// AfterTimeout bounds how long a request waits for the store after it was decided or has ended. A settlement
// that takes longer is made in the background.
const AfterTimeout = time.Second

// Outliving is ctx for what must be given back or charged, whether the caller still waits or not.
func Outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), AfterTimeout)
}

// settle does what follows from the decision. An allowed call of Envoy's service makes the refunds that it
// asks for. What t took is undone, if t is not allowed. Refused units are charged, if they were used before
// the call and their rule says so. Then it is known what became of t.
func (t *Request) settle(ctx context.Context, b Book, at time.Time) {
	call := t.In.Descriptors
	if t.Err == nil && len(t.back) > 0 && (t.Allowed || call.Each) {
		t.Err = t.refundAsked(ctx, b, at)
	}
	if t.Err != nil || !t.Allowed {
		t.undo(ctx, b, at)
	}
	if t.Err == nil && call != nil {
		t.chargeRefused(ctx, b, at)
	}
	t.Kind = KindOf(&t.Verdict, t.Err)
}

// undo undoes what t took: all of it, if t was not decided. A refused call of Envoy's service keeps its units
// if each descriptor is decided by itself.
func (t *Request) undo(ctx context.Context, b Book, at time.Time) {
	refused, call := t.Err == nil, t.In.Descriptors
	why := "a request was refused, and could not be refunded under the limits that allowed it"
	if errors.Is(t.Err, friend.ErrOverloaded) {
		why = "this instance is overloaded, and could not refund a request that it refused"
	}
	if refused && t.Settlement != nil && t.Settlement.Holds {
		t.Settlement.refused()
	}
	if !refused || call == nil || !call.Each {
		t.giveAllBack(ctx, b, why, func(g *Group, i int) bool { return refused && t.chargedCost(g, i) > 0 })
	}
	if refused && call != nil {
		for i := range t.Groups {
			t.place(&t.Groups[i])
		}
	}
	b.ReleaseShadows(ctx, t, at)
}

// Undo gives back what t took, which was allowed, but does not take place. why is the line for the log if that
// fails.
func (d *Decider) Undo(ctx context.Context, t *Request, why string) {
	t.giveAllBack(ctx, inStore{d}, why, nil)
}

// giveAllBack gives the units of t back to where they were taken, but for the asks that stay, and releases its
// holds. why is the line for the log if that fails.
func (t *Request) giveAllBack(ctx context.Context, b Book, why string, stays func(g *Group, i int) bool) {
	if t.Settlement != nil && t.Settlement.Holds {
		if err := t.Settlement.end(ctx, nil); err != nil {
			b.Failed("what a request held could not be given back", err)
		}
	}
	for i := range t.Groups {
		if g := &t.Groups[i]; !g.InShadow() && g.allowed() {
			if err := g.giveBack(ctx, b, t.Settlement != nil, func(i int) bool { return stays != nil && stays(g, i) }); err != nil {
				b.Failed(why, err)
			}
		}
	}
}

// giveBack gives back the asks of g that do not stay, and shows that in g's answer. settled means that
// another settles what g holds. A place in the queue of a leaky bucket stays taken: requests behind it may
// have it already, so it would be given twice.
func (g *Group) giveBack(ctx context.Context, b Book, settled bool, stays func(i int) bool) error {
	ctx, cancel := Outliving(ctx)
	defer cancel()
	r := stint.Request{At: g.Request.At}
	var calls []stint.HoldCall
	for i, a := range g.Request.Asks {
		if stays(i) || !isRefundable(&a) {
			continue
		}
		a.By = g.Answer.Each[i].By
		switch {
		case g.Request.Hold == stint.HoldID{} || !isHeld(&a):
			r.Asks = append(r.Asks, a)
		case !settled:
			calls = append(calls, stint.HoldCall{Key: a.Key, Limit: a.Limit, Hold: g.Request.Hold, Units: a.Units(), For: g.Request.HoldFor, By: a.By})
		}
	}
	b.Hold(ctx, g.Request.At, calls)
	err := b.Refund(ctx, &r, false)
	for i := range calls {
		err = errors.Join(err, calls[i].Err)
	}
	if err != nil {
		return err
	}
	for i := range g.Answer.Each {
		if d, a := &g.Answer.Each[i], &g.Request.Asks[i]; !stays(i) && isRefundable(a) {
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
func (t *Request) refundAsked(ctx context.Context, b Book, at time.Time) error {
	ctx, cancel := Outliving(ctx)
	defer cancel()
	if err := b.Refund(ctx, &stint.Request{Asks: t.back, At: at}, true); err != nil {
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
	b.Hold(ctx, at, calls)
	for i, d := range of {
		if c := &calls[i]; c.Err != nil {
			b.Failed(NoStore, c.Err)
		} else {
			d.Remaining, d.Held, d.ResetAfter = c.Remaining, c.Held, c.ResetAfter
		}
	}
	return nil
}

// chargedCost returns how many units the i-th ask of g is charged if it is refused: those of descriptors that
// take more than one unit, because these were used before the call. Nothing is charged under a limit of 0
// units.
func (t *Request) chargedCost(g *Group, i int) (cost int64) {
	rule, a := g.Rules[i], &g.Request.Asks[i]
	switch {
	case rule.Descriptor == nil, !rule.Descriptor.ChargeRefused, a.Units() < 2, !isChargeable(a.Limit):
		return 0
	case t.In.Descriptors.Ahead, g.Request.Hold != stint.HoldID{}: // not used yet
		return 0
	}
	place := i
	if g.Places != nil {
		place = g.Places[i]
	}
	for k := range t.Descriptors {
		m, d := &t.Descriptors[k], &t.In.Descriptors.List[k]
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

// Refused reports whether a limit has refused g. A ban that runs counts nothing.
func Refused(a *stint.Answer) bool { return a.Err == nil && !a.Allowed && a.Limit != nil }

// Charges appends the calls that charge g's units, if it is refused.
func (t *Request) Charges(g *Group, calls []stint.HoldCall) []stint.HoldCall {
	for i := range g.Request.Asks {
		if cost := t.chargedCost(g, i); cost > 0 {
			a := &g.Request.Asks[i]
			calls = append(calls, stint.HoldCall{Action: stint.HoldCharge, Key: a.Key, Limit: a.Limit, Cost: cost})
		}
	}
	return calls
}

// chargeRefused charges the refused units of t's enforced groups, and shows the keys after that. Those of
// groups in shadow mode were charged by calls of their own.
func (t *Request) chargeRefused(ctx context.Context, b Book, at time.Time) {
	var calls []stint.HoldCall
	for i := range t.Groups {
		if g := &t.Groups[i]; !g.InShadow() && Refused(&g.Answer) {
			calls = t.Charges(g, calls)
		}
	}
	if len(calls) > 0 {
		ctx, cancel := Outliving(ctx)
		defer cancel()
		b.Hold(ctx, at, calls)
		for i := range calls {
			if err := calls[i].Err; err != nil {
				b.Failed(NoStore, err)
			}
		}
	}
	t.showCharged(calls)
}

// showCharged shows the keys of t after calls, which charged its enforced groups.
func (t *Request) showCharged(calls []stint.HoldCall) {
	charged := len(calls) > 0
	for i := range t.Groups {
		switch g := &t.Groups[i]; {
		case g.charged != nil: // in shadow mode
			t.keepLeft()
			g.showCharged(*g.charged)
			t.place(g)
		case !g.InShadow() && len(calls) > 0 && Refused(&g.Answer):
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

// showCharged puts the state of g's keys after calls, which Charges returned, into g's answer. It returns the
// other calls.
func (g *Group) showCharged(calls []stint.HoldCall) []stint.HoldCall {
	for i := range g.Request.Asks {
		a := &g.Request.Asks[i]
		if len(calls) == 0 || calls[0].Key != a.Key || calls[0].Limit != a.Limit {
			continue
		}
		if c := &calls[0]; c.Err == nil {
			g.Answer.Each[i].Remaining, g.Answer.Each[i].ResetAfter = c.Remaining, c.ResetAfter
		}
		calls = calls[1:]
	}
	return calls
}

// keepLeft records the remaining units before the first charge.
func (t *Request) keepLeft() {
	if t.Left != nil {
		return
	}
	t.Left = make([]int64, len(t.Each))
	for i := range t.Each {
		t.Left[i] = t.Each[i].Remaining
	}
}
