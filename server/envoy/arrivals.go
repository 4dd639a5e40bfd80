package envoy

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/tap"
)

const (
	// mostStalled is how many calls may be waiting for the rest of their first message for longer
	// than stalledAfter. Each may hold most of maxMessage.
	mostStalled = 16
	// stalledAfter is longer than the messages of a caller take that does not stall.
	stalledAfter = time.Second
)

// arrivals are the calls whose first message has not arrived. gRPC bounds neither the time that a
// message takes nor the bytes of all of them, so that a client could hold thousands of halves of 4 MiB.
// It may be used from many goroutines at once.
type arrivals struct {
	mu          sync.Mutex
	first, last *arrival // in the order in which they began
}

// arrival is a call. It is the call's context, too, and an element of the list, and nothing runs when the
// call ends: apart, these took 4 % of the CPU time of a call.
type arrival struct {
	context.Context
	cancel     context.CancelFunc
	since      time.Time
	all        *arrivals
	next, prev *arrival
	listed     bool
}

type arrivalKey struct{}

// Value is for context.Context.
func (c *arrival) Value(key any) any {
	if key == (arrivalKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// begin is a tap.ServerInHandle. The call is listed until it arrives, or until cut finds that it ended.
func (a *arrivals) begin(ctx context.Context, _ *tap.Info) (context.Context, error) {
	c := &arrival{all: a, since: time.Now(), listed: true}
	c.Context, c.cancel = context.WithCancel(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.prev = a.last; c.prev != nil {
		c.prev.next = c
	} else {
		a.first = c
	}
	a.last = c
	return c, nil
}

// arrived says that the first message of the call with this context is here.
func arrived(ctx context.Context) {
	if c, ok := ctx.Value(arrivalKey{}).(*arrival); ok {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		c.all.remove(c)
	}
}

// remove takes c out, if it is in. The lock is held.
func (a *arrivals) remove(c *arrival) {
	if !c.listed {
		return
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		a.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		a.last = c.prev
	}
	c.next, c.prev, c.listed = nil, nil, false
}

// cut ends the oldest of the calls that stall, but for most of them, and forgets those that ended.
func (a *arrivals) cut(now time.Time, most int) {
	a.mu.Lock()
	var stalled []*arrival
	for c := a.first; c != nil; {
		next := c.next
		if c.Err() != nil {
			a.remove(c)
		} else if now.Sub(c.since) >= stalledAfter {
			stalled = append(stalled, c)
		}
		c = next
	}
	a.mu.Unlock()
	for _, c := range stalled[:max(0, len(stalled)-most)] {
		c.cancel()
	}
}

// follow cuts calls until ctx is done; all that stall once stopping is closed, so that a stop does not
// wait for them.
func (a *arrivals) follow(ctx context.Context, stopping <-chan struct{}) {
	ticker := time.NewTicker(stalledAfter / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			most := mostStalled
			select {
			case <-stopping:
				most = 0
			default:
			}
			a.cut(now, most)
		}
	}
}
