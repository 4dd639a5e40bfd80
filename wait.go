package stint

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A RefusedError is a denial where only an error can be returned. It wraps
// context.DeadlineExceeded if a wait would have helped, but the context's deadline comes
// first. httplimit.Dialect.Refuse, grpclimit.Refuse and connectlimit.Refuse answer a client with
// it.
type RefusedError struct {
	Decision
	// Message is that of the Guard, for the caller who is refused; "": none.
	Message string

	deadline bool
}

func (e *RefusedError) Error() string {
	s := "stint: " + e.Outcome.String()
	switch {
	case e.Limit == nil:
	case e.Outcome == Limited:
		s += " to " + named(e.Limit)
	default: // banned or warned
		s += " under " + named(e.Limit)
	}
	switch {
	case e.Allowed: // but its delay ends after the deadline
		s = fmt.Sprintf("stint: must wait %s to leave at the pace of %s", e.Delay, named(e.Limit))
	case e.deadline && e.Limit != nil && e.Limit.spec.Algorithm == LeakyBucket && e.ResetAfter > e.RetryAfter:
		s = fmt.Sprintf("stint: must wait %s to leave at the pace of %s", e.ResetAfter, named(e.Limit))
	case e.RetryAfter == Never:
		s += ": the cost is above the limit's capacity"
	default:
		s += fmt.Sprintf(": retry after %s", e.RetryAfter)
	}
	if e.deadline {
		s += ", which is past the deadline"
	}
	if e.Message != "" {
		s += " (" + e.Message + ")"
	}
	return s
}

// named is l within a sentence: "5 per 1m (login)".
func named(l *Limit) string {
	if l.spec.Name == "" {
		return l.terms
	}
	return l.terms + " (" + l.spec.Name + ")"
}

// Unwrap returns context.DeadlineExceeded, or nil.
func (e *RefusedError) Unwrap() error {
	if e.deadline {
		return context.DeadlineExceeded
	}
	return nil
}

// Wait takes one unit for key under limit, and sleeps until that is allowed; under
// a LeakyBucket it also sleeps the delay. See WaitN.
func (l *Limiter) Wait(ctx context.Context, key string, limit *Limit) error {
	return l.WaitN(ctx, key, limit, 1)
}

// WaitN takes n units for key under limit, sleeping until that is allowed; under
// a LeakyBucket it then sleeps the delay. It returns nil once the caller may go
// on. It returns a *RefusedError at once if n is more than fits, or if ctx has a
// deadline that cannot be met; a ban counts as a wait. If ctx is done while it
// sleeps, it returns ctx's error. In none of these cases is anything left charged, but
// for a place in the queue of a LeakyBucket, which nobody else can take (see
// Ask.MaxDelay).
//
// WaitN holds nothing. Under an InFlight limit it returns when a unit would fit; AcquireWait and
// ReserveWait wait and hold.
//
// Callers that wait for what others hold (Decision.Busy) go on in the order in which they came, as
// soon as a hold of this Limiter ends; the first of them asks now and then whether holds of other
// processes have. How long that takes is unknown, so it is never past a deadline. Other callers that
// wait for one key go on in no particular order. The number of callers is not bounded: each is a
// goroutine of the program.
func (l *Limiter) WaitN(ctx context.Context, key string, limit *Limit, n int64) error {
	_, err := l.wait(ctx, &Ask{Key: key, Limit: limit, Cost: n, Peek: n == 0}, false)
	return err
}

// TakeWait decides r as Take does, and waits as WaitN does until all its limits allow it.
func (l *Limiter) TakeWait(ctx context.Context, r *Request) error {
	_, err := l.waitFor(ctx, r, false)
	return err
}

// ReserveWait holds what r asks for as Reserve does, and waits as WaitN does until all its limits
// allow it. The Reservation is not nil if there is no error. If ctx is done while the caller sleeps
// the delay of a LeakyBucket, what r holds is cancelled.
func (l *Limiter) ReserveWait(ctx context.Context, r *Request) (*Reservation, error) {
	return l.waitFor(ctx, r, true)
}

