package redislimit

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// Requests that arrive while calls are under way are merged: one call for many costs a fraction.
// None waits for others to arrive (docs/decisions/0003-merged-calls-and-lists.md).

const mergedWaiters = 1024

func (s *Store) takeOnce(ctx context.Context, r *stint.Request, out []stint.Decision) (d stint.Decision, requests int, err error) {
	if err := ctx.Err(); err != nil {
		return d, 0, notSent(err)
	}
	w := s.merger.newWaiter(r, nil)
	var n uint16
	if s.conn.Cluster() {
		n = slot(r.Asks[0].Key)
	}
	q, direct := s.merger.enqueue(n, w, ctx.Done() == nil && r.Deadline <= 0)
	if q == nil {
		w.free()
		return d, 0, notSent(errWaiting)
	}
	if direct {
		w.free()
		d, err = s.takeDirect(q, r, out)
		return d, 1, err
	}
	if err := s.await(ctx, q, w, r.Deadline); err != nil {
		return d, 0, err
	}
	defer w.free()
	if w.err != nil {
		return d, w.requests, w.err
	}
	d, err = s.read(w.replies[0], r, w.spots[0].place, out)
	return d, w.requests, err
}

// await waits for the answer to w, which is in q. After an error, the caller must not use w.
func (s *Store) await(ctx context.Context, q *queue, w *waiter, deadline time.Duration) error {
	err := w.wait(ctx, deadline)
	switch {
	case err == nil:
		return nil
	case s.merger.leave(q, w):
		w.free()
		return notSent(err)
	case w.state.CompareAndSwap(sent, left):
		return fmt.Errorf("redislimit: the server has not answered: %w", err)
	}
	return nil // it was answered meanwhile
}

// takeDirect makes a call on the caller's goroutine, because starting and waking another one
// costs more than all else here. Requests that arrive meanwhile see a call under way.
func (s *Store) takeDirect(q *queue, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	defer s.merger.finishDirect(q)
	c := callPool.Get().(*call)
	c.batch.at = r.At
	s.add(&c.batch, r)
	reply, err := s.run(context.Background(), &c.batch)
	c.batch.reset(err)
	callPool.Put(c)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.read(reply, r, 0, out)
}

type call struct {
	batch   batch
	waiters []*waiter
}

var callPool = sync.Pool{New: func() any { return new(call) }}

// runCalls makes calls as long as requests wait, on its own goroutine, because a call may
// outlive its callers' deadlines.
func (s *Store) runCalls(q *queue) {
	c := callPool.Get().(*call)
	many := !s.conn.Cluster() // in a Cluster a slot has few requests
	for {
		if many {
			s.gather(q)
		}
		if !s.fill(q, c) {
			break
		}
		many = len(c.waiters) > 1
		reply, err := s.run(context.Background(), &c.batch)
		s.deliver(q, c, reply, err)
	}
	callPool.Put(c)
}

// gather lets goroutines that are ready enqueue their requests. With several processors one
// Gosched may return early, so it yields twice, unless a whole call waits.
func (s *Store) gather(q *queue) {
	runtime.Gosched()
	if !s.merger.hasWholeCall(q) {
		runtime.Gosched()
	}
}

func (s *Store) fill(q *queue, c *call) bool {
	m := &s.merger
	for room := mergedAsks; room > 0 && len(c.waiters) < mergedWaiters; room = mergedAsks - c.batch.asks {
		from := len(c.waiters)
		m.mu.Lock()
		for w := q.first; w != nil; w = q.first {
			if len(c.waiters) == 0 {
				c.batch.at = w.request.At
			} else if w.size() > room || !w.request.At.Equal(c.batch.at) {
				break
			}
			q.remove(w)
			w.state.Store(sent)
			c.waiters = append(c.waiters, w)
			room -= w.size()
		}
		if from == 0 {
			q.starting--
			if len(c.waiters) == 0 {
				m.end(q)
			}
		}
		m.mu.Unlock()
		if len(c.waiters) == from {
			break
		}
		// Calls before requests: if both change a key's holds, they are written once.
		for _, w := range c.waiters[from:] {
			s.addCalls(&c.batch, w)
		}
		for _, w := range c.waiters[from:] {
			if len(w.request.Asks) > 0 {
				w.spots = append(w.spots, s.add(&c.batch, &w.request))
			}
		}
	}
	return len(c.waiters) > 0
}

func (s *Store) addCalls(b *batch, w *waiter) {
	for i := range w.calls {
		w.spots = append(w.spots, s.addCall(b, &w.calls[i]))
	}
}

func (s *Store) deliver(q *queue, c *call, reply string, err error) {
	s.merger.mu.Lock()
	q.starting++
	s.merger.mu.Unlock()
	// Once answered, a waiter and the asks of its group belong to its caller.
	answers := c.batch.args[:0]
	var broken error
	for i := range c.batch.groups {
		if err != nil {
			break
		}
		var answer string
		if broken == nil {
			answer, reply, broken = cut(reply, &c.batch.groups[i])
		}
		answers = append(answers, answer)
	}
	for i, w := range c.waiters {
		w.requests = len(c.waiters)
		switch {
		case err != nil:
			w.err = err
		case slices.ContainsFunc(w.spots, func(at spot) bool { return answers[at.group] == "" }):
			w.err = broken
		default:
			for _, at := range w.spots {
				w.replies = append(w.replies, answers[at.group])
			}
		}
		if w.state.CompareAndSwap(sent, answered) {
			w.waker.wake()
		} else {
			w.free()
		}
		c.waiters[i] = nil
	}
	c.batch.args = answers
	c.waiters = c.waiters[:0]
	c.batch.reset(err)
}
