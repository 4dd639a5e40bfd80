package stint

import (
	"math"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// Never is the RetryAfter of a request that will not be allowed however long it
// waits, because its cost is above the limit's capacity. It is the longest
// Duration.
const Never time.Duration = math.MaxInt64

// Outcome is what became of a request. Limited, Warned and Banned are refusals.
// The zero Outcome means that nothing was decided.
type Outcome uint8

const (
	Allowed Outcome = 1 + iota
	Limited
	Warned // refused, and close to a ban; see Penalty
	Banned // refused without asking the limits, or just banned
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

// Decision is the answer to a Request, or to one of its Asks. The zero Decision
// allows nothing.
type Decision struct {
	// Allowed is Outcome == stint.Allowed. In the Decision of one Ask it says
	// that this limit would have allowed the request; it was charged only if
	// the request as a whole was allowed.
	Allowed bool
	Outcome Outcome
	// Limit is the limit that decided; nil where a running ban answered.
	Limit *Limit
	// Key is the key that the limit counts; of a running ban, whom it hit.
	Key string
	// Remaining is how many units, in requests of cost 1, would still be
	// allowed at the same instant.
	Remaining int64
	// RetryAfter is 0 if allowed, else the shortest wait after which the same
	// request would be allowed if nothing else came; Never if it would not. While a
	// ban runs that is the end of the ban, or later where the limits refuse for longer.
	RetryAfter time.Duration
	// ResetAfter is the wait until the key is as if unused, if nothing came.
	ResetAfter time.Duration
	// Delay is, of an allowed request under a LeakyBucket, how long to hold it
	// so that requests leave at an even pace. Of a whole Request it is the
	// longest of its asks.
	Delay time.Duration
	// BanLeft is how long the ban still runs, if Outcome is Banned, and Penalty
	// is what imposed it. Of several bans it is the longest, and of equally
	// long ones that of the ask that comes first.
	BanLeft time.Duration
	Penalty *Penalty
	// By is who decided. It is ByStore unless a Fallback had to do without, or a lease
	// served.
	By Source
}

// Strictest is the answer to a whole request, made of the answers of its asks:
// of the denials the one with the longest RetryAfter, else the one with the
// least Remaining; the first of equals. Its Delay is the longest of all. It is
// for those who implement a Store. Strictest of nothing is the zero Decision.
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
		case d.Allowed && e.Remaining < d.Remaining, !d.Allowed && e.RetryAfter > d.RetryAfter:
			d = e
		}
	}
	whole := *d
	whole.Delay = delay
	return whole
}

// DecisionOf puts a verdict in a caller's words, for the stores of this module.
func DecisionOf(a *Ask, v algo.Verdict) (d Decision) {
	d.tell(a.Key, a.Limit, &v)
	return d
}

// tell makes d, which must be zero, of a verdict.
func (d *Decision) tell(key string, limit *Limit, v *algo.Verdict) {
	d.Key, d.Limit = key, limit
	d.Remaining = v.Remaining
	d.ResetAfter = algo.Duration(v.Reset)
	if v.Allowed {
		d.Allowed, d.Outcome = true, Allowed
		d.Delay = algo.Duration(v.Delay)
		return
	}
	d.Outcome, d.RetryAfter = Limited, Never
	if v.Retry != algo.Never {
		d.RetryAfter = algo.Duration(v.Retry)
	}
}

// Punish makes d, a refusal, as grave as a sentence under p, for the stores of
// this module. left is how long the ban runs, if it is one.
func (d *Decision) Punish(p *Penalty, s algo.Sentence, left time.Duration) {
	d.Outcome = max(d.Outcome, Outcome(s)+Limited-Outcome(algo.Limited))
	if s == algo.Banned && left > d.BanLeft {
		d.BanLeft, d.Penalty = left, p
		d.RetryAfter = max(d.RetryAfter, left)
	}
}