// AcquireWait holds one unit of key under limit as Acquire does, and waits for it as WaitN does.
// release is never nil, and does nothing if there is an error.
func (l *Limiter) AcquireWait(ctx context.Context, key string, limit *Limit) (release func(), err error) {
	if err := checkAcquired(limit); err != nil {
		return func() {}, err
	}
	r, err := l.ReserveWait(ctx, &Request{Asks: []Ask{{Key: key, Limit: limit}}})
	return r.releaser(ctx), err
}

// wait is WaitN, but with hold it holds the units, as Reserve does.
func (l *Limiter) wait(ctx context.Context, ask *Ask, hold bool) (*Reservation, error) {
	return l.waitFor(ctx, &Request{Asks: []Ask{*ask}}, hold)
}

func (l *Limiter) waitFor(ctx context.Context, r *Request, hold bool) (*Reservation, error) {
	place := l.lineOf().joinBehind(r)
	defer func() { place.leave() }()
	if place != nil && !place.isFirst() {
		if err := place.await(ctx, 0); err != nil {
			return nil, err
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		held, d, err := l.takeInTime(ctx, r, hold)
		if err != nil {
			return nil, err
		}
		if !d.Allowed && d.Busy {
			if of := (entryKey{d.Key, d.Limit.id}); place == nil || place.of != of {
				place.leave()
				place = l.lineOf().join(of)
			}
			if err := place.await(ctx, d.RetryAfter); err != nil {
				return nil, err
			}
			continue
		}
		place.leave()
		place = nil
		wait, leaves := d.RetryAfter, d.RetryAfter
		if d.Allowed {
			wait, leaves = d.Delay, d.Delay
		} else if wait != Never && d.Limit.delays() {
			leaves = max(wait, d.ResetAfter) // when what is in the bucket has left
		}
		if err := sleep(ctx, wait, leaves, &d); err != nil {
			_ = held.Cancel(ctx) // what it no longer holds is as good as cancelled
			return nil, err
		}
		if d.Allowed {
			return held, nil
		}
	}
}

// takeInTime decides r, but for a LeakyBucket, limit or Instance, that would let the caller leave when
// its deadline is over, it refuses.
func (l *Limiter) takeInTime(ctx context.Context, r *Request, hold bool) (held *Reservation, d Decision, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left <= 0 {
			left = -1
		}
		r = l.withinDeadline(r, left)
	}
	if hold {
		return l.Reserve(ctx, r)
	}
	d, err = l.Take(ctx, r, nil)
	return nil, d, err
}

// withinDeadline is r with no longer delays than what is left; -1: none.
func (l *Limiter) withinDeadline(r *Request, left time.Duration) *Request {
	delays := func(a Ask) bool { return a.Limit.delays() || l.Instance.delays() }
	if !slices.ContainsFunc(r.Asks, delays) {
		return r
	}
	in := *r
	in.Asks = slices.Clone(r.Asks)
	for i := range in.Asks {
		if a := &in.Asks[i]; delays(*a) && (a.MaxDelay == 0 || left < a.MaxDelay) {
			a.MaxDelay = left
		}
	}
	return &in
}

// delays tells whether decisions under l, which may be nil, can have a Delay.
func (l *Limit) delays() bool { return l != nil && l.spec.Algorithm == LeakyBucket }

// sleep waits. It returns an error at once if waiting does not help, or if the earliest
// instant at which the caller can leave is after ctx's deadline.
func sleep(ctx context.Context, wait, leaves time.Duration, d *Decision) error {
	if wait == 0 {
		return nil
	}
	if wait == Never {
		return &RefusedError{Decision: *d}
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < leaves {
		return &RefusedError{Decision: *d, deadline: true}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
