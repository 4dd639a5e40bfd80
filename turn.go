package stint

import (
	"math"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// seen is the last known answer about a key under a limit, for callers that wait. The zero seen: no
// answer.
type seen struct {
	limit     *Limit
	at        time.Time // of the decision, about
	remaining int64
	reset     time.Duration
	held      bool // units are held, or the refusal was Busy: reset says little
	// A request of refused units was told to wait for retry. 0: it was allowed.
	refused int64
	retry   time.Duration
}

// saw makes a seen from d, an answer decided at an instant about units. Only the Store
// that counts for all knows the Remaining.
func saw(d *Decision, units int64, at time.Time) seen {
	s := seen{limit: d.Limit, at: at, remaining: d.Remaining, reset: d.ResetAfter, held: d.Held > 0 && d.Limit.spec.Algorithm != InFlight}
	switch {
	case d.Busy: // RetryAfter is only a hint
		s.held = true
	case !d.Allowed:
		s.refused, s.retry = units, d.RetryAfter
	case d.By != ByStore && d.By != ByInstance:
		return seen{}
	}
	return s
}

// turn is how long after s a request of some units under l may fit, if ahead units go first and nobody
// else comes. It may be too short, but is never too long by more than a tick. 0: ask at once. delay is
// the longest accepted delay under a LeakyBucket.
func (s *seen) turn(l *Limit, units, ahead int64, delay time.Duration) time.Duration {
	if s.limit == nil || s.limit != l && s.limit.counted.Plan != l.counted.Plan {
		return 0
	}
	p := &l.counted.Plan
	missing := units + ahead - s.remaining
	var least time.Duration
	if s.retry > 0 && units >= s.refused {
		least = s.retry
	}
	switch {
	case p.Kind == algo.InFlight && !s.held && missing > 0:
		return firstPoll
	case s.held || p.Kind == algo.InFlight:
		return least
	case p.Kind == algo.LeakyBucket:
		return max(s.untilLevel(p, units+ahead), s.reset+algo.Duration(p.Flow(ahead))-max(0, delay))
	case p.Kind == algo.TokenBucket:
		return s.untilLevel(p, units+ahead)
	case missing <= 0:
		return 0
	case p.Kind == algo.FixedWindow && p.Calendar == nil:
		return s.reset + periods(p.Period, (missing-1)/p.Capacity)
	case p.Kind == algo.FixedWindow:
		return s.reset
	case p.Kind == algo.SlidingLog:
		return max(least, periods(p.Period, (missing-1)/p.Capacity))
	default: // the share of the oldest sub-window that counts is an estimate
		return max(least, periods(p.Period-p.Width*p.Tick, (missing-1)/p.Capacity))
	}
}

// untilLevel is how long after s the units fit into a bucket.
func (s *seen) untilLevel(p *algo.Plan, units int64) time.Duration {
	if units > p.Capacity {
		return s.reset + algo.Duration(p.Flow(units-p.Capacity))
	}
	return max(0, s.reset-algo.Duration((p.Full-units*p.Unit)/p.Rate*p.Tick))
}

// periods is n times period, in µs; at most about 290 years.
func periods(period, n int64) time.Duration {
	if n > 0 && period > math.MaxInt64/1000/n {
		return math.MaxInt64 / 2
	}
	return time.Duration(n*period) * time.Microsecond
}

// room is how many units fit at once, in requests with no longer delay than given.
func (s *seen) room(delay time.Duration) int64 {
	switch {
	case s.limit == nil || s.retry > 0:
		return 0
	case s.limit.spec.Algorithm != LeakyBucket:
		return s.remaining
	case s.reset > delay:
		return 0
	}
	return min(s.remaining, 1+int64((delay-s.reset)/max(1, algo.Duration(s.limit.counted.Plan.Flow(1)))))
}
