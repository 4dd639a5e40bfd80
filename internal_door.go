package stint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"strconv"
	"time"
)

// OrDefault is l, or the default limit if l is nil.
func (internals) OrDefault(l *Limit) *Limit { return l.orDefault() }

// WithFallback returns a Limiter that answers in time whatever the network does: if l's
// Store is Networked, another Limiter over the same counts, also of Instance; else l
// itself.
func (internals) WithFallback(l *Limiter) *Limiter {
	s, ok := l.Store.(Networked)
	if !ok {
		return l
	}
	return &Limiter{Store: s.WithFallback(), Instance: l.Instance, Observe: l.Observe, ObserveHold: l.ObserveHold, OnError: l.OnError, of: l}
}

// Counted returns the key that a call with key k counts under, and "" if it is not counted.
func (internals) Counted(a Anonymous, k string) (string, error) { return a.key(k) }

// JoinKey makes one key of n parts. It is empty if all of them are.
func (internals) JoinKey(n int, part func(i int) string) string {
	var b []byte
	empty := true
	for i := range n {
		text := part(i)
		empty = empty && text == ""
		// The length comes first: without a separator, a client can forge none.
		b = strconv.AppendInt(b, int64(len(text)), 10)
		b = append(b, ':')
		b = append(b, text...)
	}
	if empty {
		return ""
	}
	return string(b)
}

// WarnUnnamed logs, for package pkg, that limit has no name, if other programs may count in
// l's Store.
func (internals) WarnUnnamed(pkg string, l *Limiter, limit *Limit) {
	if limit.spec.Name == "" && l.mayBeShared() {
		slog.Default().Warn(pkg+": a limit without a name shares its counts with all unnamed limits of the same algorithm and period in the store: give it a name",
			"limit", limit.Terms(), "better", "NAME: "+limit.Terms())
	}
}

// TakeOne takes a unit of key under limit. With shape, it refuses a Delay longer than maxDelay.
// An error names the limit.
func (internals) TakeOne(ctx context.Context, l *Limiter, key string, limit *Limit, shape bool, maxDelay time.Duration) (d Decision, err error) {
	if shape {
		d, err = l.Take(ctx, &Request{Asks: []Ask{{Key: key, Limit: limit, MaxDelay: maxDelay}}}, nil)
	} else {
		d, err = l.Allow(ctx, key, limit)
	}
	if err != nil {
		return Decision{}, fmt.Errorf("limit %s: %w", limit, err)
	}
	return d, nil
}

// TakeOrWait takes r as Limiter.TakeWait does; with refuse it does not wait, not even for a delay,
// and a refusal is a *RefusedError. It holds the units of held limits. The Reservation is nil if
// there are none.
func (internals) TakeOrWait(ctx context.Context, l *Limiter, r *Request, refuse bool) (held *Reservation, err error) {
	hold := slices.ContainsFunc(r.Asks, func(a Ask) bool { return a.Limit.IsHeld() })
	if !refuse {
		return l.waitFor(ctx, r, hold, nil)
	}
	held, d, err := l.take(ctx, r.Asks, hold)
	if err == nil && !d.Allowed {
		err = &RefusedError{Decision: d}
	}
	return held, err
}

// Keep returns the Reservation of a request with a Hold that l.Take decided, like that of
// Limiter.Reserve: d is the answer to r, and each has the answers to its asks. nil: r was
// refused.
func (internals) Keep(l *Limiter, r *Request, each []Decision, d *Decision) *Reservation {
	return l.reservation(r, each, d)
}

// RefuseDelayed turns d, which is allowed after a Delay longer than longest, into a refusal by the limit
// with that delay. d is combined from each.
func (internals) RefuseDelayed(d *Decision, each []Decision, longest time.Duration) {
	delay := d.Delay
	for i := range each {
		if e := &each[i]; e.Limit != nil && e.Delay == delay {
			*d = *e
			break
		}
	}
	d.Allowed, d.Outcome, d.RetryAfter, d.Delay = false, Limited, delay-max(0, longest), 0
}

// Refused returns the decision and the message of the *RefusedError that err is or wraps. If it was
// allowed but could not wait out its delay, the decision is turned into a refusal.
func (internals) Refused(err error) (d Decision, message string, ok bool) {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return Decision{}, "", false
	}
	d = refused.Decision
	if d.Allowed {
		internals{}.RefuseDelayed(&d, nil, 0)
	}
	return d, refused.Message, true
}

// IsShared reports whether a decision by s was counted by the Store that counts for all.
func (internals) IsShared(s Source) bool { return s == ByStore || s == ByLease }

// Lasts returns how long the Remaining units must last. If d refuses, it is the wait until the
// request would be allowed; if none remain, until one unit is back; else until the key is as if
// unused.
func (internals) Lasts(d *Decision) time.Duration {
	wait := d.ResetAfter
	switch {
	case !d.Allowed && d.RetryAfter != Never:
		wait = d.RetryAfter
	case d.Allowed && d.Remaining == 0:
		wait -= refill(d.Limit, wait)
	}
	return wait
}

// refill returns how much of an empty bucket's reset comes after its first unit.
func refill(l *Limit, reset time.Duration) time.Duration {
	s := l.Spec()
	if s.Algorithm != TokenBucket && s.Algorithm != LeakyBucket {
		return 0
	}
	hi, lo := bits.Mul64(uint64(l.Capacity()-1), uint64(s.Period))
	if hi >= uint64(s.Amount) {
		return 0
	}
	after, _ := bits.Div64(hi, lo, uint64(s.Amount))
	if after > uint64(reset) {
		return 0
	}
	return time.Duration(after)
}
