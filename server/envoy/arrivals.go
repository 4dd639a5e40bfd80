package envoy

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/tap"
)

const (
	// mostStalled is how many calls may wait longer than stalledAfter for the rest of their first message.
	// Each may have most of maxMessage in memory.
	mostStalled = 16
	// stalledAfter is longer than a caller's messages take, unless it stalls.
	stalledAfter = time.Second
)

// arrivals are the calls whose first message has not arrived. gRPC bounds neither the time of a message nor
// the bytes of all of them, so a client could keep thousands of half messages of 4 MiB in memory. It may be
// used from many goroutines at once.
type arrivals struct {
	mu          sync.Mutex
	first, last *arrival // in the order in which they began
}

// arrival is a call, and at once its context and an element of the list; nothing runs at its end. Separately,
// these took 4 % of a call's CPU time.
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

// arrived records that the first message of the call with this context is here.
func arrived(ctx context.Context) {
	if c, ok := ctx.Value(arrivalKey{}).(*arrival); ok {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		c.all.remove(c)
	}
}

// remove removes c, if it is listed. The lock is held.
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

// cut ends the oldest stalled calls, except for the newest most, and forgets those that ended.
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

// follow cuts calls until ctx is done. Once stopping is closed, it cuts all stalled calls, so that a stop
// does not wait for them.
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
