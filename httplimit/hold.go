package httplimit

import (
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/room"
)

// queue is where allowed requests wait until they may leave. It keeps no order:
// their delays, which the leaky bucket gave out, already do. It is bounded
// because what is held costs a goroutine and a connection each.
type queue struct {
	room    *room.Room
	client  func(*http.Request) netip.Addr
	longest time.Duration
}

// enter takes a place for a request that is yet to be decided about, and tells how long
// it can be held: negative, and no place, if it cannot. A place is to be left.
func (q *queue) enter(r *http.Request) (time.Duration, room.Place) {
	longest := q.longest
	if deadline, ok := r.Context().Deadline(); ok {
		longest = min(longest, time.Until(deadline))
	}
	if longest <= 0 {
		return -1, room.Place{}
	}
	place, refused := q.room.Enter(r, q.client)
	if refused != room.None {
		return -1, room.Place{}
	}
	return longest, place
}

// wait returns once the request behind a, which can be held for so long, may go on, or
// makes a refusal of a if it would have to wait longer. It returns the context's error
// if that ends first.
func (a *Answer) wait(ctx context.Context, hold time.Duration) error {
	if a.Delay > hold { // Decide did not heed it
		a.refuse(a.Delay - max(0, hold))
		return nil
	}
	t := time.NewTimer(a.Delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() // asked again, for both may have happened
}

// refuse makes a, which was allowed, a refusal by the limit with the delay.
func (a *Answer) refuse(retryAfter time.Duration) {
	for i := range a.Each {
		if e := &a.Each[i]; e.Limit != nil && e.Delay == a.Delay {
			a.Decision = *e
			break
		}
	}
	a.Allowed, a.Outcome, a.RetryAfter, a.Delay = false, stint.Limited, retryAfter, 0
}
