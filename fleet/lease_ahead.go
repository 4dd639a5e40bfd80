package stint

import (
	"context"
	"time"
)

// aheadFor bounds how long the next lease may take to come.
const aheadFor = time.Second

// ahead has the next lease charged while the rest of g is served, so that nobody waits
// for it; once for each grant, and so only where somebody asks. There is no more than
// one such call for each of MaxKeys at a time. If it brings nothing, the rest is served
// all the same, and then a request may bring the next along.
//
// Of a bucket that is exhausted, nothing is charged ahead: when to ask for what comes
// back is settled, and whoever asks sooner gets less.
func (l *Leases) ahead(e *lease, g *grant, deadline time.Duration, now int64) {
	if g.next.Load() || e.waits.Load() != nil || !e.busy.CompareAndSwap(false, true) {
		return
	}
	if e.grant.Load() != g || g.next.Swap(true) {
		e.busy.Store(false)
		return
	}
	k := l.want(e, 0, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if k == 0 || l.closed.Load() {
		e.busy.Store(false)
		return
	}
	l.sweeps.Go(func() {
		defer e.busy.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), aheadFor)
		defer cancel()
		// If the Store does not decide, nobody is to do so in its stead.
		r := Request{Asks: []Ask{{Key: e.key, Limit: e.limit, Peek: true, OnError: OnErrorDeny}}, Deadline: deadline}
		_, _ = l.fillUp(ctx, e, &r, nil, k, now)
	})
}

// lowMark is below what rest of g the next is charged: what is asked for in twice the
// time that g took, and a sixteenth, but no more than half of what may be held, so
// that the next is worth a call.
func (e *lease) lowMark(g *grant, live int64) int64 {
	return int64(min(e.pace*float64(2*(g.told-g.sent))+float64(g.size)/16, float64(e.limit.part(live)/2)))
}
