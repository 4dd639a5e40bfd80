package httplimit

import (
	"context"
	"fmt"
	"net/http"

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
	// Blocked refuses with 403, for reasons that have nothing to do with limits:
	// no headers tell of any. It goes before everything else.
	Blocked bool
	// Unlimited lets pass without headers, because no limit applied.
	Unlimited bool
	// Hold makes an allowed request wait for Decision.Delay before it passes, so
	// that requests leave at the even pace of a leaky bucket.
	Hold bool
	// GiveBack returns what the request took. It is called at most once, if the
	// request is dropped while it is held or because it cannot be, with a
	// context that lasts a second and outlives the request. nil: what was taken
	// stays taken.
	GiveBack func(context.Context)
	// OnStatus is told the status of the handler's response, once, before its
	// header is written, or when the handler returns without having written one;
	// not if it panics or hijacks the connection, and of 1xx only 101. ctx lasts
	// a second and outlives the request; the client waits meanwhile. nil: nobody
	// is told, and the handler gets the ResponseWriter as it came.
	OnStatus func(ctx context.Context, status int)
}

// Decide answers whether a request may pass. An error means that nothing could
// be decided; one that wraps stint.ErrRequest blames the request. It must not
// read the request's body nor keep the request. It is called from many
// goroutines at once.
type Decide func(r *http.Request) (Answer, error)

// By decides by one limit under one key. Where the key is "", the request is
// unlimited. l nil: one in memory. limit nil: stint.DefaultLimit. key nil: the address of
// the connection, which is the client's where no proxy stands between; see Clients.
//
// Where the Store of l is stint.Networked, By asks it through its Fallback, and so
// answers in time whatever the network does. What the Instance of l refuses is Overloaded.
func By(l *stint.Limiter, limit *stint.Limit, key Key) Decide {
	if l == nil {
		l = new(stint.Limiter)
	}
	if limit == nil {
		limit = defaultLimit
	}
	if key == nil {
		key = Clients{}.Key
	}
	l = l.WithFallback()
	return func(r *http.Request) (Answer, error) {
		k := key(r)
		if k == "" {
			return Answer{Unlimited: true}, nil
		}
		d, err := l.Allow(r.Context(), k, limit)
		if err != nil {
			return Answer{}, fmt.Errorf("limit %s: %w", limit, err)
		}
		if d.By == stint.ByInstance {
			return Answer{}, &Overloaded{RetryAfter: d.RetryAfter}
		}
		a := Answer{Decision: d}
		if d.Delay > 0 {
			// A failure has nobody to go to: the client is gone or refused, and
			// what stays charged comes back by itself.
			a.GiveBack = func(ctx context.Context) { _ = l.GiveBack(ctx, k, limit, 1) }
		}
		return a, nil
	}
}

var defaultLimit = stint.MustLimit(stint.DefaultLimit)

// Shape is d with every allowed request held until it is its turn; see
// Answer.Hold. It matters only to limits that are leaky buckets.
func Shape(d Decide) Decide {
	return func(r *http.Request) (Answer, error) {
		a, err := d(r)
		a.Hold = true
		return a, err
	}
}
