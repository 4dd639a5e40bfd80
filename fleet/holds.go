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
// (ByLocal) are made here, and their charges are sent to the Store when it answers again. All
// others go to the Store, in parts that wait for its deadline each. If it does not answer, they
// return an error, and so may be sent again; this instance's share still follows them: ended holds
// no longer count in it, and renewed holds continue to.
//
// A HoldCharge does not fail if the Store does not answer: it is made here, and charged later if it
// has certainly not been charged (ErrNotCharged), or if the answer cannot be right (ErrBadReply).
// Charged is then what this instance would charge; it does not know how much room other instances
// have left.
func (f *Fallback) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	f.init()
	if f.holder == nil || !at.IsZero() {
		stint.Holds(ctx, f.Store, at, calls)
		return
	}
	var why error // why the Store did not do the last part
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

// Held implements stint.Holder. It lists the holds in the Store.
func (f *Fallback) Held(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Hold, error) {
	f.init()
	if f.holder == nil {
		return nil, errNoHolder
	}
	return f.holder.Held(ctx, key, limits)
}

var errNoHolder = fmt.Errorf("stint: holds: %w", stint.ErrUnsupported)

// remote is how many calls at the start of calls are for the Store, and are sent together.
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

// isHere reports whether a call is about a hold that the Store does not have.
func isHere(c *stint.HoldCall) bool {
	return c.Action != stint.HoldCharge && (c.By == stint.ByLocal || c.By == stint.ByPolicy)
}

// holdPart sends some calls to the Store. After an error, the rest is not sent.
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
	case err == nil && f.ledger.has(c.Key, c.Limit): // the Store does not know all used units
		f.mirror(c)
	case err == nil:
		internal.SetLeastCost(f.local, f.Live())
		internal.LearnHold(f.local, c)
	case errors.Is(err, stint.ErrRequest), errors.Is(err, stint.ErrUnsupported):
	case c.Action == stint.HoldCharge && ctx.Err() != nil: // its caller does not learn whether it was charged
	default:
		f.holdWithout(c, err)
	}
}

// holdHere makes a call that is not for the Store, or for which the Store is not asked.
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

func unanswered(c *stint.HoldCall) stint.HoldCall {
	return stint.HoldCall{
		Action: c.Action, Key: c.Key, Limit: c.Limit, Hold: c.Hold, Units: c.Units, For: c.For, Cost: c.Cost,
		Again: c.Again, By: c.By,
	}
}

// holdWithout does what is possible without the Store, which failed with why.
func (f *Fallback) holdWithout(c *stint.HoldCall, why error) {
	if c.Action == stint.HoldCharge {
		f.holdLocal(c, isOwed(why))
		return
	}
	f.mirror(c)
	*c = unanswered(c)
	c.Err = why
}

// mirror makes a call of the Store's in this instance's copy of the Store's counts. There each unit
// counts once, as in the Store.
func (f *Fallback) mirror(c *stint.HoldCall) {
	mirrored := []stint.HoldCall{unanswered(c)}
	mirrored[0].Again = true
	f.local.Holds(context.Background(), time.Time{}, mirrored)
}

// holdLocal makes a call in this instance's counts. owed means that its charge must be sent to the
// Store later.
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

func scaleSpent(l *stint.Limit, cost, live int64) int64 {
	if cost <= l.Capacity() {
		return scale(l, cost, live)
	}
	return min(cost, (algo.Exact-1)/live) * live
}

// usedUntil is how long, in µs, until the used units of a limit have flowed out, from the store's
// answer: remaining units besides the held ones, and reset, after which nothing is used or held. It
// is a little too short if the holds last longer.
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
