package stint

import (
	"context"
	"log/slog"
	"slices"
	"strings"
)

type onErrorKey struct{}

// WithOnError returns a copy of ctx in which asks without an OnError use o instead of the Limiter's, for
// packages such as httplimit. The zero o changes nothing. Handlers must not get the copy.
func (internals) WithOnError(ctx context.Context, o OnError) context.Context {
	if o == OnErrorLocal {
		return ctx
	}
	return context.WithValue(ctx, onErrorKey{}, o)
}

// onErrorOf is the OnError of asks that have none.
func (l *Limiter) onErrorOf(ctx context.Context) OnError {
	if o, ok := ctx.Value(onErrorKey{}).(OnError); ok {
		return o
	}
	return l.OnError
}

// withOnError sets the OnError of asks that have none.
func withOnError(asks []Ask, o OnError) {
	if o == OnErrorLocal {
		return
	}
	for i := range asks {
		if asks[i].OnError == OnErrorLocal {
			asks[i].OnError = o
		}
	}
}

// eachWithOnError returns rs with o as the OnError of asks that have none. It copies,
// because rs belongs to the caller.
func eachWithOnError(rs []Request, o OnError) []Request {
	if o == OnErrorLocal {
		return rs
	}
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i].Asks = slices.Clone(rs[i].Asks)
		withOnError(rs[i].Asks, o)
	}
	return rs
}

// orAllow is the answer to r, which the Store did not decide because of why: r is allowed if the
// OnError of ctx or of l is OnErrorAllow, and no ask denies. A fleet.Fallback normally answers before;
// other Stores do not.
func (l *Limiter) orAllow(ctx context.Context, r *Request, out []Decision, why error) (Decision, error) {
	denies := func(a Ask) bool { return a.OnError == OnErrorDeny }
	if l.onErrorOf(ctx) != OnErrorAllow || !r.At.IsZero() || !undecided(ctx, why) || slices.ContainsFunc(r.Asks, denies) {
		return Decision{}, why
	}
	l.allowed.Log(slog.LevelWarn, "stint: the store does not decide; OnError decides instead", why, "key", strings.Clone(r.Asks[0].Key))
	if out == nil {
		out = make([]Decision, len(r.Asks))
	}
	for i := range r.Asks {
		out[i] = internals{}.ByPolicy(&r.Asks[i])
	}
	return Strictest(out), nil
}

// ByPolicy is the answer to a under OnErrorAllow.
func (internals) ByPolicy(a *Ask) Decision {
	d := Decision{Allowed: true, Outcome: Allowed, Limit: a.Limit, Key: a.Key, By: ByPolicy}
	if a.Limit != nil {
		d.Remaining = a.Limit.Capacity()
	}
	return d
}
