package stint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// Ask is one limit that a request faces, under one key. Without a Limit it asks for a
// ban alone: it refuses while one runs that Penalty has imposed on Key, takes nothing and
// counts nothing.
type Ask struct {
	// Key says whom or what is counted: any bytes, from 1 to MaxKey of them.
	Key string
	// Limit is what Key is counted under. nil: nothing is, and Penalty must be given.
	Limit *Limit
	// Cost is how many units the request takes. 0: one. It must not be negative, and
	// must be 0 where there is no Limit.
	Cost int64
	// Penalty is what becomes of the key if this ask refuses; nil: nothing.
	// Asks of one request that share Key and Penalty share one record, and
	// together commit at most one violation.
	Penalty *Penalty
	// MaxDelay is, of a LeakyBucket, the longest Decision.Delay that the caller
	// waits out: where it would be longer, the ask refuses and takes nothing. 0: any
	// delay. Negative: none. Other limits have no delay and do not look at it, but
	// Limiter.Instance does.
	MaxDelay time.Duration
	// Peek asks how Key stands under Limit and takes nothing: even an exhausted key
	// allows it. Cost must be 0 then.
	Peek bool
	// OnError is what becomes of the ask where a Fallback has to do without its
	// Store.
	OnError OnError
	// By is, of units that are refunded, who had decided about them: the
	// Decision.By of their ask. Take does not look at it.
	By Source
}

// Request is a set of asks that are decided together: all are charged, or none.
type Request struct {
	// Asks holds from 1 to MaxAsks. No two may share both Key and Limit.ID, and
	// those that share Key and Penalty.ID must have the same numbers.
	Asks []Ask
	// At is the instant of the request, for tests and simulations. Where it is
	// zero, the store's own clock is read, which is what everyone else wants. A
	// request with an instant must not meet counts made without one.
	At time.Time
	// Deadline is how long a Fallback waits for its Store, and how long a Store
	// that is a DeadlineKeeper takes to answer. 0: as the Fallback says, and as the context.
	Deadline time.Duration
}

// MaxKey is the length of the longest key, in bytes, and MaxAsks how many asks a
// request may have: while a store decides them, it does nothing else.
const (
	MaxKey  = 4096
	MaxAsks = 500
)

// Units is how many units a takes: Cost, 1 where that is 0, and none by a Peek or without
// a Limit. A Store, or a layer around one, reads this and not Cost.
func (a *Ask) Units() int64 {
	if a.Peek || a.Limit == nil {
		return 0
	}
	return max(1, a.Cost)
}

// SetUnits makes a take n units, and peek where n is 0.
func (a *Ask) SetUnits(n int64) { a.Cost, a.Peek = n, n == 0 }

// A Store keeps the counts and decides. Memory and redislimit.Store are Stores;
// so are layers around them. Users call a Limiter, which checks their requests.
//
// Take decides r. Where out is not nil, it has a place for each ask, which Take
// fills with that ask's own answer, unless a running ban answered for all: then
// Outcome is Banned, Limit is nil, and out is left alone. An ask without a Limit has
// an answer that allows and has a Key and nothing else, and the answer to the whole is
// that of another one, if there is any (see Strictest). An error means that
// nothing could be decided; the request may have been charged only if it was
// sent to a store that did not answer.
//
// The callers of a Store have checked r with Check and keep r, its asks and out
// to themselves until Take returns. Take does not keep them. A Store may be
// used from many goroutines at once, and must decide as if all its requests came
// one after another (package limittest tests that).
type Store interface {
	Take(ctx context.Context, r *Request, out []Decision) (Decision, error)
}

// Answer is the answer to one of several independent requests.
type Answer struct {
	Decision
	// Each holds the answer of each ask, in the same way as Store.Take's out.
	// Whoever asks provides the space, or leaves it nil.
	Each []Decision
	// Err is not nil where nothing could be decided.
	Err error
}

var (
	// ErrRequest is what every error about a malformed request wraps: the
	// caller's mistake, to be answered by 400 over HTTP.
	ErrRequest = errors.New("bad request")
	// ErrFull means that the store takes nothing of what a request would charge: a Memory
	// is full of keys that are exhausted or banned, a server is out of memory or cannot
	// save. Requests that the store refuses anyway are refused still.
	ErrFull = errors.New("memory store is full of exhausted keys")
	// ErrBroken means that something else than a count lies in the store where one
	// should: it is about some keys, and other requests can be decided.
	ErrBroken = errors.New("something else lies where a count should")
	// ErrNotCharged means that nothing was charged, for certain: the request did not
	// leave, or was refused as a whole. Of other errors of a Store that is asked
	// over a network, nobody knows.
	ErrNotCharged = errors.New("nothing was charged")
	// ErrUnsupported means that the Store lacks the optional interface needed.
	ErrUnsupported = errors.New("not supported by this store")
)

