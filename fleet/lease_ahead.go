package fleet

import (
	"context"
	"time"

	"github.com/stintdev/stint"
)

// aheadTaker is a Store that takes a request of one ask with some of its Units charged ahead: only
// the Store that counts for all may charge those, so a Fallback that decides by itself leaves them
// out.
type aheadTaker interface {
	takeAhead(ctx context.Context, r *stint.Request, ahead int64, out []stint.Decision) (stint.Decision, error)
}

func takeAhead(ctx context.Context, s stint.Store, r *stint.Request, ahead int64, out []stint.Decision) (stint.Decision, error) {
	if t, ok := s.(aheadTaker); ok && ahead > 0 {
		return t.takeAhead(ctx, r, ahead, out)
	}
	return s.Take(ctx, r, out)
}

const aheadFor = time.Second

// ahead charges the next lease while the rest of g is served, once for each lease and in one call
// for each of MaxKeys at a time. If it gets nothing, a later request may lease more. Nothing is
// charged ahead from an exhausted bucket: an instance that asks sooner gets less.
func (l *Leases) ahead(e *hotKey, g *lease, deadline time.Duration, now int64) {
	if g.next.Load() || e.waits.Load() != nil || !e.busy.CompareAndSwap(false, true) {
		return
	}
	if e.lease.Load() != g || g.next.Swap(true) {
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
		// If the Store does not decide, nothing else may.
		r := stint.Request{Asks: []stint.Ask{{Key: e.key, Limit: e.limit, Peek: true, OnError: stint.OnErrorDeny}}, Deadline: deadline}
		_, _ = l.fillUp(ctx, e, &r, nil, k, now)
	})
}

// lowMark is the rest of g below which the next lease is charged: the units asked for in twice the
// time that g's call took, plus a sixteenth, at most half of the largest lease.
func (e *hotKey) lowMark(g *lease, live int64) int64 {
	return int64(min(e.pace*float64(2*(g.came-g.sent))+float64(g.size)/16, float64(part(e.limit, live)/2)))
}
