package stint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Store keeps the counts and decides. Memory and redislimit.Store are Stores;
// so are layers around them. Users call a Limiter, which checks their requests.
//
// Take decides r. If out is not nil, it has a place for each ask, and Take fills in the
// answer to each, unless a running ban refuses the whole request: then Outcome is Banned,
// Limit is nil, and out is unchanged. The answer to an ask without a Limit allows, and has only a
// Key. The returned Decision is that of Strictest or, after a violation, as Decision.Penalty says.
// After an error, nothing was decided; the request can have been charged only if a store was asked
// and did not answer.
//
// Under a Limit whose amount is 0 no unit fits, so a Cost of 1 is above its capacity. An unlimited
// Limit takes no Units, and its Remaining is Unlimited, also if two asks are about it.
//
// Callers have checked r, as a Limiter does. They do not use r, its asks and out until
// Take returns, and Take does not keep them. All its methods, also those of optional interfaces,
// may be called from many goroutines at once. A Store decides as if requests came one after
// another (package limittest tests that).
//
// To count in a database of your own, do not implement Store: package store makes one from
// a method that changes rows of bytes.
type Store interface {
	Take(ctx context.Context, r *Request, out []Decision) (Decision, error)
}

// Answer is the answer to one of several independent requests.
type Answer struct {
	Decision
	// Each holds the answer to each ask, like out of Store.Take. The caller provides the
	// space, or leaves it nil.
	Each []Decision
	// Err is not nil if nothing could be decided.
	Err error
}

var (
	// ErrRequest means that the request is malformed: a mistake of the caller, status 400
	// over HTTP.
	ErrRequest = errors.New("bad request")
	// ErrFull means that the store cannot charge a request: a Memory is full of keys
	// that are exhausted or banned, or a server is out of memory or cannot save. The
	// store still decides requests that it refuses.
	ErrFull = errors.New("the store is full")
	// ErrUnsupported means that the Store lacks the optional interface needed.
	ErrUnsupported = errors.New("not supported by this store")
)

// errNotCharged is fleet.ErrNotCharged.
var errNotCharged = errors.New("nothing was charged")

// A Store may implement optional interfaces: BatchTaker, Refunder, Resetter, Violator and
// Inspector. A Store that wraps another one, as those of package fleet do, has a method
// Unwrap() Store that returns it, and implements only what it changes. So callers do not
// use type assertions; they use As, or a function of this file.

// As finds the first of s, the Store that its Unwrap returns, and so on, that is a T: an
// optional interface, or the type of a Store. So a wrapper that does not implement an
// interface does not hide its Store's. Do not use As for an interface that would bypass the
// wrapper's own Take, such as BatchTaker: see TakeBatch.
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

func unsupported(operation string) error {
	return fmt.Errorf("stint: %s: %w", operation, ErrUnsupported)
}

// BatchTaker is a Store that decides several independent requests in one go: answers[i]
// answers rs[i]. All have the same At. Requests that share a key are decided in their
// order.
type BatchTaker interface {
	// TakeBatch fills in answers, which has an element for each request.
	TakeBatch(ctx context.Context, rs []Request, answers []Answer)
}

// TakeBatch decides several independent requests by s: in one go if s is a BatchTaker,
// else one by one. It does not look for a BatchTaker that s wraps, because that would
// bypass the Take of s.
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

// Refunder is a Store that can return units: for each ask, its Units go back to Key under
// Limit at once. The newest units go first, and no more than are in use. A layer that
// sometimes decides by itself, as fleet.Fallback does, returns them to where they were
// taken: see Ask.By. All asks have a Limit and take units.
type Refunder interface {
	// Refund returns an error unless all units are known to be back.
	Refund(ctx context.Context, r *Request) error
}

// Refund returns units by the Refunder that s is or wraps: for each ask its Units, to where
// they were taken (Ask.By). Asks that took nothing, because they are ByPolicy or have no
// Units, are left out. The error wraps ErrUnsupported if there is no Refunder.
func Refund(ctx context.Context, s Store, r *Request) error {
	tookNothing := func(a Ask) bool { return a.By == ByPolicy || a.Units() == 0 }
	if slices.ContainsFunc(r.Asks, tookNothing) {
		took := *r
		took.Asks = slices.DeleteFunc(slices.Clone(r.Asks), tookNothing)
		r = &took
	}
	if len(r.Asks) == 0 {
		return nil
	}
	if f, ok := As[Refunder](s); ok {
		return f.Refund(ctx, r)
	}
	return unsupported("refund")
}

// Resetter is a Store that can forget: for each ask, the count of Key under Limit, if that
// is not nil, and the violations and the ban of Key under Penalty, if that is not nil.
type Resetter interface {
	// Reset returns an error unless everything is known to be forgotten.
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

// Violator is a Store that counts violations which the caller has found, such as a
// response of 401: for each ask, one violation of Key under Penalty, which must not be
// nil. Limit is ignored. A Cost of 2 or more counts as that many violations at one instant;
// those after a ban do not count. Of asks with the same Key and Penalty, only the first
// counts. If one of the keys is banned already, nothing is counted, and that ban is the
// answer. The Decision is as Limiter.Violate describes it, for the key with the longest
// ban, else with the gravest outcome; of equals, for the first ask.
type Violator interface {
	Violate(ctx context.Context, r *Request) (Decision, error)
}

// Violate counts violations by the Violator that s is or wraps. The error wraps
// ErrUnsupported if there is none.
func Violate(ctx context.Context, s Store, r *Request) (Decision, error) {
	if err := hasEnded(ctx); err != nil {
		return Decision{}, err
	}
	if f, ok := As[Violator](s); ok {
		return f.Violate(ctx, r)
	}
	return Decision{}, unsupported("violate")
}

// Inspector is a Store that shows what it keeps, by its own clock, so without the counts of
// requests with an instant. Nothing changes.
//
// Inspect returns the state of key under each limit, in their order; limits that share a
// count have equal answers. Record returns the record of key under p. Banned calls yield
// for each running ban, once and in no order, until yield returns false, which is not an
// error. It may miss a ban that is imposed or lifted meanwhile. yield may use the Store.
// After an error, there may be more bans.
type Inspector interface {
	Inspect(ctx context.Context, key string, limits []*Limit) ([]Stored, error)
	Record(ctx context.Context, key string, p *Penalty) (Record, error)
	Banned(ctx context.Context, yield func(Record) bool) error
}

// Stored is what a Store keeps for a key under a limit. The zero Stored means that nothing
// counts any more.
type Stored struct {
	// Held reports whether units are in use.
	Held bool
	// Idle is how long ago the key was last charged under the limit. Refused requests,
	// peeks and refunds are not charges.
	Idle time.Duration
	// Expires is how long the Store keeps the count if no more requests come: at least
	// ResetAfter of the charged limit.
	Expires time.Duration
}

// Networked is a Store behind a network, so it may be slow or unreachable.
//
// WithFallback returns a Store over the same counts that answers in time whatever the
// network does: if need be, it decides by this instance's share of the limits. Each call
// returns the same Store, which ends with the Networked. Guards and package httplimit use
// it. A wrapper of a Networked is not Networked: wrap the Store that WithFallback returns.
type Networked interface {
	Store
	WithFallback() Store
}
