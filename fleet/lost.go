package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
)

// A request that holds units and whose answer was lost may hold them in the Store, for nobody. They
// are settled with 0 when the Store answers again; after that, or in time, the record is gone.

type lostHold struct {
	call  stint.HoldCall
	until time.Duration // by a Fallback's start: then the record has run out
}

// lostSize is approximate.
const lostSize = 288

// heldAsk reports whether a makes a record, in a request that holds.
func heldAsk(a stint.Ask) bool { return a.Limit != nil && a.Limit.IsHeld() && a.Units() > 0 }

// holds reports whether r would hold units.
func holds(r *stint.Request) bool {
	return r.Hold != (stint.HoldID{}) && slices.ContainsFunc(r.Asks, heldAsk)
}

// lose notes that the Store may have made the holds of r, which failed by why.
func (f *Fallback) lose(r *stint.Request, why error) {
	if r.Hold == (stint.HoldID{}) || errors.Is(why, ErrNotCharged) || errors.Is(why, stint.ErrRequest) || errors.Is(why, stint.ErrUnsupported) {
		return
	}
	now, live := f.clock(), f.Live()
	l := &f.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range r.Asks {
		a := &r.Asks[i]
		if !heldAsk(*a) || !l.hasRoom(lostSize+len(a.Key), now, live) {
			continue
		}
		span := or(r.HoldFor, time.Duration(planOf(a.Limit).Hold)*time.Microsecond)
		l.lost = append(l.lost, lostHold{
			call: stint.HoldCall{
				Action: stint.HoldSettle, Key: strings.Clone(a.Key), Limit: a.Limit, Hold: r.Hold, Units: a.Units(), For: r.HoldFor,
			},
			// A call that arrives late makes its record late.
			until: time.Since(f.start) + span + repayTimeout,
		})
		l.size += lostSize + len(a.Key)
		l.loses.Store(true)
	}
}

// claimLost takes out up to n lost holds that can be settled, and drops those that have run out.
func (l *ledger) claimLost(n int, now time.Duration, pays func(key string) bool) (some []lostHold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = slices.DeleteFunc(l.lost, func(h lostHold) bool {
		switch {
		case now >= h.until:
		case len(some) < n && pays(h.call.Key):
			some = append(some, h)
		default:
			return false
		}
		l.size -= lostSize + len(h.call.Key)
		return true
	})
	if len(l.lost) == 0 {
		l.lost = nil
		l.loses.Store(false)
	}
	return some
}

// returnLost puts back what could not be settled.
func (l *ledger) returnLost(h lostHold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = append(l.lost, h)
	l.size += lostSize + len(h.call.Key)
	l.loses.Store(true)
}

// settleLost settles the lost holds, until a batch fails. It reports whether none failed.
func (f *Fallback) settleLost() bool {
	for f.ledger.loses.Load() {
		some := f.ledger.claimLost(repayBatch, time.Since(f.start), f.asks)
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
		failed := false
		for i := range calls {
			if calls[i].Err != nil {
				f.ledger.returnLost(some[i])
				failed = true
			}
		}
		if failed {
			return false
		}
	}
	return true
}
