package redislimit

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
)

type waiter struct {
	pool       *sync.Pool // of its merger
	request    stint.Request
	calls      []stint.HoldCall // in place of a request's asks
	next, prev *waiter          // in its queue
	state      atomic.Uint32
	waker      waker // of its caller

	spots    []spot // in the batch: its request's, or those of its calls
	requests int    // in its call; known once it is answered
	replies  []string
	err      error
}

// The states of a waiter. The merger's lock is held where waiting ends.
const (
	waiting uint32 = iota
	sent
	left // the caller has gone; the waiter is the call's
	answered
)

// spot is the place of a request or a call in a batch.
type spot struct{ group, place int }

func (m *merger) newWaiter(r *stint.Request, calls []stint.HoldCall) *waiter {
	w, _ := m.waiters.Get().(*waiter)
	if w == nil {
		w = &waiter{pool: &m.waiters}
		w.waker.init()
	}
	asks := append(w.request.Asks, r.Asks...)
	w.request = *r
	w.request.Asks = asks
	w.calls = append(w.calls, calls...)
	w.state.Store(waiting)
	return w
}

func (w *waiter) free() {
	clear(w.request.Asks)
	clear(w.calls)
	clear(w.replies)
	w.request = stint.Request{Asks: w.request.Asks[:0]}
	w.calls, w.spots, w.replies, w.next, w.prev, w.err = w.calls[:0], w.spots[:0], w.replies[:0], nil, nil, nil
	w.pool.Put(w)
}

func (w *waiter) size() int { return len(w.request.Asks) + len(w.calls) }

// wait waits for the answer until ctx is done or the deadline, if more than 0, has passed, and
// returns why there is none.
func (w *waiter) wait(ctx context.Context, deadline time.Duration) error {
	due := int64(0)
	if deadline > 0 {
		due = int64(time.Since(started) + min(deadline, forever))
		w.waker.wakeBy(due)
		if deadline > longSet {
			defer w.waker.unset()
		}
	}
	for w.state.Load() != answered {
		if ctx.Done() == nil {
			<-w.waker.woken
		} else {
			select {
			case <-w.waker.woken:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if deadline > 0 && w.state.Load() != answered && int64(time.Since(started)) >= due {
			return context.DeadlineExceeded
		}
	}
	return nil
}

// waker wakes a goroutine, sometimes without need. Its timer fires once for many callers and is
// then set to the current one's deadline: setting and stopping a timer for each caller takes
// several times as long (docs/decisions/0003-merged-calls-and-lists.md).
type waker struct {
	woken   chan struct{} // has room for one
	due     atomic.Int64  // deadline of the current or last waiter; 0: none
	firesAt atomic.Int64  // when the timer fires; 0: it is not set. Written under mu
	mu      sync.Mutex
	timer   *time.Timer
}

var started = time.Now()

// forever is longer than any caller waits; added to the elapsed time, it is still a
// Duration.
const forever = math.MaxInt64 / 2

// longSet bounds how long a timer runs without a waiter, because it keeps the waker in
// memory.
const longSet = time.Second

func (k *waker) init() {
	k.woken = make(chan struct{}, 1)
	k.timer = time.AfterFunc(time.Hour, k.fire)
	k.timer.Stop()
}

func (k *waker) wake() {
	select {
	case k.woken <- struct{}{}:
	default: // it was woken before
	}
}

// wakeBy makes it wake at due, or before. due is stored before firesAt is read, and fire does
// so the other way round: one of the two sees the other's change.
func (k *waker) wakeBy(due int64) {
	k.due.Store(due)
	if at := k.firesAt.Load(); at != 0 && at <= due {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(due)
}

func (k *waker) set(due int64) {
	if at := k.firesAt.Load(); at != 0 && at <= due {
		return
	}
	k.firesAt.Store(due)
	k.timer.Reset(time.Duration(due) - time.Since(started))
}

func (k *waker) unset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.due.Store(0)
	k.timer.Stop()
	k.firesAt.Store(0)
}

func (k *waker) fire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.firesAt.Store(0)
	switch due := k.due.Load(); {
	case due == 0:
	case due > int64(time.Since(started)):
		k.set(due)
	default:
		k.wake()
	}
}
