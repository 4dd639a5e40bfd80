package stint

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/stintdev/stint/internal/algo"
)

// held has the units that one request holds. It has no reference to its Reservation, so that
// a Reservation that the caller dropped is garbage.
type held struct {
	l     *Limiter
	id    HoldID
	parts []part
	one   [1]part // parts, if there is no more
	every time.Duration
	// longest is how long the longest of parts lasts without renewal.
	longest time.Duration
	dropped atomic.Bool // its Reservation is garbage

	// keeper.mu guards the rest, and parts[].cost until ended is set.
	ended     bool
	due       time.Time     // of the next renewal
	until     time.Time     // the records have expired by then if not renewed
	index     int           // in keeper.live; -1: not there
	restoring chan struct{} // not nil: a call is under way that may put a lost record back; closed after it
	doubtful  bool          // a settlement was sent and not answered
	absent    bool          // abandoned, and not found when it was last settled
	pause     time.Duration // before the next attempt, if absent; it doubles
	abandoned bool          // only to be settled with 0
	err       error         // why it is not settled yet
}

// part has the units held under one limit.
type part struct {
	ask   int // index in the request; -1: the unit of Limiter.Instance
	key   string
	limit *Limit
	units int64 // 0: nothing is held, and the cost is charged
	last  time.Duration
	by    Source
	cost  int64
	done  bool // settled

	again    bool // the store had no record and was asked to put it back
	released bool // by an operator
}

// renews reports whether p has a record to renew.
func (p *part) renews() bool { return p.units > 0 && !p.released }

// newHeld returns the units that r holds; nil if none. each has the answers to its asks; nil:
// not known.
func newHeld(l *Limiter, r *Request, each []Decision) *held {
	h := &held{l: l, id: r.Hold, index: -1}
	h.parts = h.one[:0]
	for i := range r.Asks {
		a := &r.Asks[i]
		units := a.Units()
		if a.Limit == nil || !a.Limit.IsHeld() || units == 0 && (each == nil || a.Limit.spec.Algorithm == InFlight) {
			continue
		}
		p := part{ask: i, key: a.Key, limit: a.Limit, units: units}
		if each != nil {
			if p.by = each[i].By; p.by == ByPolicy {
				continue // nothing was counted
			}
		}
		h.add(p, r.HoldFor)
	}
	if each != nil && l.holdsHere(r) {
		h.add(part{ask: -1, key: instanceKey, limit: l.Instance, units: 1, by: ByInstance}, 0)
	}
	if len(h.parts) == 0 {
		return nil
	}
	return h
}

// add adds p, which lasts for last, or as its limit says.
func (h *held) add(p part, last time.Duration) {
	if p.units > 0 {
		p.last = cmp.Or(last, algo.Duration(p.limit.counted.Plan.Hold))
		h.longest = max(h.longest, p.last)
		if h.every == 0 || p.last/3 < h.every {
			h.every = p.last / 3
		}
	}
	h.parts = append(h.parts, p)
}

// renews reports whether any part of h needs renewal.
func (h *held) renews() bool { return h.every > 0 }

// drop is called when the Reservation of h is garbage, in a goroutine that must not block.
// The keeper sees it at the next renewal.
func (h *held) drop() { h.dropped.Store(true) }

func (h *held) call(p *part, action HoldAction) HoldCall {
	c := HoldCall{Action: action, Key: p.key, Limit: p.limit, Hold: h.id, Units: p.units, For: p.last, By: p.by}
	if action == HoldSettle {
		c.Cost = p.cost
		if p.units == 0 {
			c.Action = HoldCharge
		}
	}
	return c
}

// size is about how many bytes h takes.
func (h *held) size() int {
	n := int(unsafe.Sizeof(*h)) + int(unsafe.Sizeof(part{}))*len(h.parts)
	for i := range h.parts {
		n += len(h.parts[i].key)
	}
	return n
}

// end ends h with the costs of Reservation.Settle. first is false if h was ended before. If
// restoring is not nil, a call that may put a lost record back is under way until it is closed.
func (h *held) end(cost []int64) (restoring <-chan struct{}, first bool) {
	k := &h.l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.ended {
		return nil, false
	}
	h.ended = true
	if h.index >= 0 {
		heap.Remove(&k.live, h.index)
	}
	for i := range h.parts {
		switch p := &h.parts[i]; {
		case p.limit.spec.Algorithm == InFlight: // nothing is charged
		case len(cost) == 0:
			p.cost = p.units
		case len(cost) == 1:
			p.cost = cost[0]
		default:
			p.cost = cost[p.ask]
		}
	}
	return h.restoring, true
}

