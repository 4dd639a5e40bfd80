package httplimit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
)

// queue is where allowed requests wait until they may leave. It keeps no order:
// their delays, which the leaky bucket gave out, already do. It is bounded
// because what is held costs a goroutine and a connection each.
type queue struct {
	room    int64
	longest time.Duration
	held    atomic.Int64
}

// hold returns once the request behind a may go on, or makes a refusal of a if it
// cannot be held. It returns the context's error if that ends first. In both of
// the latter cases it gives back what the request took.
func (q *queue) hold(ctx context.Context, a *Answer) error {
	longest := q.longest
	if deadline, ok := ctx.Deadline(); ok {
		longest = min(longest, max(0, time.Until(deadline)))
	}
	if a.Delay > longest {
		// The bucket drains as fast as the clock runs, so that by then the wait
		// is down to the longest.
		q.refuse(ctx, a, a.Delay-longest)
		return nil
	}
	if q.held.Add(1) > q.room {
		q.held.Add(-1)
		q.refuse(ctx, a, a.Delay)
		return nil
	}
	defer q.held.Add(-1)
	t := time.NewTimer(a.Delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	// Asked again, for both may have happened.
	if err := ctx.Err(); err != nil {
		a.giveBack(ctx)
		return err
	}
	return nil
}

// refuse makes a, which was allowed, a refusal by the limit with the delay.
func (q *queue) refuse(ctx context.Context, a *Answer, retryAfter time.Duration) {
	a.giveBack(ctx)
	for i := range a.Each {
		if e := &a.Each[i]; e.Limit != nil && e.Delay == a.Delay {
			a.Decision = *e
			break
		}
	}
	a.Allowed, a.Outcome, a.RetryAfter, a.Delay = false, stint.Limited, retryAfter, 0
}
