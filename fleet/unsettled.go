package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
)

// unsettled is a settlement that the Store has not answered. It is sent until the Store answers or
// the hold must have expired. It may be sent again, because it finds its hold only once.
type unsettled struct {
	call stint.HoldCall
	// By the clock of Fallback.start: when it is sent, and when the hold has expired.
	from, until time.Duration
	// again is for a hold that a late call may still make: how long to wait before settling again
	// if the Store has not found it. It doubles. 0: the Store's answer is final.
	again time.Duration
}

const (
	// unsettledSize is approximate; TestBytesOfALedger compares it with the heap.
	unsettledSize = 288
	// lostFor is how long after a failed call the holds that it may have made are first settled.
	lostFor = time.Second
	// chargeHold is how long a hold lasts that charges a debt.
	chargeHold = 5 * time.Minute
)

func (u *unsettled) size() int { return unsettledSize + len(u.call.Key) }

// keep keeps a settlement, to send it after a while, if there is room.
func (f *Fallback) keep(c stint.HoldCall, after time.Duration) {
	c.Key = strings.Clone(c.Key)
	span := or(c.For, time.Duration(planOf(c.Limit).Hold)*time.Microsecond)
	at := time.Since(f.start)
	u := unsettled{unanswered(&c), at + after, at + span + lostFor, 2 * after} // a call that arrives late makes its record late
	now, live := f.clock(), f.Live()
	l := &f.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hasRoom(u.size(), now, live) {
		l.keep(u)
		f.settleLater()
	}
}

// settleLater makes sure that settlements are sent even if no request comes that the Store answers.
func (f *Fallback) settleLater() {
	if f.settling.Swap(true) {
		return
	}
	time.AfterFunc(repayPause, func() {
		f.settling.Store(false)
		if f.ledger.settles.Load() && !f.parts.closed.Load() {
			f.repaySoon(time.Since(f.start))
			f.settleLater()
		}
	})
}

// keep must be called with mu locked.
func (l *ledger) keep(u unsettled) {
	l.unsettled = append(l.unsettled, u)
	l.size += u.size()
	l.settles.Store(true)
}

// claimUnsettled takes out up to n settlements that are due and can be sent, and drops those whose holds have
// expired.
func (l *ledger) claimUnsettled(n int, now time.Duration, asks func(l *stint.Limit, key string) bool) (some []unsettled) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unsettled = slices.DeleteFunc(l.unsettled, func(u unsettled) bool {
		switch {
		case now >= u.until:
		case now < u.from:
			return false
		case len(some) < n && asks(u.call.Limit, u.call.Key):
			some = append(some, u)
		default:
			return false
		}
		l.size -= u.size()
		return true
	})
	if len(l.unsettled) == 0 {
		l.unsettled = nil // to free its memory
		l.settles.Store(false)
	}
	return some
}

// settleKept sends the kept settlements until a batch fails. It reports whether none failed.
func (f *Fallback) settleKept() bool {
	for f.ledger.settles.Load() {
		some := f.ledger.claimUnsettled(repayBatch, time.Since(f.start), f.asks)
		if len(some) == 0 {
			return true
		}
		calls := make([]stint.HoldCall, len(some))
		for i := range some {
			calls[i] = some[i].call
		}
		ctx, cancel := context.WithTimeout(context.Background(), repayTimeout)
		f.holder.Holds(ctx, time.Time{}, calls)
		cancel()
		failed, now := false, time.Since(f.start)
		for i, u := range some {
			switch {
			case calls[i].Err != nil:
				failed = true
			case calls[i].Found || u.again == 0:
				continue
			default: // the call that makes the hold may still be on its way
				u.from, u.again = now+u.again, 2*u.again
			}
			f.ledger.mu.Lock()
			f.ledger.keep(u)
			f.ledger.mu.Unlock()
		}
		if failed {
			return false
		}
	}
	return true
}

// lose notes that the Store may have made the holds of r, which failed with why. It settles them
// with 0, because nobody else would.
func (f *Fallback) lose(r *stint.Request, why error) {
	if r.Hold == (stint.HoldID{}) || errors.Is(why, ErrNotCharged) || errors.Is(why, stint.ErrRequest) || errors.Is(why, stint.ErrUnsupported) {
		return
	}
	for i := range r.Asks {
		if a := &r.Asks[i]; internal.HoldsBy(a) {
			f.keep(stint.HoldCall{Action: stint.HoldSettle, Key: a.Key, Limit: a.Limit, Hold: r.Hold, Units: a.Units(), For: r.HoldFor}, lostFor)
		}
	}
}

// errKept means that a debt has become a settlement that is sent again.
var errKept = errors.New("stint: the charge is sent again")

// charge charges debts whether they fit or not, and calls failed for those that were not, or perhaps,
// charged. Under a held limit, each debt is charged by a hold of as many units, which is made first and
// then settled with the debt. Either step may be sent again, so the debt is charged once even if
// answers are lost.
func (f *Fallback) charge(ctx context.Context, due []*debt, failed func(e *debt, why error)) {
	if len(due) == 0 {
		return
	}
	calls := make([]stint.HoldCall, len(due))
	for i, e := range due {
		c := &calls[i]
		*c = stint.HoldCall{Action: stint.HoldCharge, Key: e.key, Limit: e.charge.Limit, Cost: e.charge.Cost}
		if c.Limit.IsHeld() {
			*c = stint.HoldCall{Action: stint.HoldRenew, Key: e.key, Limit: e.charge.Limit, Hold: stint.NewHoldID(), Units: min(e.charge.Cost, e.charge.Limit.Capacity()), For: chargeHold, Again: true}
		}
	}
	f.holder.Holds(ctx, time.Time{}, calls)
	settles, of := calls[:0], due[:0:0]
	for i, e := range due {
		c := calls[i]
		why := c.Err
		if c.Action == stint.HoldRenew {
			c.Action, c.Again = stint.HoldSettle, false
			if c = unanswered(&c); why == nil {
				c.Cost = e.charge.Cost
				settles, of = append(settles, c), append(of, e)
				continue
			}
			f.keep(c, lostFor) // settles holds that it may have made
			why = fmt.Errorf("%w: %w", ErrNotCharged, why)
		}
		if why != nil {
			failed(e, why)
		}
	}
	if len(settles) == 0 {
		return
	}
	f.holder.Holds(ctx, time.Time{}, settles)
	for i := range settles {
		switch c := &settles[i]; {
		case c.Err != nil:
			f.keep(*c, 0)
			failed(of[i], errKept) // not c.Err: the debt is no longer due, even if it was not charged yet
		case !c.Found: // the key has no place for another hold
			failed(of[i], fmt.Errorf("%w: too many holds", ErrNotCharged))
		}
	}
}