// settle sends the settlements of h, which is ended.
func (h *held) settle(ctx context.Context) error {
	calls := h.settlements(nil)
	if len(calls) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil { // the client has left, but must still be charged
		return h.owe(err)
	}
	if slices.ContainsFunc(calls, func(c HoldCall) bool { return c.Action == HoldCharge }) {
		// A charge that was sent cannot be sent again, so its caller's leaving may not interrupt it.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
		defer cancel()
	}
	h.l.send(ctx, calls)
	owed, err := h.answered(ctx, calls)
	if owed != nil {
		err = errors.Join(err, h.owe(owed))
	}
	return err
}

// settlements appends the settlements of h still to be sent. h is ended.
func (h *held) settlements(calls []HoldCall) []HoldCall {
	for i := range h.parts {
		p := &h.parts[i]
		if p.units == 0 && p.cost == 0 {
			p.done = true
		}
		if !p.done {
			calls = append(calls, h.call(p, HoldSettle))
		}
	}
	return calls
}

// answered reads the answers to settlements. owed is the error if some must be sent again; err
// joins the final errors of the others.
func (h *held) answered(ctx context.Context, calls []HoldCall) (owed, err error) {
	h.absent = false
	for i := range h.parts {
		p := &h.parts[i]
		if p.done {
			continue
		}
		c := &calls[0]
		calls = calls[1:]
		switch {
		case c.Err == nil && h.abandoned && !c.Found: // the call that makes it may still arrive
			h.absent = true
		case c.Err == nil:
			p.done = true
			if !c.Found && !h.doubtful { // else it was settled when the answer was lost
				err = errors.Join(err, fmt.Errorf("stint: %w: %s", ErrHoldLost, p.limit))
			}
		case c.Action == HoldCharge && !errors.Is(c.Err, errNotCharged), errors.Is(c.Err, ErrRequest), errors.Is(c.Err, ErrUnsupported):
			p.done = true
			err = errors.Join(err, c.Err)
		default:
			owed = c.Err
		}
		if p.done && !h.abandoned {
			h.l.holdEnded(ctx, c)
		}
	}
	h.doubtful = h.doubtful || owed != nil
	return owed, err
}

// owe keeps h, which is ended, to send it in the background. It returns an error if there is no
// room.
func (h *held) owe(err error) error {
	k, size := &h.l.keeper, h.size()
	k.mu.Lock()
	most := cmp.Or(k.most, maxOwed)
	if h.abandoned {
		most /= 2
	}
	full := k.bytes+size > most
	if !full {
		for i := range h.parts { // the caller's key may be part of a long text
			h.parts[i].key = strings.Clone(h.parts[i].key)
		}
		h.err = err
		k.bytes += size
		k.owed = append(k.owed, h)
		k.arm(h.l, time.Now())
	}
	k.mu.Unlock()
	if full {
		h.err = fmt.Errorf("no room to keep the settlement: %w", err)
		return h.giveUp()
	}
	return nil
}

// abandon settles the units that r may hold with 0, because it is unknown whether r was
// allowed.
func (l *Limiter) abandon(r *Request, err error) {
	if (r.Hold == HoldID{}) || !r.At.IsZero() || errors.Is(err, errNotCharged) || errors.Is(err, ErrRequest) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrFull) {
		return
	}
	if h := newHeld(l, r, nil); h != nil {
		h.ended, h.abandoned, h.doubtful = true, true, true
		h.until = time.Now().Add(h.longest)
		_ = h.owe(err) // without room, the hold expires
	}
}

// giveUp gives up settlements that were not answered, because of h.err. It returns an error for each
// lost charge.
func (h *held) giveUp() (err error) {
	for _, c := range h.settlements(nil) {
		c.Err = fmt.Errorf("stint: %w: %s: %w", ErrHoldLost, c.Limit, h.err)
		if c.Cost > 0 {
			err = errors.Join(err, c.Err)
		}
		if !h.abandoned {
			h.l.holdEnded(context.Background(), &c)
		}
	}
	return err
}
