package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// book is where requests are counted, and where what they took is given back: the store of the instance
// (inStore), the memory of a preview (trial), or nowhere, for an explanation (look).
type book interface {
	// take asks about the groups of all, and puts the answers into them. shadows reports whether to wait for
	// the answers of rules in shadow mode.
	take(ctx context.Context, all []evaluation, shadows bool)
	// refund gives units back. asked means that a client asks for that: without the store, its units go to
	// this instance's share, unless on_store_error denies.
	refund(ctx context.Context, r *stint.Request, asked bool) error
	// hold makes calls at the instant at (zero: now). Each has an error of its own.
	hold(ctx context.Context, at time.Time, calls []stint.HoldCall)
	// releaseShadows ends the holds of rules in shadow mode for t, which was not allowed, if no ending does:
	// nobody will settle them.
	releaseShadows(ctx context.Context, t *evaluation, at time.Time)
	// failed reports that something was not charged or given back.
	failed(what string, err error)
}

// decideBy decides the one request of an evaluation that is planned, without the bounds and effects of an
// instance, at that instant (zero: now): in a preview or an explanation. The error is why it cannot be decided.
func decideBy(ctx context.Context, b book, one []evaluation, at time.Time) error {
	t := &one[0]
	b.take(ctx, one, true)
	for i := range t.groups {
		if err := t.groups[i].answer.Err; err != nil && err != errNotAskedNow {
			return err
		}
	}
	t.conclude()
	t.settle(ctx, b, at)
	return t.err
}

// inStore is the book of decisions and simulations: the store, behind the layers of this instance.
type inStore struct{ *Server }

// take is for book: one call for the enforced rules, as if there were no others, and separate calls for rules
// in shadow mode.
func (b inStore) take(ctx context.Context, all []evaluation, shadowsWanted bool) {
	enforced, shadows := 0, 0
	var one *group          // the last group that is enforced
	var least time.Duration // the shortest timeout of those; 0: none
	for i := range all {
		for j := range all[i].groups {
			g := &all[i].groups[j]
			if g.inShadow() {
				shadows++
				continue
			}
			enforced, one = enforced+1, g
			if d := g.request.Deadline; d > 0 && (least == 0 || d < least) {
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
	start := b.metrics.now()
	switch enforced {
	case 0:
	case 1:
		a := &one.answer
		a.Decision, a.Err = b.decider.Take(ctx, &one.request, a.Each)
		b.called(start, a.Err)
	default:
		b.called(start, b.takeBatch(ctx, all, enforced))
	}
}

// asked is one call of a Store, with its answer. It is reused, because a Store keeps nothing of it.
type asked struct {
	requests []stint.Request
	answers  []stint.Answer
}

var asks = sync.Pool{New: func() any { return new(asked) }}

// takeBatch asks the store about the n groups of all that are enforced. If several fail, it
// returns one error, and prefers one of the store's.
func (b inStore) takeBatch(ctx context.Context, all []evaluation, n int) (err error) {
	a := asks.Get().(*asked)
	a.requests, a.answers = slices.Grow(a.requests, n), slices.Grow(a.answers, n)
	for i := range all {
		for j := range all[i].groups {
			if g := &all[i].groups[j]; !g.inShadow() {
				a.requests, a.answers = append(a.requests, g.request), append(a.answers, stint.Answer{Each: g.answer.Each})
			}
		}
	}
	b.decider.TakeBatch(ctx, a.requests, a.answers)
	k := 0
	for i := range all {
		for j := range all[i].groups {
			if all[i].groups[j].inShadow() {
				continue
			}
			answer := &all[i].groups[j].answer
			*answer = a.answers[k]
			k++
			if e := answer.Err; e != nil && (err == nil || errors.Is(err, stint.ErrRequest)) {
				err = e
			}
		}
	}
	if n <= maxChecks {
		clear(a.requests)
		clear(a.answers)
		a.requests, a.answers = a.requests[:0], a.answers[:0]
		asks.Put(a)
	}
	return err
}

// called counts a call of the store that began at start, unless a Fallback does.
func (b inStore) called(start time.Duration, err error) {
	if !b.fleet.IsLayered() && !errors.Is(err, stint.ErrRequest) {
		b.metrics.called(b.metrics.now()-start, err)
	}
}

// refund is for book.
func (b inStore) refund(ctx context.Context, r *stint.Request, asked bool) error {
	shared := asked && r.At.IsZero() && b.fleet.IsLayered()
	denies := asked && slices.ContainsFunc(r.Asks, func(a stint.Ask) bool { return a.OnError == stint.OnErrorDeny })
	if shared && denies {
		if err := b.StoreError(); err != nil {
			return err
		}
	}
	err := stint.Refund(ctx, b.fleet, r)
	if err == nil || !shared || denies {
		return err
	}
	b.sampled.storeFailure(err)
	local := stint.Request{Asks: slices.Clone(r.Asks)}
	for i := range local.Asks {
		local.Asks[i].By = stint.ByLocal
	}
	return b.refund(ctx, &local, false)
}

// hold is for book. It counts charges.
func (b inStore) hold(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	if len(calls) > 0 {
		stint.Holds(ctx, b.decider.Store, at, calls)
		b.set.Load().holds.charged(calls)
	}
}

// releaseShadows is for book.
func (b inStore) releaseShadows(ctx context.Context, t *evaluation, at time.Time) {
	var calls []stint.HoldCall
	if (t.opaque || !at.IsZero()) && t.holds != (stint.HoldID{}) {
		calls = t.heldInShadow()
	}
	if t.shadows != nil {
		t.shadows.conclude(calls)
	} else if len(calls) > 0 { // the store has answered
		stint.Holds(ctx, b.limiter.Store, at, calls)
	}
}

// failed is for book.
func (b inStore) failed(what string, err error) {
	if !errors.Is(err, stint.ErrRequest) {
		b.logUncharged(what, err)
	}
}
