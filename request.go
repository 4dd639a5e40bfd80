package stint

import (
	"fmt"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/limittext"
)

// Ask is one limit of a request, for one key. Without a Limit it asks only about a ban: it
// refuses while Key is banned under Penalty, and takes and counts nothing.
type Ask struct {
	// Key says whom or what is counted: any bytes, from 1 to MaxKey of them.
	Key string
	// Limit is the limit under which Key is counted. nil: none, and Penalty must be
	// given.
	Limit *Limit
	// Cost is how many units the request takes. 0: one. It must not be negative, and must
	// be 0 without a Limit.
	Cost int64
	// Penalty says how Key is punished if this ask refuses. nil: not at all. Asks of
	// one request with the same Key and Penalty share a record, and together commit
	// at most one violation.
	Penalty *Penalty
	// MaxDelay is the longest Decision.Delay that the caller accepts: if it would be
	// longer, the ask refuses and takes nothing. 0: any delay. Negative: none. Only a
	// LeakyBucket, as Limit or Limiter.Instance, has delays.
	MaxDelay time.Duration
	// Peek asks how Key stands under Limit and takes nothing: it is allowed even for an
	// exhausted key, but not for one in debt (Spec.Debt). If the Limit is InFlight, or is held
	// and the Request has a Hold, it asks whether a hold of one unit would be allowed. Cost
	// must be 0.
	//
	// So a Peek does not stop a request from spending under its other limits. To spend only while
	// another limit has room, such as one that counts failures, look at that one's Remaining: with
	// Limiter.Peek before Take; or in out of Take, where all is of one instant, and then
	// Limiter.Refund the other asks if it is too little.
	Peek bool
	// OnError says how a fleet.Fallback decides the ask if its Store does not answer. Zero:
	// the OnError of the caller (a Guard or httplimit.Middleware), else Limiter.OnError.
	OnError OnError
	// By is, in a refund, the Decision.By of the ask that took the units. Take ignores
	// it.
	By Source
	// Unit is what Limit counts, such as "tokens", for reports of the answer, as in the headers of
	// httplimit.Budget. It has no effect on decisions. "": not known.
	Unit string
}

// OnError says how an ask is decided if the Store cannot decide it and a fleet.Fallback is around the
// Store, as around that of redislimit.Open. It can be set in an Ask, in a Guard or
// httplimit.Middleware, and in the Limiter; docs/reliability.md says which one wins. The zero OnError
// means not set; if none is set, it is OnErrorLocal.
type OnError uint8

// If you add one, name it in String and package rules' documentation.
const (
	OnErrorLocal OnError = iota // this instance decides by its share of the limit
	OnErrorAllow                // it is allowed
	OnErrorDeny                 // nothing is decided: Take returns the error
)

var onErrorNames = [...]string{"local", "allow", "deny"}

// String is "local", "allow" or "deny".
func (o OnError) String() string {
	if int(o) < len(onErrorNames) {
		return onErrorNames[o]
	}
	return "unknown"
}

// Request is a set of asks that are decided together: either all are charged or none.
type Request struct {
	// Asks holds from 1 to MaxAsks. No two may share both Key and Limit.ID, and
	// those that share Key and Penalty.ID must have penalties with the same numbers.
	Asks []Ask
	// At is the instant of the request, for tests and simulations. Zero: now, by the
	// Store's clock. Requests with an instant and requests without one must not use
	// the same counts.
	At time.Time
	// Hold is the identity under which the request holds units while it runs: each ask whose Limit is held
	// (Spec.Hold) makes a record, which a Holder settles, instead of being charged. The other asks are
	// charged at once. Use a HoldID for one request only. Limiter.Reserve sets it, and its Reservation
	// settles. Zero: nothing is held; an ask under an InFlight limit then says whether a hold would be
	// allowed and takes nothing, and other held limits are charged.
	Hold HoldID
	// asOf is when the turn of a waiting request came: the last 32 bits of a Memory's clock in µs,
	// at most some ms ago. The Memory decides as of then, unless the key was charged since, so that
	// the pace does not depend on when a goroutine runs. It fits into the padding after Hold. 0:
	// now.
	asOf uint32
	// HoldFor is how long the holds of this request last without renewal. 0: Spec.Hold of
	// each limit.
	HoldFor time.Duration
	// Deadline is how long a fleet.Fallback waits for its Store, and how long a Store
	// that is a fleet.DeadlineKeeper takes to answer. 0: the Fallback's own deadline,
	// and the context's.
	Deadline time.Duration
}

