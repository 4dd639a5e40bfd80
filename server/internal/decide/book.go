package decide

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// Book is where requests are counted, and where what they took is given back: the store of the instance
// (inStore), the memory of a preview, or nowhere, for an explanation.
type Book interface {
	// Take asks about the groups of all, and puts the answers into them. shadows reports whether to wait for
	// the answers of rules in shadow mode.
	Take(ctx context.Context, all []Request, shadows bool)
	// Refund gives units back. asked means that a client asks for that: without the store, its units go to
	// this instance's share, unless on_store_error denies.
	Refund(ctx context.Context, r *stint.Request, asked bool) error
	// Hold makes calls at the instant at (zero: now). Each has an error of its own.
	Hold(ctx context.Context, at time.Time, calls []stint.HoldCall)
	// ReleaseShadows ends the holds of rules in shadow mode for t, which was not allowed, if no Settlement does:
	// nobody will settle them.
	ReleaseShadows(ctx context.Context, t *Request, at time.Time)
	// Failed reports that something was not charged or given back.
	Failed(what string, err error)
}

// DecideBy decides one request that is planned, without the bounds and effects of an
// instance, at that instant (zero: now): in a preview or an explanation. The error is why it cannot be decided.
func DecideBy(ctx context.Context, b Book, one []Request, at time.Time) error {
	t := &one[0]
	b.Take(ctx, one, true)
	for i := range t.Groups {
		if err := t.Groups[i].Answer.Err; err != nil && err != ErrNotAskedNow {
			return err
		}
	}
	t.conclude()
	t.settle(ctx, b, at)
	return t.Err
}

// inStore is the book of decisions and simulations: the store, behind the layers of this instance.
type inStore struct{ *Decider }

// Take is for Book: one call for the enforced rules, as if there were no others, and separate calls for rules
// in shadow mode.
func (b inStore) Take(ctx context.Context, all []Request, shadowsWanted bool) {
	enforced, shadows := 0, 0
	var one *Group          // the last group that is enforced
	var least time.Duration // the shortest timeout of those; 0: none
	for i := range all {
		for j := range all[i].Groups {
			g := &all[i].Groups[j]
			if g.InShadow() {
				shadows++
				continue
			}
			enforced, one = enforced+1, g
			if d := g.Request.Deadline; d > 0 && (least == 0 || d < least) {
				least = d
			}
		}
	}
	if shadows > 0 {
		c := shadowsOf(all, shadows)
		wait := b.takeShadows(ctx, c, least, shadowsWanted)
		if c.concluded != nil {
			all[len(all)-1].shadows = c
		}
		defer wait()
	}
	start := b.Now()
	switch enforced {
	case 0:
	case 1:
		a := &one.Answer
		a.Decision, a.Err = b.Limiter.Take(ctx, &one.Request, a.Each)
		b.called(start, a.Err)
	default:
		b.called(start, b.takeBatch(ctx, all, enforced))
	}
}

// storeCall is one call of a Store, with its answer. It is reused, because a Store keeps nothing of it.
type storeCall struct {
	requests []stint.Request
	answers  []stint.Answer
}

var asks = sync.Pool{New: func() any { return new(storeCall) }}

// takeBatch asks the store about the n groups of all that are enforced. If several fail, it
// returns one error, and prefers one of the store's.
func (b inStore) takeBatch(ctx context.Context, all []Request, n int) (err error) {
	a := asks.Get().(*storeCall)
	a.requests, a.answers = slices.Grow(a.requests, n), slices.Grow(a.answers, n)
	for i := range all {
		for j := range all[i].Groups {
			if g := &all[i].Groups[j]; !g.InShadow() {
				a.requests, a.answers = append(a.requests, g.Request), append(a.answers, stint.Answer{Each: g.Answer.Each})
			}
		}
	}
	b.Limiter.TakeBatch(ctx, a.requests, a.answers)
	k := 0
	for i := range all {
		for j := range all[i].Groups {
			if all[i].Groups[j].InShadow() {
				continue
			}
			answer := &all[i].Groups[j].Answer
			*answer = a.answers[k]
			k++
			if e := answer.Err; e != nil && (err == nil || errors.Is(err, stint.ErrRequest)) {
				err = e
			}
		}
	}
	if n <= b.MostKept {
		clear(a.requests)
		clear(a.answers)
		a.requests, a.answers = a.requests[:0], a.answers[:0]
		asks.Put(a)
	}
	return err
}

// called counts a call of the store that began at start, unless a Fallback does.
func (b inStore) called(start time.Duration, err error) {
	if !b.Fleet.IsLayered() && !errors.Is(err, stint.ErrRequest) {
		b.Instance.StoreCalled(b.Now()-start, err)
	}
}

// Refund is for Book.
func (b inStore) Refund(ctx context.Context, r *stint.Request, asked bool) error {
	shared := asked && r.At.IsZero() && b.Fleet.IsLayered()
	denies := asked && slices.ContainsFunc(r.Asks, func(a stint.Ask) bool { return a.OnError == stint.OnErrorDeny })
	if shared && denies {
		if err := b.StoreError(); err != nil {
			return err
		}
	}
	err := stint.Refund(ctx, b.Fleet, r)
	if err == nil || !shared || denies {
		return err
	}
	b.Instance.Failed(NoStore, err)
	local := stint.Request{Asks: slices.Clone(r.Asks)}
	for i := range local.Asks {
		local.Asks[i].By = stint.ByLocal
	}
	return b.Refund(ctx, &local, false)
}

// Hold makes calls at the instant at (zero: now). Each has an error of its own. Charges are counted.
func (d *Decider) Hold(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	if len(calls) > 0 {
		stint.Holds(ctx, d.Limiter.Store, at, calls)
		d.Set().Watcher.Charged(calls)
	}
}

// ReleaseShadows is for Book.
func (b inStore) ReleaseShadows(ctx context.Context, t *Request, at time.Time) {
	var calls []stint.HoldCall
	if (t.Opaque || !at.IsZero()) && t.Hold != (stint.HoldID{}) {
		calls = t.heldInShadow()
	}
	if t.shadows != nil {
		t.shadows.conclude(calls)
	} else if len(calls) > 0 { // the store has answered
		stint.Holds(ctx, b.Unlayered.Store, at, calls)
	}
}

// Failed is for Book.
func (b inStore) Failed(what string, err error) {
	if !errors.Is(err, stint.ErrRequest) {
		b.Instance.Uncharged(what, err)
	}
}
