package stint

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/spelling"
)

// ErrHoldLost means that a hold no longer counted when it was to be settled, so nothing was
// charged: it expired because the Store could not be reached for too long, or somebody released
// it.
var ErrHoldLost = errors.New("the hold was lost before it was settled")

// Reservation is the hold of an allowed request whose cost is not known yet. Limiter.Reserve
// makes it, and the Limiter renews it until Settle or Cancel ends it. If a Reservation is garbage
// collected without either, it ends within a third of Spec.Hold: the units that it held are
// charged, and that is logged.
//
// A Reservation may be used from many goroutines at once. A nil Reservation holds nothing: its
// methods do nothing and return nil.
type Reservation struct {
	held    *held // nil: nothing is held
	asks    int   // of the request
	cleanup runtime.Cleanup
}

// Reserve decides r as Take does, and holds the units of its asks whose Limit is held
// (Spec.Hold) until Reservation.Settle charges their final cost. Its other asks are charged at
// once, and stay charged. The Reservation is nil if r was refused, and not nil if it was
// allowed, also if it holds nothing.
//
// An ask with Peek under such a Limit holds nothing: it is allowed if one unit would fit, and
// Settle charges its cost as Charge does.
//
// Reserve makes the identity of the holds, so r.Hold must be zero, and so must r.At: holds
// expire by the Store's clock. The error wraps ErrUnsupported if the Store is not a Holder. If
// it is unknown whether the Store holds the units, the Limiter settles them with 0 when the
// Store answers again.
func (l *Limiter) Reserve(ctx context.Context, r *Request) (*Reservation, Decision, error) {
	return l.reserve(ctx, r, nil)
}

// reserve is Reserve, and fills in the answer to each ask if each is not nil.
func (l *Limiter) reserve(ctx context.Context, r *Request, each []Decision) (*Reservation, Decision, error) {
	switch {
	case r.Hold != HoldID{}:
		return nil, Decision{}, fmt.Errorf("stint: %w: Reserve makes the identity of its holds, so Request.Hold must be zero", ErrRequest)
	case !r.At.IsZero():
		return nil, Decision{}, fmt.Errorf("stint: %w: a reservation is renewed by the clock of the store, so its request cannot have an instant", ErrRequest)
	}
	c := l.call()
	defer l.done(c)
	c.asks = append(c.asks, r.Asks...)
	c.request = Request{Asks: c.asks, Hold: NewHoldID(), HoldFor: r.HoldFor, Deadline: r.Deadline}
	if err := c.request.check(); err != nil {
		return nil, Decision{}, err
	}
	for range c.asks {
		c.out = append(c.out, Decision{})
	}
	withOnError(c.asks, l.onErrorOf(ctx))
	d, err := l.decide(ctx, &c.request, c.out)
	copy(each, c.out)
	l.observed(ctx, c, &d, nil, err)
	if err != nil {
		return nil, d, err
	}
	return l.reservation(&c.request, c.out, &d), d, nil
}

// reservation is the Reservation of r, from its answers d and each; nil if r was refused.
func (l *Limiter) reservation(r *Request, each []Decision, d *Decision) *Reservation {
	if !d.Allowed {
		return nil
	}
	res := &Reservation{held: newHeld(l, r, each), asks: len(r.Asks)}
	if res.held != nil && res.held.renews() {
		res.cleanup = runtime.AddCleanup(res, (*held).drop, res.held)
		l.keeper.keep(res.held)
	}
	return res
}

// Acquire holds one unit of key under limit, which must be InFlight or unlimited, until release is called.
// release is never nil, and may be called more than once; if the Decision is a refusal, it does nothing.
// It waits for at most a second: if the Store has not answered by then, the release is sent again in the
// background. See Reservation for what happens if release is never called.
//
// Acquire does not wait for its turn; AcquireWait does. Refusals are Busy, and RetryAfter is a
// hint.
func (l *Limiter) Acquire(ctx context.Context, key string, limit *Limit) (release func(), d Decision, err error) {
	if err := checkAcquired(limit); err != nil {
		return func() {}, d, err
	}
	r, d, err := l.Reserve(ctx, &Request{Asks: []Ask{{Key: key, Limit: limit}}})
	return r.releaser(ctx), d, err
}

