package stint

import (
	"math"
	"slices"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// Never is the RetryAfter of a request that is not allowed however long it waits, because
// its cost is above the limit's capacity (which may be 0). It is the longest Duration.
const Never time.Duration = math.MaxInt64

// Outcome is the kind of answer to a request. Limited, Warned and Banned are refusals. The
// zero Outcome means that nothing was decided.
type Outcome uint8

const (
	Allowed Outcome = 1 + iota // may pass, perhaps after a Decision.Delay
	Limited                    // refused by a limit
	Warned                     // refused, and close to a ban; see Penalty
	Banned                     // refused by a ban, which ran already or begins with this refusal
)

// String is "allowed", "limited", "warned", "banned" or "undecided".
func (o Outcome) String() string {
	switch o {
	case Allowed:
		return "allowed"
	case Limited:
		return "limited"
	case Warned:
		return "warned"
	case Banned:
		return "banned"
	}
	return "undecided"
}

// Source is who decided. The zero Source is the Store that counts for all.
type Source uint8

const (
	ByStore    Source = iota // the Store
	ByLocal                  // this instance alone, without the Store; see fleet.Fallback
	ByPolicy                 // no count at all: OnErrorAllow
	ByLease                  // this instance, by units that the Store charged ahead; see fleet.Leases
	ByInstance               // this instance, by its own limit; see Limiter.Instance
)

// String is "store", "local", "policy", "lease" or "instance".
func (s Source) String() string {
	switch s {
	case ByStore:
		return "store"
	case ByLocal:
		return "local"
	case ByPolicy:
		return "policy"
	case ByLease:
		return "lease"
	case ByInstance:
		return "instance"
	}
	return "unknown"
}

// Decision is the answer to a Request, or to one of its Asks. The zero Decision
// allows nothing.
type Decision struct {
	// Allowed is Outcome == stint.Allowed. In the Decision of one Ask it says
	// that this limit would have allowed the request; it was charged only if
	// the request as a whole was allowed.
	Allowed bool
	Outcome Outcome
	// Busy says that a refusal is due to units that others hold. RetryAfter is then only a
	// hint (Spec.Retry): there is room as soon as others settle. Such a refusal is not a
	// violation.
	Busy bool
	// By is who decided: ByStore, unless this instance did.
	By Source
	// Remembered says that this instance repeated an earlier refusal of the Store without
	// asking it; see fleet.Denials. By is then who refused originally. Refusals by a pause of
	// this Limiter are Remembered, too. The request is refused for at least RetryAfter:
	// another of its limits may refuse for longer by now. Remaining and Held are those of the
	// earlier refusal.
	Remembered bool
	// Limit is the limit that decided; nil if a running ban or a pause did, or if no ask
	// has one.
	Limit *Limit
	// Key is the key that was counted, or that is banned or paused.
	Key string
	// Remaining is how many units, in requests of cost 1, would still be
	// allowed at the same instant: Unlimited under an unlimited Limit.
	Remaining int64
	// Held is how many units requests in flight hold under Limit, including this one if it
	// was allowed; at most 2^52. Remaining does not include them.
	Held int64
	// RetryAfter is 0 if allowed, else the shortest wait after which the same
	// request would be allowed if no other came; Never if no wait is long enough. While
	// a ban runs, it is not before the ban's end.
	RetryAfter time.Duration
	// ResetAfter is the time until the key is as if unused, if no request comes.
	ResetAfter time.Duration
	// Delay is how long to delay an allowed request so that requests leave at an even pace.
	// Only a LeakyBucket has delays. A Request has the longest Delay of its asks.
	Delay time.Duration
	// Penalty is the penalty under which this refusal of Key counted as a violation, or
	// which imposed the ban. nil: none. Of several penalties and keys, these are the ones with the
	// gravest outcome; of several bans, those of the longest; of equals, those of the first ask.
	// Limit is then the strictest of the limits that led to it, and RetryAfter the longest of all.
	Penalty *Penalty
	// Violations is how many violations of Key count under Penalty, this one
	// among them. The violation that imposes a ban is the BanAfter-th, and after it
	// the count starts again. It is 0 if a ban ran already, because then nothing is
	// counted. In an answer that fleet.Denials remembers, or one ByLocal, it is what this
	// instance knows: the last count of the Store, and its own refusals since then.
	Violations int64
	// BanLeft is how long the ban lasts from now, if Outcome is Banned.
	BanLeft time.Duration
}

// Strictest returns the answer to a request, from the answers to its asks: the denial with
// the longest RetryAfter; without a denial, the answer with the least Remaining; the first
// of equals. An answer without a Limit is chosen only if none has one. The Delay is the
// longest of all. Strictest is for implementations of Store. Without answers, it returns
// the zero Decision.
func Strictest(each []Decision) Decision {
	if len(each) == 0 {
		return Decision{}
	}
	d := &each[0]
	delay := d.Delay
	for i := 1; i < len(each); i++ {
		e := &each[i]
		delay = max(delay, e.Delay)
		switch {
		case d.Allowed != e.Allowed:
			if d.Allowed {
				d = e
			}
		case d.Allowed && (d.Limit == nil) != (e.Limit == nil):
			if d.Limit == nil {
				d = e
			}
		case d.Allowed && e.Remaining < d.Remaining, !d.Allowed && e.RetryAfter > d.RetryAfter:
			d = e
		}
	}
	whole := *d
	whole.Delay = delay
	return whole
}

// Used is how many units of Limit are in use: its capacity less Remaining and Held. A part of a unit
// counts as one. If more is in use than fits, because the limit was made smaller or is in debt, Used and
// Held together are the capacity. It is 0 without a Limit. In a decision ByLocal, Remaining is that of
// this instance's share, and the shares of others count as used.
func (d *Decision) Used() int64 {
	if d.Limit == nil {
		return 0
	}
	return max(0, d.Limit.Capacity()-d.Remaining-d.Held)
}

// set fills in d, which must be zero, from a verdict.
func (d *Decision) set(key string, limit *Limit, v *algo.Verdict) {
	d.Key, d.Limit = key, limit
	d.Remaining = v.Remaining
	if limit.IsUnlimited() {
		d.Remaining = Unlimited
	}
	d.ResetAfter = algo.Duration(v.Reset)
	d.Held, d.Busy = v.Held, v.Busy
	if v.Allowed {
		d.Allowed, d.Outcome = true, Allowed
		d.Delay = algo.Duration(v.Delay)
		return
	}
	d.Outcome, d.RetryAfter = Limited, algo.Duration(v.Retry)
}

// punished is the index of the first ask in r with the key and penalty of d, the answer to r;
// -1: none.
func (d *Decision) punished(r *Request) int {
	if d.Penalty == nil {
		return -1
	}
	return slices.IndexFunc(r.Asks, func(a Ask) bool { return a.Penalty == d.Penalty && a.Key == d.Key })
}

// blamed is the answer to asks after a violation of by's key was counted under its penalty: the
// strictest of the refusals that led to it, with the longest wait of all answers in each. It is
// not punished yet. The zero Decision: no refusal led to it.
func blamed(asks []Ask, each []Decision, by *Ask) (d Decision) {
	var wait time.Duration
	for i := range asks {
		a, e := &asks[i], &each[i]
		wait = max(wait, e.RetryAfter)
		if !e.Allowed && !e.Busy && a.Key == by.Key && a.Penalty != nil && a.Penalty.counted.Salt == by.Penalty.counted.Salt &&
			(d.Limit == nil || e.RetryAfter > d.RetryAfter) {
			d = *e
		}
	}
	if d.Limit != nil {
		d.RetryAfter = wait
	}
	return d
}

// punish adds the consequence of a counted violation under p to d, which is a refusal.
func (d *Decision) punish(p *Penalty, came algo.Punishment) {
	if came.Violations == 0 {
		return
	}
	d.Outcome = Outcome(came.Sentence) + Limited - Outcome(algo.Limited)
	d.Penalty, d.Violations, d.BanLeft = p, came.Violations, algo.Duration(came.BanLeft)
	d.RetryAfter = max(d.RetryAfter, d.BanLeft)
}

// punishment is the inverse of punish.
func (d *Decision) punishment() algo.Punishment {
	sentence := algo.Sentence(d.Outcome + Outcome(algo.Limited) - Limited)
	return algo.Punishment{Sentence: sentence, Violations: d.Violations, BanLeft: d.BanLeft.Microseconds()}
}
