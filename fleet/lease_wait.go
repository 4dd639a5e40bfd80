package stint

import (
	"math/bits"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// wait is until when a key that is exhausted is refused.
type wait struct {
	told      int64 // ns
	until     int64 // ns
	cost      int64 // what is cheaper may be allowed
	remaining int64
	reset     time.Duration
	// After retry the Store has room for a request of cost fits.
	fits  int64
	retry time.Duration
}

// longestWait is how long the store is not asked for a key that is exhausted.
const longestWait = 100 * time.Millisecond

// share is how many of the units that come back in a time, in ns, are one instance's.
func (l *Limit) share(ns, live int64) int64 {
	p := &l.plan
	hi, lo := bits.Mul64(uint64(p.Amount), uint64(max(ns, 0)))
	by := uint64(algo.Duration(p.Period)) * uint64(live)
	if hi >= by {
		return p.Capacity
	}
	units, _ := bits.Div64(hi, lo, by)
	return min(int64(units), p.Capacity)
}

// wait notes how long it is not worth asking, after an answer to a request of a cost
// that was sent at an instant. Less than a lease comes back for as long as the wait
// lasts at most: then it is worth it each time.
func (l *Leases) wait(e *lease, cost int64, d *Decision, sent int64) {
	live := l.Live()
	if d.Allowed || d.By != ByStore || d.Outcome > Limited || d.RetryAfter == Never || live <= 0 || e.limit.endsWithWindow() || l.closed.Load() {
		e.waits.Store(nil)
		return
	}
	// No more comes back meanwhile than half of what may be leased.
	most := int64(longestWait)
	if half := e.limit.lease / 2; half < e.limit.share(most, 1) {
		most = int64(float64(half) / float64(e.limit.plan.Amount) * float64(algo.Duration(e.limit.plan.Period)))
	}
	if e.limit.part(live) < shortestLease || e.limit.share(most, live) < shortestLease {
		e.waits.Store(nil)
		return
	}
	w := &wait{told: l.now(), until: sent + most, cost: cost, remaining: d.Remaining, reset: d.ResetAfter, fits: cost, retry: d.RetryAfter}
	if w.retry == 0 {
		w.fits = d.Remaining
	}
	e.waits.Store(w)
}

// retryAfter is when a request of a cost is worth asking for, as far as is known at now.
func (w *wait) retryAfter(p *algo.Plan, cost, now int64) time.Duration {
	if cost > p.Capacity {
		return Never
	}
	retry := w.retry
	if cost > w.fits {
		more := p.SettleSmall(&algo.View{Used: p.Full}, cost-w.fits, false) // until they have come back
		retry += algo.Duration(more.Retry)
	}
	return left(max(retry, time.Duration(w.until-w.told)), w.told, now)
}

// refuse decides an ask by what was refused just now.
func (e *lease) refuse(a *Ask, now int64, d *Decision) bool {
	w := e.waits.Load()
	if w == nil || now >= w.until || a.Units() < w.cost {
		return false
	}
	*d = Decision{
		Outcome: Limited, Limit: a.Limit, Key: a.Key,
		Remaining: w.remaining, RetryAfter: w.retryAfter(&a.Limit.plan, a.Units(), now), ResetAfter: left(w.reset, w.told, now), By: ByLease,
	}
	return true
}
