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
	// Limit is the limit that decided; nil where a running ban answered, or no limit
	// was asked.
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
	// Penalty is what this refusal was counted under as a violation, or what
	// imposed the ban. nil: the refusal is no violation of any penalty. Of
	// several penalties it is the one with the gravest outcome, of bans the
	// longest, and of equals that whose ask comes first.
	Penalty *Penalty
	// Violations is how many violations of the key count so far under Penalty,
	// this one among them. It is never above Penalty's BanAfter: the violation
	// that imposes a ban is told as that, and then the count starts again. It is 0
	// where a ban ran already, for then nothing is counted. An answer that a
	// Denials remembers, or one ByLocal, tells what this instance knows: what the
	// Store told it last, and what it has refused since.
	Violations int64
	// BanLeft is how long the ban still runs, if Outcome is Banned.
	BanLeft time.Duration
	// By is who decided. It is ByStore unless a Fallback had to do without, or a lease
	// served.
	By Source
}

// Strictest is the answer to a whole request, made of the answers of its asks:
// of the denials the one with the longest RetryAfter, else the one with the
// least Remaining; the first of equals. Of those that allow, one without a Limit is the
// answer only where all are. Its Delay is the longest of all. It is for those who
// implement a Store. Strictest of nothing is the zero Decision.
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

// set makes d, which must be zero, the answer that a verdict means.
func (d *Decision) set(key string, limit *Limit, v *algo.Verdict) {
	d.Key, d.Limit = key, limit
	d.Remaining = v.Remaining
	d.ResetAfter = algo.Duration(v.Reset)
	if v.Allowed {
		d.Allowed, d.Outcome = true, Allowed
		d.Delay = algo.Duration(v.Delay)
		return
	}
	d.Outcome, d.RetryAfter = Limited, algo.Duration(v.Retry)
}

// punished is the place in r of an ask with the record that d, the answer to r, tells of;
// -1: there is none, or it may be one of several.
func (d *Decision) punished(r *Request) int {
	whose := -1
	for i := range r.Asks {
		a := &r.Asks[i]
		if d.Penalty == nil || a.Penalty != d.Penalty || d.Limit == nil && a.Key != d.Key {
			continue
		}
		if whose >= 0 && r.Asks[whose].Key != a.Key {
			return -1 // this request has punished one of these keys
		}
		whose = i
	}
	return whose
}

// Used is how many units of Limit are in use: its capacity less Remaining. A part of
// a unit counts as one. Where more is in use than the capacity, because the limit was
// made smaller, it is the capacity. It is 0 where Limit is nil, and as exact as
// Remaining is.
func (d *Decision) Used() int64 {
	if d.Limit == nil {
		return 0
	}
	return d.Limit.Capacity() - d.Remaining
}

// punish makes d, a refusal, as grave as what came of it under p, if it was counted.
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
