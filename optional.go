package stint

import (
	"context"
	"fmt"
)

// What a Store may do beside Take is in optional interfaces: BatchTaker, Refunder,
// Resetter, Violator and Inspector. A Store that wraps another one, as those of package
// fleet do, has a method Unwrap() Store that returns it, and implements only what it
// changes. So callers do not assert an interface by themselves: they use As, or a
// function of this file.

// As finds the first of s, the Store that its Unwrap returns, and so on, that is a T: an
// optional interface, or the type of a Store. So a wrapper that does not implement an
// interface does not hide its Store's. It is not for interfaces that a wrapper's own Take
// has to agree with, such as BatchTaker: see TakeBatch.
func As[T any](s Store) (t T, ok bool) {
	for s != nil {
		if t, ok = s.(T); ok {
			return t, true
		}
		w, wraps := s.(interface{ Unwrap() Store })
		if !wraps {
			break
		}
		s = w.Unwrap()
	}
	return t, false
}

// unsupported is the error of a Store that lacks what an operation needs.
func unsupported(operation string) error {
	return fmt.Errorf("stint: %s: %w", operation, ErrUnsupported)
}

// BatchTaker is a Store that decides several independent requests in one go:
// answers[i] answers rs[i], which have the same At. Of requests that share a key,
// the earlier is decided first.
type BatchTaker interface {
	TakeBatch(ctx context.Context, rs []Request, answers []Answer)
}

// TakeBatch decides several independent requests by s: in one go if s is a BatchTaker,
// else one by one. What s wraps is not asked for it, for that would pass by the Take of s.
func TakeBatch(ctx context.Context, s Store, rs []Request, answers []Answer) {
	if b, ok := s.(BatchTaker); ok {
		b.TakeBatch(ctx, rs, answers)
		return
	}
	for i := range rs {
		a := &answers[i]
		a.Decision, a.Err = s.Take(ctx, &rs[i], a.Each)
	}
}

// Refunder is a Store that can return units: for each ask, its Units go back
// to Key under Limit, at once, never below unused. What came newest goes first. A
// layer that decides by itself at times, as fleet.Fallback does, returns them by Ask.By to
// where they were taken. All asks have a Limit and take units.
type Refunder interface {
	Refund(ctx context.Context, r *Request) error
}

// Refund returns units by the Refunder that s is or wraps. The error wraps
// ErrUnsupported if there is none.
func Refund(ctx context.Context, s Store, r *Request) error {
	if f, ok := As[Refunder](s); ok {
		return f.Refund(ctx, r)
	}
	return unsupported("refund")
}

// Resetter is a Store that can forget: for each ask, Key becomes unused under
// Limit (where that is not nil), and violations and bans of Key under Penalty
// are lifted (where that is not nil).
type Resetter interface {
	Reset(ctx context.Context, r *Request) error
}

// Reset forgets by the Resetter that s is or wraps. The error wraps ErrUnsupported if
// there is none.
func Reset(ctx context.Context, s Store, r *Request) error {
	if f, ok := As[Resetter](s); ok {
		return f.Reset(ctx, r)
	}
	return unsupported("reset")
}

// Violator is a Store that takes violations which the caller has found, such as a
// response of 401: for each ask, one violation of Key under Penalty, which must
// not be nil. Limit is not looked at, and a Cost of n, from 2 on, is n violations one
// after another at one instant, of which those after a ban do not count. Of asks that
// share Key and Penalty, the first counts. Where a ban of one of them runs already,
// that ban answers for all and nothing is counted. The Decision is that of
// Limiter.Violate; its Key is that of the longest ban, else of the
// gravest sentence, and of equals that of the ask that comes first.
type Violator interface {
	Violate(ctx context.Context, r *Request) (Decision, error)
}

// Violate counts violations by the Violator that s is or wraps. The error wraps
// ErrUnsupported if there is none.
func Violate(ctx context.Context, s Store, r *Request) (Decision, error) {
	if f, ok := As[Violator](s); ok {
		return f.Violate(ctx, r)
	}
	return Decision{}, unsupported("violate")
}

// Inspector is a Store that can be looked at, by its own clock: what it keeps of requests
// with an instant is not shown. Nothing changes by it.
//
// Inspect says of each limit what is kept of key under it, in their order. Limits that
// share a count have one Stored. Record is how key stands under p. Banned calls yield for
// each key under each penalty whose ban runs, in no order, none twice, until yield
// returns false, which is no error. A ban that is imposed or lifted meanwhile may
// or may not be there. yield may use the Store. An error means that there may be
// more.
type Inspector interface {
	Inspect(ctx context.Context, key string, limits []*Limit) ([]Stored, error)
	Record(ctx context.Context, key string, p *Penalty) (Record, error)
	Banned(ctx context.Context, yield func(Record) bool) error
}

// Networked is a Store that is reached over a network, and so may be slow or away.
//
// WithFallback returns a Store over the same counts that answers in time whatever the
// network does, by this instance's share of the limits where it has to: the same one at
// each call, ended when the Networked is. Guards and package httplimit ask by it. A
// wrapper of a Networked is none by itself: it belongs around what WithFallback returns.
type Networked interface {
	Store
	WithFallback() Store
}