func checkAcquired(l *Limit) error {
	if l != nil && l.id != "" && l.spec.Algorithm != InFlight && !l.IsUnlimited() {
		return fmt.Errorf("stint: %w: limit %s is not in_flight: use Reserve", ErrRequest, l)
	}
	return nil
}

// releaser returns a function that cancels r, which may be nil.
func (r *Reservation) releaser(ctx context.Context) func() {
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
		defer cancel()
		_ = r.Cancel(ctx) // a lost unit is as free as a released one
	}
}

// ID is the identity of the holds. It is zero if nothing is held.
func (r *Reservation) ID() HoldID {
	if r == nil || r.held == nil {
		return HoldID{}
	}
	return r.held.id
}

// Settle ends the reservation and charges the final cost of the request, also if that is more
// than was held: see Spec.Debt. cost is one number for all held limits; or one for each ask of the
// request, in their order (ignored if the ask holds nothing); or none, which charges the held
// units. Under an InFlight limit nothing is charged.
//
// The first call of Settle or Cancel ends the reservation; further calls return nil. A settlement
// that the Store has not answered when ctx is done is kept, as far as 32 MiB suffice, and sent
// again in the background until the Store answers or the hold has expired. So you may call Settle
// with the context of a request whose client has left.
//
// Settle returns nil if the cost is charged, or will be. The error wraps ErrHoldLost if the
// hold under one of the limits was lost, and ErrRequest if there are too many or too few
// costs, or one is negative; then the reservation goes on.
func (r *Reservation) Settle(ctx context.Context, cost ...int64) error {
	if r == nil {
		return nil
	}
	if n := len(cost); n > 1 && n != r.asks {
		return fmt.Errorf("stint: %w: %s for a request of %s", ErrRequest, spelling.Several(n, "cost"), spelling.Several(r.asks, "ask"))
	}
	for _, c := range cost {
		if err := checkCost(c); err != nil {
			return err
		}
	}
	return r.end(ctx, cost)
}

// Cancel ends the reservation and charges nothing: it is Settle with a cost of 0. Asks that
// were charged at once stay charged.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r == nil {
		return nil
	}
	return r.end(ctx, []int64{0})
}

func (r *Reservation) end(ctx context.Context, cost []int64) error {
	if r.held == nil {
		return nil
	}
	restoring, first := r.held.end(cost)
	if !first {
		return nil
	}
	r.cleanup.Stop()
	if restoring != nil { // the store may not put the hold back after it was settled
		select {
		case <-restoring:
		case <-ctx.Done():
		}
	}
	return r.held.settle(ctx)
}

// log logs an error of Settle that no caller gets.
func (r *Reservation) log(err error) { r.held.l.keeper.log(r.held, err) }

// Charge charges n units that are already spent to key under limit, whether they fit or not. It returns how
// many were charged, which is less than n if usage would rise above the capacity plus Spec.Debt. It never
// refuses and counts no violation. limit may be held or not, but must not be InFlight. Under an unlimited
// one, nothing is charged. A charge that failed may have been made.
func (l *Limiter) Charge(ctx context.Context, key string, limit *Limit, n int64) (charged int64, err error) {
	limit = limit.orDefault()
	calls := []HoldCall{{Action: HoldCharge, Key: key, Limit: limit, Cost: n}}
	if limit.IsUnlimited() {
		calls[0].Cost = min(n, 0) // nothing is counted
	}
	l.Holds(ctx, calls)
	return calls[0].Charged, calls[0].Err
}

