package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

// Holds implements stint.Holder. Calls about holds that this instance made without its Store
// (ByLocal) are done here, and what they charge is charged to the Store when it answers again. All
// others go to the Store, in parts that wait for its deadline each. If it does not answer, they
// return an error, and so may be sent again; this instance then still counts by them: what ended no
// longer counts in its share, and what is renewed goes on to.
//
// A HoldCharge is no error if the Store does not answer: it is done here, and charged later if it
// has certainly not been charged (ErrNotCharged), or if the answer cannot be right (ErrBadReply).
// Charged is then what this instance would charge,
// which does not know how much room other instances have left.
func (f *Fallback) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	f.init()
	if f.holder == nil || !at.IsZero() {
		stint.Holds(ctx, f.Store, at, calls)
		return
	}
	var why error // of the part that the Store did not do
	for len(calls) > 0 {
		n := f.remote(calls)
		if n == 0 {
			f.holdHere(&calls[0])
			calls = calls[1:]
			continue
		}
		part := calls[:n]
		if why == nil {
			why = f.holdPart(ctx, part)
		} else {
			for i := range part {
				part[i].Err = unasked{why}
			}
		}
		for i := range part {
			f.concludeHold(ctx, &part[i])
		}
		calls = calls[n:]
	}
}

// Held implements stint.Holder. It lists what the Store has.
func (f *Fallback) Held(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Hold, error) {
	f.init()
	if f.holder == nil {
		return nil, errNoHolder
	}
	return f.holder.Held(ctx, key, limits)
}

var errNoHolder = fmt.Errorf("stint: holds: %w", stint.ErrUnsupported)

// remote is how many of the first calls are for the Store, and go there together.
func (f *Fallback) remote(calls []stint.HoldCall) (n int) {
	open := f.State() != Closed
	for n < min(len(calls), listPart) {
		c := &calls[n]
		if isHere(c) || open && !f.parts.of(c.Limit, c.Key).isClosed() {
			break
		}
		n++
	}
	return n
}

// isHere reports whether a call is about a hold that only this instance knows, or nobody.
func isHere(c *stint.HoldCall) bool {
	return c.Action != stint.HoldCharge && (c.By == stint.ByLocal || c.By == stint.ByPolicy)
}

// holdPart has the Store do some calls. After an error, the rest is not asked.
func (f *Fallback) holdPart(ctx context.Context, calls []stint.HoldCall) error {
	asks := make([]stint.Ask, len(calls))
	for i := range calls {
		asks[i].Key, asks[i].Limit = calls[i].Key, calls[i].Limit
	}
	asked := stint.Request{Asks: asks}
	err := f.call(ctx, &asked, func(ctx context.Context) (err error) {
		f.holder.Holds(ctx, time.Time{}, calls)
		for i := range calls {
			if e := calls[i].Err; e != nil && (err == nil || isAnswer(err)) {
				err, asked.Asks = e, asks[i:i+1]
			}
		}
		return err
	})
	if isAnswer(err) {
		return nil
	}
	return err
}

func (f *Fallback) concludeHold(ctx context.Context, c *stint.HoldCall) {
	switch err := c.Err; {
	case err == nil && f.ledger.has(c.Key, c.Limit): // the Store does not know all that is used
		f.mirror(c)
	case err == nil:
		internal.SetLeastCost(f.local, f.Live())
		internal.LearnHold(f.local, c)
	case errors.Is(err, stint.ErrRequest), errors.Is(err, stint.ErrUnsupported):
	case c.Action == stint.HoldCharge && ctx.Err() != nil: // whether it was charged is unknown to its caller, too
	default:
		f.holdWithout(c, err)
	}
}

// holdHere does a call that is not for the Store, or that the Store is not asked to do.
func (f *Fallback) holdHere(c *stint.HoldCall) {
	switch {
	case !isHere(c):
		f.holdWithout(c, fmt.Errorf("stint: %w: %w", ErrNotCharged, errOpen))
	case c.By == stint.ByPolicy: // nobody holds anything
		*c = unanswered(c)
		c.Remaining = c.Limit.Capacity()
	default:
		f.holdLocal(c, true)
	}
}

// unanswered is c without an answer.
func unanswered(c *stint.HoldCall) stint.HoldCall {
	return stint.HoldCall{
		Action: c.Action, Key: c.Key, Limit: c.Limit, Hold: c.Hold, Units: c.Units, For: c.For, Cost: c.Cost,
		Again: c.Again, By: c.By,
	}
}

// holdWithout does what can be done without the Store, which failed by why.
func (f *Fallback) holdWithout(c *stint.HoldCall, why error) {
	if c.Action == stint.HoldCharge {
		f.holdLocal(c, isOwed(why))
		return
	}
	f.mirror(c)
	*c = unanswered(c)
	c.Err = why
}

// mirror does a call that is the Store's by what this instance has of the Store's counts. There each
// unit counts once, as in the Store.
func (f *Fallback) mirror(c *stint.HoldCall) {
	mirrored := []stint.HoldCall{unanswered(c)}
	mirrored[0].Again = true
	f.local.Holds(context.Background(), time.Time{}, mirrored)
}

// holdLocal does a call by this instance's counts. owed means that what it charges is to be charged
// to the Store.
func (f *Fallback) holdLocal(c *stint.HoldCall, owed bool) {
	live := f.Live()
	internal.SetLeastCost(f.local, live)
	scaled := []stint.HoldCall{unanswered(c)}
	s := &scaled[0]
	s.Units = scale(c.Limit, c.Units, live)
	s.Cost = scaleSpent(c.Limit, c.Cost, live)
	f.local.Holds(context.Background(), time.Time{}, scaled)
	ends := c.Action == stint.HoldSettle || c.Action == stint.HoldCharge
	charges := ends && s.Found && s.Err == nil && planOf(c.Limit).Kind != algo.InFlight
	if charges && owed {
		now, p := f.clock(), planOf(c.Limit)
		spent := stint.Ask{Key: c.Key, Limit: c.Limit, Cost: c.Cost, Peek: c.Cost == 0}
		f.ledger.note(&spent, now, now+runsDry(p, usedUntil(p, s.Remaining, s.Held, s.ResetAfter), s.Charged), live, true)
	}
	*c = unanswered(c)
	c.Found, c.Released, c.Held, c.ResetAfter, c.Err = s.Found, s.Released, s.Held, s.ResetAfter, s.Err
	c.Remaining = s.Remaining / live
	switch {
	case !charges:
	case live == 1:
		c.Charged = s.Charged
	default: // others may have left more room than this instance's share
		c.Charged = c.Cost
	}
}

// scaleSpent is scale for a cost that is charged whether it fits or not.
func scaleSpent(l *stint.Limit, cost, live int64) int64 {
	if cost <= l.Capacity() {
		return scale(l, cost, live)
	}
	return min(cost, (algo.Exact-1)/live) * live
}

// usedUntil is how long what is used of a limit takes until it has run out, µs, if the store said
// that remaining units are left beside those that are held, and reset is until neither is left. It is
// a little too short where what is held lasts longer.
func usedUntil(p *algo.Plan, remaining, held int64, reset time.Duration) int64 {
	us := reset.Microseconds()
	if held == 0 || !p.IsBucket() {
		return us
	}
	used := max(0, p.Capacity-remaining-held) // rounded up to a unit
	if us <= (used*p.Unit+p.Rate-1)/p.Rate*p.Tick {
		return us
	}
	return max(0, used-1) * p.Unit / p.Rate * p.Tick
}
