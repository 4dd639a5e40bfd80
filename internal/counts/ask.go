package counts

import (
	"errors"
	"math"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// OwnClock as an instant means that the Memory reads its own clock.
const OwnClock = math.MinInt64

// Ask is one limit of a request, for one key.
type Ask struct {
	Key      string
	Limit    *Limit        // nil: nothing is counted, and the Verdict allows
	Penalty  *Penalty      // nil: none; without a Limit, it must be given
	Cost     int64         // at least 0, and 0 without a Limit
	MaxDelay time.Duration // see algo.Plan.WithDelay
	// Verdict is the answer, which a Memory gives or learns.
	Verdict algo.Verdict
}

// Punishment is the outcome of a violation, or a running ban, with 0 Violations.
type Punishment struct {
	By int // the ask with the penalty; None: nobody is punished
	algo.Punishment
}

// None is the index of no ask.
const None = -1

// Answer is the outcome of a request, besides the Verdict of each ask.
type Answer struct {
	// Of is the ask whose Verdict is the request's, one with a Limit if there is any. It has the
	// key and the penalty of a Punishment. None: a running ban answers for all, and no Verdict
	// counts.
	Of    int
	Delay int64 // the longest of all asks, µs
	// Wait is how long the limits refuse, in µs, or algo.Never, if there is such a ban or a
	// violation.
	Wait       int64
	Punishment Punishment
}

var (
	// ErrFull means that there is no room for a count that would have to be charged.
	ErrFull = errors.New("no room for a count")
	// ErrTwice means that two asks are about one count; Answer.Of is the second.
	ErrTwice = errors.New("the same count is given twice")
)

// decide ends the decision about an ask; see algo.Plan.Settle. Remaining is as for a request
// without MaxDelay.
func (s *step) decide(a *Ask, allowed bool) {
	n := s.asked
	if allowed {
		n = s.take
	}
	a.Verdict = a.plan().Settle(s.state(), &s.view, n, allowed)
	if a.MaxDelay != 0 {
		a.Verdict.Remaining = max(0, a.Limit.Plan.Left(&s.view)-s.view.Held)
	}
}

func (a *Ask) plan() *algo.Plan { return a.Limit.Plan.WithDelay(a.Cost, a.MaxDelay) }

// sharesRecord reports whether a and b are punished together.
func (a *Ask) sharesRecord(b *Ask) bool {
	return a.Penalty != nil && b.Penalty != nil && a.Penalty.Salt == b.Penalty.Salt && a.Key == b.Key
}

// strictest makes d the strictest verdict, with the longest delay. It writes nothing else:
// copying a whole Answer takes as long as deciding about an ask.
func (d *Answer) strictest(asks []Ask) {
	of, delay := 0, asks[0].Verdict.Delay
	for i := 1; i < len(asks); i++ {
		a := &asks[i]
		delay = max(delay, a.Verdict.Delay)
		if a.Limit != nil && (asks[of].Limit == nil || a.Verdict.StricterThan(&asks[of].Verdict)) {
			of = i
		}
	}
	d.Of, d.Delay, d.Punishment.By = of, delay, None
}

// blame makes d the strictest of the verdicts that led to the Punishment.
func (d *Answer) blame(asks []Ask) {
	by, of := &asks[d.Punishment.By], None
	for i := range asks {
		a := &asks[i]
		if a.refusesUnder(by) && (of == None || a.Verdict.StricterThan(&asks[of].Verdict)) {
			of = i
		}
	}
	d.Of, d.Wait = of, longestWait(asks)
}

// refusesUnder reports whether a refuses and that counts as a violation of by's key.
func (a *Ask) refusesUnder(by *Ask) bool {
	return !a.Verdict.Allowed && !a.Verdict.Busy && a.sharesRecord(by)
}
