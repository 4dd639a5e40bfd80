package stint

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A RefusedError is a denial returned as an error. It wraps context.DeadlineExceeded if a wait
// would have helped, but the context's deadline comes first. httplimit.Dialect.Refuse,
// grpclimit.Refuse and connectlimit.Refuse turn it into an answer to a client.
type RefusedError struct {
	Decision
	// Message is the Guard's text for the refused caller; "": none.
	Message string

	deadline bool
}

// Error returns the limit that refused, how long to wait, and the Message. It does not
// contain the key.
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
// a LeakyBucket it then sleeps the delay. It returns nil once the caller may go on. It returns a
// *RefusedError at once if n is more than fits, or if the caller's turn cannot come before ctx's
// deadline; a ban counts as a wait. If ctx is done while it sleeps, it returns ctx's error. In
// these cases nothing is left charged, except for the last 25 ms of a LeakyBucket's delay (or
// twice as long as its Store takes to answer).
//
// WaitN holds nothing. Under an InFlight limit it returns when a unit would fit; AcquireWait and
// ReserveWait wait and hold.
//
// Callers that wait for the same key and limit stand in one line of their Limiter. They go on in the
// order in which they came, whatever their costs, and only the first asks the Store, when its last
// answer says that the request may fit. It asks at once when a hold of this Limiter ends, and after
// Refund and Reset. While units that others hold are the reason (Decision.Busy), it also asks now and
// then whether holds of other processes have ended; because how long that takes is unknown, no
// deadline refuses it early. Allow, Take and similar methods do not stand in line. The number of
// waiting callers is not bounded: each is a goroutine of the program.
//
// Limiters of several processes over one Store share the turns of a key in proportion to their lines.
// For that, a Limiter whose callers wait for longer than a quarter of a second tells the Store so, up
// to four times per second.
func (l *Limiter) WaitN(ctx context.Context, key string, limit *Limit, n int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	limit = limit.orDefault()
	var refused *Decision
	if line := l.lineOf(); !limit.delays() && !l.Instance.delays() && line.mayAskAlone(l.mayBeShared()) {
		d, err := l.allowAlone(ctx, line, key, limit, n)
		if err != nil || d.Allowed {
			return err
		}
		refused = new(Decision)
		*refused = d
	}
	_, err := l.waitFor(ctx, &Request{Asks: []Ask{{Key: key, Limit: limit, Cost: n, Peek: n == 0}}}, false, refused)
	return err
}

// allowAlone is AllowN for a caller without a place.
func (l *Limiter) allowAlone(ctx context.Context, n *line, key string, limit *Limit, units int64) (Decision, error) {
	defer n.asked()
	return l.AllowN(ctx, key, limit, units)
}

// TakeWait decides r as Take does, and waits as WaitN does until all its limits allow it.
//
// A request with several limits stands in the line of each limit that refuses it, before all later
// requests. It does not hold up a limit that allows it, except for as long as that limit itself has made
// it wait before. So a limit that all callers share does not wait for the limit of one caller, and nobody
// is passed forever.
func (l *Limiter) TakeWait(ctx context.Context, r *Request) error {
	_, err := l.waitFor(ctx, r, false, nil)
	return err
}