// Holds makes calls, as Holder says, for programs that keep holds without a Reservation, for
// example because another process settles them. It fills in the answers. The Err of a malformed
// call wraps ErrRequest; the others are made regardless.
func (l *Limiter) Holds(ctx context.Context, calls []HoldCall) {
	good := 0
	for i := range calls {
		c := &calls[i]
		c.Found, c.Released, c.Charged, c.Remaining, c.Held, c.ResetAfter = false, false, 0, 0, 0, 0
		if c.Err = c.check(); c.Err == nil && c.Action == HoldCharge {
			c.Err = hasEnded(ctx)
		}
		if c.Err == nil {
			good++
		}
	}
	if good == len(calls) {
		l.send(ctx, calls)
	} else if good > 0 {
		sent := make([]HoldCall, 0, good)
		for i := range calls {
			if calls[i].Err == nil {
				sent = append(sent, calls[i])
			}
		}
		l.send(ctx, sent)
		for i := range calls {
			if calls[i].Err == nil {
				calls[i], sent = sent[0], sent[1:]
			}
		}
	}
	for i := range calls {
		if c := &calls[i]; c.Action != HoldRenew && !errors.Is(c.Err, ErrRequest) {
			l.holdEnded(ctx, c)
		}
	}
}

// send makes checked calls, and wakes callers that wait for the units they free. It does so even
// without an answer, because a fleet.Fallback then counts the units as free.
func (l *Limiter) send(ctx context.Context, calls []HoldCall) {
	l.sendToStores(ctx, calls)
	for i := range calls {
		if c := &calls[i]; c.Action == HoldSettle || c.Action == HoldRelease {
			l.lineOf().changed(c.Key, c.Limit)
		}
	}
}

func (l *Limiter) sendToStores(ctx context.Context, calls []HoldCall) {
	isHere := func(c HoldCall) bool { return c.By == ByInstance }
	if l.Instance == nil || !slices.ContainsFunc(calls, isHere) {
		Holds(ctx, l.store(), time.Time{}, calls)
		return
	}
	there := slices.DeleteFunc(slices.Clone(calls), isHere)
	if len(there) > 0 {
		Holds(ctx, l.store(), time.Time{}, there)
	}
	for i := range calls {
		if isHere(calls[i]) {
			l.instanceCount().Holds(ctx, time.Time{}, calls[i:i+1])
		} else {
			calls[i], there = there[0], there[1:]
		}
	}
}

// holdEnded calls ObserveHold.
func (l *Limiter) holdEnded(ctx context.Context, c *HoldCall) {
	if l.ObserveHold != nil {
		l.ObserveHold(ctx, c)
	}
}

// check returns an error that wraps ErrRequest if c breaks a rule stated with HoldCall.
func (c *HoldCall) check() error {
	if err := checkKey(c.Key); err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("stint: %w: %s", ErrRequest, fmt.Sprintf(format, args...))
	}
	switch {
	case c.Action > HoldCharge:
		return bad("unknown action %d of a hold", c.Action)
	case c.Limit == nil || c.Limit.id == "":
		return bad("limit for key %q was not made by ParseLimit or NewLimit", limittext.Clip(c.Key))
	case c.Action == HoldCharge && c.Limit.spec.Algorithm == InFlight:
		return bad("limit %s: in_flight is never charged", c.Limit)
	case c.Action == HoldCharge:
		return checkCost(c.Cost)
	case !c.Limit.IsHeld():
		return bad("limit %s is not held", c.Limit)
	case c.Hold == HoldID{}:
		return bad("no hold for key %q", limittext.Clip(c.Key))
	case c.Units < 1:
		return bad("a hold of %d units: must be at least 1", c.Units)
	case c.For != 0 && !isHoldTime(c.For):
		return bad("a hold for %s: must be from 1ms to 24h and a whole number of microseconds", c.For)
	}
	return checkCost(c.Cost)
}

func checkCost(cost int64) error {
	if cost < 0 {
		return fmt.Errorf("stint: %w: cost %d: must not be negative", ErrRequest, cost)
	}
	return nil
}