// Check returns an error that wraps ErrRequest if r breaks a rule stated with
// Request and Ask.
func (r *Request) Check() error {
	if len(r.Asks) == 0 {
		return fmt.Errorf("stint: %w: it asks nothing", ErrRequest)
	}
	if len(r.Asks) > MaxAsks {
		return fmt.Errorf("stint: %w: it has %d asks: at most %d", ErrRequest, len(r.Asks), MaxAsks)
	}
	if !r.At.IsZero() {
		if s := r.At.Unix(); s < 0 || s >= algo.Exact/1_000_000 {
			at := time.Unix(s, int64(r.At.Nanosecond())).UTC() // r.At itself would escape, and r with it
			return fmt.Errorf("stint: %w: instant %s: must be from 1970 to 2112", ErrRequest, at)
		}
	}
	for i := range r.Asks {
		if err := r.Asks[i].check(); err != nil {
			return err
		}
	}
	return r.checkPairs()
}

// checkPairs looks for asks that do not go together. A few are compared with each
// other; many are looked up.
func (r *Request) checkPairs() error {
	if len(r.Asks) > 16 {
		return r.checkMany()
	}
	for i := range r.Asks {
		for j := range i {
			a, b := &r.Asks[i], &r.Asks[j]
			limits := a.Limit != nil && b.Limit != nil && a.Limit.counted.Salt == b.Limit.counted.Salt // of equal IDs, salts are equal
			if !limits && (a.Penalty == nil || b.Penalty == nil) || a.Key != b.Key {
				continue
			}
			if limits && a.Limit.id == b.Limit.id {
				return a.duplicate()
			}
			if a.sharesRecord(b) && a.Penalty.counted.Plan != b.Penalty.counted.Plan {
				return a.conflict()
			}
		}
	}
	return nil
}

// entryKey is a key under a limit or a penalty.
type entryKey struct{ key, id string }

func (r *Request) checkMany() error {
	seen := make(map[entryKey]*Penalty, 2*len(r.Asks)) // nil: the entry is a limit's
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Limit != nil {
			k := entryKey{a.Key, a.Limit.id}
			if _, known := seen[k]; known {
				return a.duplicate()
			}
			seen[k] = nil
		}
		if a.Penalty == nil {
			continue
		}
		k := entryKey{a.Key, a.Penalty.id}
		if p := seen[k]; p != nil && a.Penalty.counted.Plan != p.counted.Plan {
			return a.conflict()
		}
		seen[k] = a.Penalty
	}
	return nil
}

func (a *Ask) duplicate() error {
	return fmt.Errorf("stint: %w: key %q is asked twice under one limit %q (%s)", ErrRequest, clip(a.Key), a.Limit.spec.Name, a.Limit.terms)
}

func (a *Ask) conflict() error {
	return fmt.Errorf("stint: %w: key %q has two penalties named %q with different numbers", ErrRequest, clip(a.Key), a.Penalty.spec.Name)
}

// sharesRecord tells whether a and b are punished together.
func (a *Ask) sharesRecord(b *Ask) bool {
	return a.Penalty != nil && b.Penalty != nil && a.Penalty.id == b.Penalty.id && a.Key == b.Key
}

func (a *Ask) check() error {
	if err := checkKey(a.Key); err != nil {
		return err
	}
	switch {
	case a.Limit == nil && a.Penalty == nil:
		return fmt.Errorf("stint: %w: neither a limit nor a penalty for key %q", ErrRequest, clip(a.Key))
	case a.Limit == nil && a.Cost != 0:
		return fmt.Errorf("stint: %w: cost %d without a limit for key %q: without one, nothing is taken", ErrRequest, a.Cost, clip(a.Key))
	case a.Limit != nil && a.Limit.id == "":
		return fmt.Errorf("stint: %w: limit for key %q was not made by ParseLimit or NewLimit", ErrRequest, clip(a.Key))
	}
	if a.Cost < 0 {
		return fmt.Errorf("stint: %w: cost %d: must not be negative", ErrRequest, a.Cost)
	}
	if a.Peek && a.Cost != 0 {
		return fmt.Errorf("stint: %w: cost %d: a peek takes nothing, so its cost must be 0", ErrRequest, a.Cost)
	}
	if a.Penalty != nil && a.Penalty.id == "" {
		return fmt.Errorf("stint: %w: penalty for key %q was not made by NewPenalty", ErrRequest, clip(a.Key))
	}
	return nil
}

func checkKey(key string) error {
	if key == "" {
		return fmt.Errorf("stint: %w: empty key", ErrRequest)
	}
	if len(key) > MaxKey {
		return fmt.Errorf("stint: %w: key of %d bytes: at most %d", ErrRequest, len(key), MaxKey)
	}
	return nil
}
