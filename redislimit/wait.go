package redislimit

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// alarm wakes who waits. It may ring without need, also for whoever waited before: who
// is woken looks whether there is something to be woken for.
//
// Its timer is not stopped when an answer comes, nor set when the next caller waits: it
// goes off once for many callers, finds when the present one is late, and is set to
// that. To set and stop a timer for each caller, and to have that wait for two things at
// once, takes several times as long (docs/decisions/0017-merged-calls.md).
type alarm struct {
	rung  chan struct{} // has room for one
	due   atomic.Int64  // when who waits is late, or who waited last was; 0: never
	at    atomic.Int64  // when the timer goes off; 0: it is not set. Written under mu
	mu    sync.Mutex
	timer *time.Timer
}

// started is when the clock of alarms began.
var started = time.Now()

func (a *alarm) init() {
	a.rung = make(chan struct{}, 1)
	a.timer = time.AfterFunc(time.Hour, a.goesOff)
	a.timer.Stop()
}

func (a *alarm) ring() {
	select {
	case a.rung <- struct{}{}:
	default: // it rings
	}
}

// forever is as long as anybody waits; with what has passed, it is a Duration.
const forever = math.MaxInt64 / 2

// longSet is the longest that a timer is left to run for nobody: it holds the waiter.
const longSet = time.Second

// setTo has it ring at an instant, or before. The instant is noted before it is looked
// whether the timer is set, and goesOff does so the other way round: so one of the two
// sees what the other did.
func (a *alarm) setTo(due int64) {
	a.due.Store(due)
	if at := a.at.Load(); at != 0 && at <= due {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set(due)
}

// set sets the timer, unless it goes off before. The lock is held.
func (a *alarm) set(due int64) {
	if at := a.at.Load(); at != 0 && at <= due {
		return
	}
	a.at.Store(due)
	a.timer.Reset(time.Duration(due) - time.Since(started))
}

func (a *alarm) unset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due.Store(0)
	a.timer.Stop()
	a.at.Store(0)
}

func (a *alarm) goesOff() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at.Store(0)
	switch due := a.due.Load(); {
	case due == 0:
	case due > int64(time.Since(started)):
		a.set(due)
	default:
		a.ring()
	}
}

// wait waits for the answer until ctx is done or, where the deadline is more than 0,
// that long. Where there is none by then, it tells why.
func (w *waiter) wait(ctx context.Context, deadline time.Duration) error {
	due := int64(0)
	if deadline > 0 {
		due = int64(time.Since(started) + min(deadline, forever))
		w.alarm.setTo(due)
		if deadline > longSet {
			defer w.alarm.unset()
		}
	}
	for w.state.Load() != answered {
		if ctx.Done() == nil {
			<-w.alarm.rung
		} else {
			select {
			case <-w.alarm.rung:
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
