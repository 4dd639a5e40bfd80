// Package places makes requests wait for their turns in leaky buckets, and gives the turns of those
// that leave to the requests behind them.
package places

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// Queue identifies requests that can take each other's turns: they wait for the same bucket and
// took the same number of units. The zero Queue: none.
type Queue struct {
	key, limit string
	units      int64
}

// QueueOf is the queue of a request that is delayed only by a.
func QueueOf(a *stint.Ask) Queue {
	return Queue{key: a.Key, limit: a.Limit.ID(), units: a.Units()}
}

// QueueFor is the queue of requests that take one unit of key under limit from l. It is the zero
// Queue if the Instance of l may delay them, too.
func QueueFor(l *stint.Limiter, key string, limit *stint.Limit) Queue {
	if l.Instance != nil && l.Instance.Spec().Algorithm == stint.LeakyBucket {
		return Queue{}
	}
	return QueueOf(&stint.Ask{Key: key, Limit: limit})
}

// Waiting are the requests of one process that wait for their turns. A turn is an instant that the
// bucket has granted. If a request leaves, each behind it in its Queue takes the turn before its own.
// So no turn is used twice or before its time, and no request has to wait longer. The turn of the last
// one is free until it has passed: the next request takes it, and leaves its own.
//
// The store does not know: it counts an unused turn as taken. Requests that other processes delay
// do not take turns here.
//
// A request that leaves costs time in proportion to the requests behind it.
//
// It may be used from many goroutines at once.
type Waiting struct {
	most int // the most free turns

	mu    sync.Mutex
	lines map[Queue]*line // each has a turn
	left  int             // free turns of all lines
}

// Of returns a Waiting that keeps at most this many free turns, of all Queues.
func Of(most int) *Waiting {
	return &Waiting{most: most, lines: make(map[Queue]*line)}
}

// line is one Queue.
type line struct {
	turns   []time.Time   // ascending; the first belong to waiters, the rest are free
	waiters []*time.Timer // which end at their turns
	end     *time.Timer   // forgets free turns; nil: there were none
}

// Wait waits for the turn that was granted after delay, or for an earlier one that a request of the
// same Queue leaves. It returns the context's error if the context ends first. With the zero Queue
// it only waits for delay.
func (w *Waiting) Wait(ctx context.Context, q Queue, delay time.Duration) error {
	if q == (Queue{}) {
		t := time.NewTimer(delay)
		defer t.Stop()
		return ended(ctx, t)
	}
	t := w.enter(q, delay)
	err := ended(ctx, t)
	w.leave(q, t, err == nil)
	return err
}

func ended(ctx context.Context, t *time.Timer) error {
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() // both channels may have been ready
}

// enter returns a timer that fires at the turn of one more request.
func (w *Waiting) enter(q Queue, delay time.Duration) *time.Timer {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	l := w.lines[q]
	if l == nil {
		l = new(line)
		w.lines[q] = l
	}
	w.forget(l, now)
	granted := now.Add(delay)
	at, _ := slices.BinarySearchFunc(l.turns, granted, func(turn, granted time.Time) int {
		if turn.After(granted) {
			return 1
		}
		return -1 // behind those of the same instant
	})
	l.turns = slices.Insert(l.turns, at, granted)
	at = min(at, len(l.waiters)) // the first free turn, if that is earlier
	t := time.NewTimer(l.turns[at].Sub(now))
	l.waiters = slices.Insert(l.waiters, at, t)
	return t
}

// leave removes the request that waits for t. If its turn is still to come and not used, the others
// get it.
func (w *Waiting) leave(q Queue, t *time.Timer, used bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Stop()
	now, l := time.Now(), w.lines[q]
	at := slices.Index(l.waiters, t)
	l.waiters = slices.Delete(l.waiters, at, at+1)
	if used || !l.turns[at].After(now) {
		l.turns = slices.Delete(l.turns, at, at+1)
	} else {
		for i, behind := range l.waiters[at:] {
			behind.Reset(l.turns[at+i].Sub(now))
		}
		if w.left++; w.left > w.most {
			l.turns, w.left = l.turns[:len(l.turns)-1], w.left-1
		}
	}
	w.tidy(q, l, now)
}

// forget removes free turns that have passed.
func (w *Waiting) forget(l *line, now time.Time) {
	n := len(l.waiters)
	passed := n
	for passed < len(l.turns) && !l.turns[passed].After(now) {
		passed++
	}
	l.turns = slices.Delete(l.turns, n, passed)
	w.left -= passed - n
}

// tidy removes l when it has no turns, or once they have passed if nobody waits.
func (w *Waiting) tidy(q Queue, l *line, now time.Time) {
	if len(l.waiters) > 0 {
		return
	}
	w.forget(l, now)
	if len(l.turns) == 0 {
		if l.end != nil {
			l.end.Stop()
		}
		delete(w.lines, q)
		return
	}
	last := l.turns[len(l.turns)-1].Sub(now)
	if l.end != nil {
		l.end.Reset(last)
		return
	}
	l.end = time.AfterFunc(last, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.lines[q] == l {
			w.tidy(q, l, time.Now())
		}
	})
}
