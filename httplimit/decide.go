package httplimit

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/stintdev/stint"
)

// Answer is what is decided about a request. The zero Answer refuses it.
type Answer struct {
	// Decision is of the request as a whole. Where it is Allowed, the request
	// passes; else it is refused with 429.
	stint.Decision
	// Each holds the answers of the single limits, for Draft11 to list. nil: the
	// Decision is all there is. It is not read where Decision.Limit is nil, as
	// when a running ban answered.
	Each []stint.Decision
	// Message tells the client why it is refused. "": a plain sentence is made
	// of the Decision.
	Message string
	// Cause begins the plain sentence in place of "Too many requests." and the like, such
	// as "Banned by an operator." "": it goes by the Outcome.
	Cause string
	// Blocked refuses with 403, for reasons that have nothing to do with limits:
	// no headers tell of any. It goes before everything else.
	Blocked bool
	// Unlimited lets pass without headers, because no limit applied.
	Unlimited bool
	// Hold makes an allowed request wait for Decision.Delay before it passes, so
	// that requests leave at the even pace of a leaky bucket.
	Hold bool
	// Refund returns what the request took. It is called at most once, if the
	// request is dropped while it is held or because it cannot be, with a
	// context that lasts a second and outlives the request. It must leave the place in
	// the leaky bucket's queue taken: those behind keep theirs, and it would be given
	// twice. nil: all stays taken.
	Refund func(context.Context)
	// OnStatus is told the status of the handler's response, once, before its
	// header is written, or when the handler returns without having written one;
	// not if it panics or hijacks the connection, and of 1xx only 101. ctx lasts
	// a second and outlives the request; the client waits meanwhile. nil: nobody
	// is told, and the handler gets the ResponseWriter as it came.
	OnStatus func(ctx context.Context, status int)
}

// wait returns once the request behind a, which can be held for so long, may go on, or
// makes a refusal of a if it would have to wait longer. It returns the context's error
// if that ends first.
func (a *Answer) wait(ctx context.Context, hold time.Duration) error {
	if a.Delay > hold { // Decide did not heed it
		a.refuse(a.Delay - max(0, hold))
		return nil
	}
	t := time.NewTimer(a.Delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() // asked again, for both may have happened
}

// refuse makes a, which was allowed, a refusal by the limit with the delay.
func (a *Answer) refuse(retryAfter time.Duration) {
	for i := range a.Each {
		if e := &a.Each[i]; e.Limit != nil && e.Delay == a.Delay {
			a.Decision = *e
			break
		}
	}
	a.Allowed, a.Outcome, a.RetryAfter, a.Delay = false, stint.Limited, retryAfter, 0
}

// refundTimeout bounds how long a dropped request tries to return its units.
const refundTimeout = time.Second

func (a *Answer) refund(ctx context.Context) {
	if a.Refund == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	a.Refund(ctx)
}

// Decide answers whether a request may pass. An error means that nothing could
// be decided; one that wraps stint.ErrRequest blames the request. It must not
// read the request's body nor keep the request. It is called from many
// goroutines at once.
//
// hold is how long the Middleware can hold this request, negative if it cannot. A
// Decide that shapes passes it on as stint.Ask.MaxDelay, so that a request which would
// have to wait longer is refused and takes no place in the queue; others ignore it.
type Decide func(r *http.Request, hold time.Duration) (Answer, error)

// By decides by one limit under one key. Where the key is "", the request is
// unlimited. l nil: one in memory. limit nil: stint.DefaultLimit. key nil: the address of
// the connection, which is the client's where no proxy stands between; see Clients.
//
// In a Store that others use, limits without a name share their counts (see
// stint.Spec.Name): By logs a warning, once, where its limit has none and its Store is not
// a stint.Memory.
//
// Where the Store of l is stint.Networked, By asks it through its Fallback, and so
// answers in time whatever the network does. What the Instance of l refuses is Overloaded.
func By(l *stint.Limiter, limit *stint.Limit, key Key) Decide {
	return by(l, limit, key, false)
}

var defaultLimit = stint.MustLimit(stint.DefaultLimit)

// Shape is By, and has every allowed request held until it is its turn; see
// Answer.Hold. It is for limits that are leaky buckets; no other makes requests wait.
func Shape(l *stint.Limiter, limit *stint.Limit, key Key) Decide {
	return by(l, limit, key, true)
}

func by(l *stint.Limiter, limit *stint.Limit, key Key, shape bool) Decide {
	if l == nil {
		l = new(stint.Limiter)
	}
	if limit == nil {
		limit = defaultLimit
	}
	if key == nil {
		key = Clients{}.Key
	}
	warnUnnamed(l, limit)
	l = l.WithFallback()
	return func(r *http.Request, hold time.Duration) (Answer, error) {
		k := key(r)
		if k == "" {
			return Answer{Unlimited: true}, nil
		}
		var d stint.Decision
		var err error
		if shape {
			ask := stint.Ask{Key: k, Limit: limit, MaxDelay: hold}
			d, err = l.Take(r.Context(), &stint.Request{Asks: []stint.Ask{ask}}, nil)
		} else {
			d, err = l.Allow(r.Context(), k, limit)
		}
		if err != nil {
			return Answer{}, fmt.Errorf("limit %s: %w", limit, err)
		}
		if d.By == stint.ByInstance {
			return Answer{}, &Overloaded{RetryAfter: d.RetryAfter}
		}
		return Answer{Decision: d, Hold: shape}, nil
	}
}

// warnUnnamed says that limit shares its counts with others, if they may be in l's Store.
func warnUnnamed(l *stint.Limiter, limit *stint.Limit) {
	if _, own := l.Store.(*stint.Memory); limit.Name() == "" && l.Store != nil && !own {
		slog.Default().Warn("httplimit: a limit without a name counts together with all others of its algorithm and period in the store: name it",
			"limit", limit.Terms(), "better", "NAME: "+limit.Terms())
	}
}
