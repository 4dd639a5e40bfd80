package stint

import (
	"context"
	"fmt"
	"time"
)

// A RefusedError is a denial where only an error can be returned. It wraps
// context.DeadlineExceeded if a wait would have helped, but the context's deadline comes
// first.
type RefusedError struct {
	Decision
	// Message is that of the Guard, for the caller who is refused; "": none.
	Message string

	deadline bool
}

func (e *RefusedError) Error() string {
	s := "stint: " + e.Outcome.String()
	if e.Limit != nil {
		s += " to " + named(e.Limit)
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
// WaitN holds nothing. Under an InFlight limit it returns when a unit would fit; a Guard with
// Wait waits and holds.
//
// Callers that wait for one key go on in no particular order. Their number is not
// bounded: each is a goroutine of the program.
func (l *Limiter) WaitN(ctx context.Context, key string, limit *Limit, n int64) error {
	_, err := l.wait(ctx, &Ask{Key: key, Limit: limit, Cost: n, Peek: n == 0}, false)
	return err
}

// wait is WaitN, but with hold it holds the units, as Reserve does.
func (l *Limiter) wait(ctx context.Context, ask *Ask, hold bool) (*Reservation, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		held, d, err := l.takeInTime(ctx, ask, hold)
		if err != nil {
			return nil, err
		}
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

// takeInTime decides a request of one ask, but for a LeakyBucket, limit or Instance, that would
// let the caller leave when its deadline is over, it refuses.
func (l *Limiter) takeInTime(ctx context.Context, ask *Ask, hold bool) (held *Reservation, d Decision, err error) {
	in := *ask
	if in.Cost == 0 && !in.Peek {
		in.Cost = 1
	}
	if deadline, ok := ctx.Deadline(); ok && (ask.Limit.delays() || l.Instance.delays()) {
		if in.MaxDelay = time.Until(deadline); in.MaxDelay <= 0 {
			in.MaxDelay = -1
		}
	}
	if hold {
		return l.Reserve(ctx, &Request{Asks: []Ask{in}})
	}
	if in.MaxDelay == 0 {
		d, err = l.AllowN(ctx, ask.Key, ask.Limit, in.Cost)
	} else {
		d, err = l.Take(ctx, &Request{Asks: []Ask{in}}, nil)
	}
	return nil, d, err
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
