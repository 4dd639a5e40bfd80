package fleet

import (
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

// wait is how long an exhausted key is refused.
type wait struct {
	came      int64 // when the answer came, ns
	until     int64 // ns
	cost      int64 // a lower cost may be allowed
	remaining int64
	reset     time.Duration
	// After retry the Store has room for a request of cost fits.
	fits  int64
	retry time.Duration
}

const longestWait = 100 * time.Millisecond

// wait notes how long asking is useless: at most as long as a lease takes to come back.
func (l *Leases) wait(e *hotKey, cost int64, d *stint.Decision, sent int64) {
	live := l.Live()
	if d.Allowed || d.By != stint.ByStore || d.Outcome > stint.Limited || d.RetryAfter == stint.Never || live <= 0 || endsWithWindow(e.limit) || l.closed.Load() {
		e.waits.Store(nil)
		return
	}
	// Meanwhile at most half of the leasable units come back.
	most := int64(longestWait)
	if half := internal.Leased(e.limit) / 2; half < comesBack(e.limit, most, 1) {
		most = int64(float64(half) / float64(planOf(e.limit).Amount) * float64(algo.Duration(planOf(e.limit).Period)))
	}
	if part(e.limit, live) < shortestLease || comesBack(e.limit, most, live) < shortestLease {
		e.waits.Store(nil)
		return
	}
	w := &wait{came: l.now(), until: sent + most, cost: cost, remaining: d.Remaining, reset: d.ResetAfter, fits: cost, retry: d.RetryAfter}
	if w.retry == 0 {
		w.fits = d.Remaining
	}
	e.waits.Store(w)
}

// retryAfter is when a request of a cost is worth sending, as far as known at now.
func (w *wait) retryAfter(p *algo.Plan, cost, now int64) time.Duration {
	if cost > p.Capacity {
		return stint.Never
	}
	retry := w.retry
	if cost > w.fits {
		more := p.SettleSmall(&algo.View{Used: p.Full}, cost-w.fits, false) // until they have come back
		retry += algo.Duration(more.Retry)
	}
	return left(max(retry, time.Duration(w.until-w.came)), w.came, now)
}

func (e *hotKey) refuse(a *stint.Ask, now int64, d *stint.Decision) bool {
	w := e.waits.Load()
	if w == nil || now >= w.until || a.Units() < w.cost {
		return false
	}
	*d = stint.Decision{
		Outcome: stint.Limited, Limit: a.Limit, Key: a.Key,
		Remaining: w.remaining, RetryAfter: w.retryAfter(planOf(a.Limit), a.Units(), now), ResetAfter: left(w.reset, w.came, now), By: stint.ByLease,
	}
	return true
}