// ReserveWait holds the units of r as Reserve does, and waits as WaitN does until all its limits
// allow it. The Reservation is not nil if there is no error. If ctx is done while the caller sleeps
// the delay of a LeakyBucket, the reservation is cancelled.
func (l *Limiter) ReserveWait(ctx context.Context, r *Request) (*Reservation, error) {
	return l.waitFor(ctx, r, true, nil)
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

// waiting is a request that waits for its turn.
type waiting struct {
	l     *Limiter
	r     *Request
	hold  bool
	place *place // nil: none yet
	alone bool   // it asks without a place
	each  []Decision
	one   [1]Decision
}

// waitFor takes the units of r, or holds them, when that is allowed. refused is an earlier answer to r,
// if there is one; else nil.
func (l *Limiter) waitFor(ctx context.Context, r *Request, hold bool, refused *Decision) (*Reservation, error) {
	w := waiting{l: l, r: r, hold: hold}
	if w.each = w.one[:]; len(r.Asks) > 1 {
		w.each = make([]Decision, len(r.Asks))
	}
	defer w.leave()
	switch {
	case refused != nil:
		w.each[0] = *refused
		if err := w.refused(ctx, refused, time.Now(), 0); err != nil {
			return nil, err
		}
	case slices.ContainsFunc(r.Asks, isTooMuch): // it is refused at once
	case l.lineOf().mayAskAlone(l.mayBeShared()):
		w.alone = true
	default:
		if err := r.check(); err != nil {
			return nil, err
		}
		w.place = l.lineOf().join(l, r)
	}
	for {
		held, d, err := w.ask(ctx)
		if err != nil {
			return nil, err
		}
		if d.Allowed {
			if err := sleep(ctx, &d); err != nil {
				_ = held.Cancel(ctx) // a lost hold is as good as cancelled
				return nil, err
			}
			return held, nil
		}
	}
}

// leave gives up w's place, if it has one.
func (w *waiting) leave() {
	w.place.leave()
	if w.alone {
		w.alone = false
		w.l.lineOf().asked()
	}
}

// isTooMuch reports whether a can never fit.
func isTooMuch(a Ask) bool { return a.Limit != nil && a.Units() > a.Limit.Capacity() }

// ask waits until w may ask, and asks once. Afterwards w has a place if it was refused, and none if
// it was allowed.
func (w *waiting) ask(ctx context.Context) (held *Reservation, d Decision, err error) {
	if w.place != nil {
		if err := w.place.await(ctx); err != nil {
			return nil, d, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, d, err
	}
	began := time.Now()
	at, asOf := began, uint32(0)
	if w.place != nil && !w.place.shared && !w.hold {
		at = began.Add(-w.place.late(began))
		asOf = w.l.asOf(at)
	}
	held, d, err = w.take(ctx, asOf)
	if err != nil {
		return nil, d, err
	}
	took := time.Since(began)
	if asOf == 0 {
		at = began.Add(took / 2)
	}
	if !d.Allowed {
		return nil, d, w.refused(ctx, &d, at, took)
	}
	if w.place != nil {
		w.place.answered(at, took, &d, w.each)
		w.place.report(ctx, w.l.store())
	}
	w.leave()
	return held, d, nil
}

// refused puts w into the lines of the limits that refused it by d, which was decided at an instant. It
// returns an error if waiting does not help.
func (w *waiting) refused(ctx context.Context, d *Decision, at time.Time, took time.Duration) error {
	err := refusedFor(ctx, d)
	if w.place == nil && err == nil {
		place := w.l.lineOf().join(w.l, w.r)
		w.leave()
		w.place = place
	}
	if w.place != nil {
		w.place.answered(at, took, d, w.each)
		w.place.report(ctx, w.l.store())
	}
	return err
}

// take decides w's request, and refuses if a LeakyBucket (limit or Instance) would delay it past the
// deadline.
func (w *waiting) take(ctx context.Context, asOf uint32) (held *Reservation, d Decision, err error) {
	r := *w.r
	r.asOf = asOf
	if w.delays() {
		r.Asks = slices.Clone(r.Asks)
		longest := w.place.delay()
		if deadline, ok := ctx.Deadline(); ok {
			if longest = min(longest, time.Until(deadline)); longest <= 0 {
				longest = -1
			}
		}
		for i := range r.Asks {
			if a := &r.Asks[i]; a.MaxDelay == 0 || longest < a.MaxDelay {
				a.MaxDelay = longest
			}
		}
	}
	if w.hold {
		return w.l.reserve(ctx, &r, w.each)
	}
	d, err = w.l.Take(ctx, &r, w.each)
	return nil, d, err
}

// delays reports whether w's request can be delayed.
func (w *waiting) delays() bool {
	return w.l.Instance.delays() || slices.ContainsFunc(w.r.Asks, func(a Ask) bool { return a.Limit.delays() })
}

// delays reports whether decisions under l, which may be nil, can have a Delay.
func (l *Limit) delays() bool { return l != nil && l.spec.Algorithm == LeakyBucket }

// refusedFor returns the error of a refusal if waiting does not help, or if the caller cannot leave before
// ctx's deadline.
func refusedFor(ctx context.Context, d *Decision) error {
	leaves := d.RetryAfter
	switch {
	case leaves == Never:
		return &RefusedError{Decision: *d}
	case d.Busy: // a hint
		return nil
	case d.Limit.delays():
		leaves = max(leaves, d.ResetAfter) // when the bucket is empty
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < leaves {
		return &RefusedError{Decision: *d, deadline: true}
	}
	return nil
}

// sleep waits for the delay of d, which is allowed. It returns an error at once if the delay ends after
// ctx's deadline.
func sleep(ctx context.Context, d *Decision) error {
	if d.Delay == 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d.Delay {
		return &RefusedError{Decision: *d, deadline: true}
	}
	t := time.NewTimer(d.Delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