// MaxKey is the length of the longest key, in bytes. MaxAsks is the most asks of a request;
// it is bounded because a store does nothing else while it decides them.
const (
	MaxKey  = 4096
	MaxAsks = 500
)

// Units is how many units a takes: 0 for a Peek, without a Limit and under an unlimited one, else Cost, or 1
// if Cost is 0. It is 1 for a Peek under 0 in_flight, which refuses. Implementations of Store read Units, not
// Cost.
func (a *Ask) Units() int64 {
	switch {
	case a.Limit == nil, a.Limit.IsUnlimited():
		return 0
	case a.Peek && a.Limit.spec.Algorithm == InFlight && a.Limit.letsNothingPass():
		return 1 // no hold would be allowed
	case a.Peek:
		return 0
	}
	return max(1, a.Cost)
}

// holds reports whether a request with a Hold holds units by a.
func (a *Ask) holds() bool { return a.Limit != nil && a.Limit.IsHeld() && a.Units() > 0 }

// check returns an error that wraps ErrRequest if r breaks a rule stated with
// Request and Ask.
func (r *Request) check() error {
	if len(r.Asks) == 0 {
		return fmt.Errorf("stint: %w: it has no asks", ErrRequest)
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
	if d := r.HoldFor; d != 0 && (r.Hold == HoldID{} || !isHoldTime(d)) {
		return fmt.Errorf("stint: %w: HoldFor %s: must be from 1ms to 24h and a whole number of microseconds, of a request with a Hold", ErrRequest, d)
	}
	for i := range r.Asks {
		if err := r.Asks[i].check(); err != nil {
			return err
		}
	}
	return r.checkPairs()
}

// checkPairs looks for asks that conflict. A few are compared with each other; many are
// looked up in a map.
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
			if limits && a.Limit.id == b.Limit.id && !a.Limit.IsUnlimited() {
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
			if _, known := seen[k]; known && !a.Limit.IsUnlimited() {
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
	return fmt.Errorf("stint: %w: two asks about key %q under one limit %q (%s)", ErrRequest, limittext.Clip(a.Key), a.Limit.spec.Name, a.Limit.terms)
}

func (a *Ask) conflict() error {
	return fmt.Errorf("stint: %w: key %q has two penalties named %q with different numbers", ErrRequest, limittext.Clip(a.Key), a.Penalty.spec.Name)
}

// sharesRecord reports whether a and b share a record.
func (a *Ask) sharesRecord(b *Ask) bool {
	return a.Penalty != nil && b.Penalty != nil && a.Penalty.id == b.Penalty.id && a.Key == b.Key
}

func (a *Ask) check() error {
	if err := checkKey(a.Key); err != nil {
		return err
	}
	switch {
	case a.Limit == nil && a.Penalty == nil:
		return fmt.Errorf("stint: %w: key %q has neither a limit nor a penalty", ErrRequest, limittext.Clip(a.Key))
	case a.Limit == nil && a.Cost != 0:
		return fmt.Errorf("stint: %w: cost %d for key %q: without a limit, nothing is taken", ErrRequest, a.Cost, limittext.Clip(a.Key))
	case a.Limit != nil && a.Limit.id == "":
		return fmt.Errorf("stint: %w: limit for key %q was not made by ParseLimit or NewLimit", ErrRequest, limittext.Clip(a.Key))
	}
	if a.Cost < 0 {
		return fmt.Errorf("stint: %w: cost %d: must not be negative", ErrRequest, a.Cost)
	}
	if a.Peek && a.Cost != 0 {
		return fmt.Errorf("stint: %w: cost %d: a peek takes nothing, so its cost must be 0", ErrRequest, a.Cost)
	}
	if a.Penalty != nil && a.Penalty.id == "" {
		return fmt.Errorf("stint: %w: penalty for key %q was not made by NewPenalty", ErrRequest, limittext.Clip(a.Key))
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
