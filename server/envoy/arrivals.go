package envoy

import (
	"container/list"
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
	mu    sync.Mutex
	calls list.List // of *arrival, the oldest first
}

// arrival is a call.
type arrival struct {
	all    *arrivals
	place  *list.Element
	since  time.Time
	cancel context.CancelFunc
	stop   func() bool // end is not called when the call ends
}

type arrivalKey struct{}

// begin is a tap.ServerInHandle. It keeps a call until it arrives or ends.
func (a *arrivals) begin(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &arrival{all: a, since: time.Now(), cancel: cancel}
	a.mu.Lock()
	c.place = a.calls.PushBack(c)
	a.mu.Unlock()
	c.stop = context.AfterFunc(ctx, c.end)
	return context.WithValue(ctx, arrivalKey{}, c), nil
}

// arrived says that the first message of the call with this context is here.
func arrived(ctx context.Context) {
	if c, ok := ctx.Value(arrivalKey{}).(*arrival); ok && c.stop() {
		c.end()
	}
}

func (c *arrival) end() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.place != nil {
		c.all.calls.Remove(c.place)
		c.place = nil
	}
}

// cut ends the oldest of the calls that stall, but for most of them.
func (a *arrivals) cut(now time.Time, most int) {
	a.mu.Lock()
	var oldest []*arrival
	stalled := 0
	for e := a.calls.Front(); e != nil && now.Sub(e.Value.(*arrival).since) >= stalledAfter; e = e.Next() {
		stalled++
		oldest = append(oldest, e.Value.(*arrival))
	}
	a.mu.Unlock()
	for _, c := range oldest[:max(0, stalled-most)] {
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
