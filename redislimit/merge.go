package redislimit

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// Requests that come while others are under way go together: one call of the script
// for many costs the client and the server a fraction of a call for each. Nobody is
// kept waiting for company: where few calls are under way, a request goes at once.

const (
	// mergedAsks is about how many asks go in one call. So many cost Redis some
	// 100 µs, during which it does nothing else.
	mergedAsks = 32
	// mergedWaiters bounds the identical requests that join them.
	mergedWaiters = 1024
	// fewCalls may be under way before requests wait for one to return: while
	// Redis decides one, the answers of the other are handed out.
	fewCalls = 2
	// mostCalls may be under way where the requests for a whole call wait, so that
	// a long way to the server does not limit how many are decided.
	mostCalls = 128
	// fewIdle queues are kept for other slots.
	fewIdle = 256
)

// A queue is idle when it is empty and no call of its is under way. Whoever is then
// still to look at it finds by the state of a waiter that it is none of its own.

// queue is where requests wait, first come, first served. In a Cluster there is one
// for each slot.
type queue struct {
	slot        uint16
	first, last *waiter
	asks        int // of those who wait
	calls       int // under way
	coming      int // of these, such that have yet to take requests with them
	run         func()
}

// waiter is a request that waits for its answer.
type waiter struct {
	asks       []stint.Ask
	at         time.Time
	next, prev *waiter
	state      atomic.Uint32
	alarm      alarm // wakes its caller

	group, place int // in the batch
	reply        string
	err          error
}

// The states of a waiter. A queue's lock is held where waiting ends.
const (
	waiting uint32 = iota
	sent
	left // the caller has gone; the waiter is the call's
	answered
)

var waiters = sync.Pool{New: func() any {
	w := new(waiter)
	w.alarm.init()
	return w
}}

func (w *waiter) free() {
	clear(w.asks)
	w.asks, w.next, w.prev, w.reply, w.err = w.asks[:0], nil, nil, "", nil
	waiters.Put(w)
}

// merger is the queues of a Store.
type merger struct {
	mu     sync.Mutex
	queues map[uint16]*queue // by slot; of a single server, 0
	calls  int               // under way, of all queues
	idle   []*queue          // to be used again
}

var errWaiting = fmt.Errorf("%d calls wait for the server", conn.MaxWaiting)

// takeMerged decides a request of one slot, together with others.
func (s *Store) takeMerged(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if err := ctx.Err(); err != nil {
		return stint.Decision{}, notSent(err)
	}
	w := waiters.Get().(*waiter)
	w.asks = append(w.asks, r.Asks...)
	w.at = r.At
	w.state.Store(waiting)
	var n uint16
	if s.conn.Cluster() {
		n = slot(r.Asks[0].Key)
	}
	q, alone := s.enqueue(n, w, ctx.Done() == nil && r.Deadline <= 0)
	if q == nil {
		w.free()
		return stint.Decision{}, notSent(errWaiting)
	}
	if alone {
		w.free()
		return s.takeAlone(q, r, out)
	}
	if err := w.wait(ctx, r.Deadline); err != nil {
		if s.leave(q, w) {
			w.free()
			return stint.Decision{}, notSent(err)
		}
		if w.state.CompareAndSwap(sent, left) {
			return stint.Decision{}, fmt.Errorf("redislimit: the server has not answered: %w", err)
		}
	}
	defer w.free()
	if w.err != nil {
		return stint.Decision{}, w.err
	}
	return s.read(w.reply, r.Asks, w.place, out)
}

// enqueue lets w wait, and starts a call where it need not. alone: the call is w's
// caller's to make, for w alone, which does not wait; only where it may. nil: there
// are too many under way, as when no node of a Cluster answers.
func (s *Store) enqueue(slot uint16, w *waiter, may bool) (_ *queue, alone bool) {
	m := &s.merger
	m.mu.Lock()
	q := m.queues[slot]
	if q == nil {
		if m.calls >= conn.MaxWaiting {
			m.mu.Unlock()
			return nil, false
		}
		if k := len(m.idle) - 1; k >= 0 {
			q, m.idle = m.idle[k], m.idle[:k]
		} else {
			q = s.newQueue()
		}
		q.slot = slot
		m.queues[slot] = q
	}
	if may && q.calls == 0 { // so nobody waits in it either
		m.calls++
		q.calls++
		m.mu.Unlock()
		return q, true
	}
	if w.prev = q.last; w.prev != nil {
		w.prev.next = w
	} else {
		q.first = w
	}
	q.last = w
	q.asks += len(w.asks)
	start := q.coming == 0 && q.calls < fewCalls || q.asks >= mergedAsks*(q.coming+1) && q.calls < mostCalls
	start = start && (q.calls == 0 || m.calls < conn.MaxWaiting)
	if start {
		m.calls++
		q.calls++
		q.coming++
	}
	m.mu.Unlock()
	if start {
		go q.run()
	}
	return q, false
}

func (s *Store) newQueue() *queue {
	q := new(queue)
	q.run = func() { s.calls(q) }
	return q
}

// leave takes w out of the queue, if it is still there.
func (s *Store) leave(q *queue, w *waiter) bool {
	s.merger.mu.Lock()
	defer s.merger.mu.Unlock()
	if w.state.Load() != waiting {
		return false
	}
	q.remove(w)
	return true
}

func (q *queue) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.next, w.prev = nil, nil
	q.asks -= len(w.asks)
}

// flight is a call and those who wait for it.
type flight struct {
	batch   batch
	waiters []*waiter
}

var flights = sync.Pool{New: func() any { return new(flight) }}

// calls makes calls, one after another, as long as requests wait. It runs in a
// goroutine of its own, for callers have deadlines, and a call may outlive them; who
// has none makes its own, see takeAlone.
func (s *Store) calls(q *queue) {
	f := flights.Get().(*flight)
	many := !s.conn.Cluster() // where a slot has few requests, none are waited for
	for {
		if many {
			s.gather(q)
		}
		if !s.board(q, f) {
			break
		}
		many = len(f.waiters) > 1
		reply, err := s.run(context.Background(), &f.batch)
		s.land(q, f, reply, err)
	}
	flights.Put(f)
}

// gather lets whoever can run, and asks, come along. Where several processors share
// them, this call may be taken up before half of them have run, so it yields once
// more, unless a whole call waits by then.
func (s *Store) gather(q *queue) {
	runtime.Gosched()
	s.merger.mu.Lock()
	whole := q.asks >= mergedAsks
	s.merger.mu.Unlock()
	if !whole {
		runtime.Gosched()
	}
}

// board fills f with requests. Where there are none, the call is over.
func (s *Store) board(q *queue, f *flight) bool {
	m := &s.merger
	for room := mergedAsks; room > 0 && len(f.waiters) < mergedWaiters; room = mergedAsks - f.batch.asks {
		from := len(f.waiters)
		m.mu.Lock()
		for w := q.first; w != nil; w = q.first {
			if len(f.waiters) == 0 {
				f.batch.at = w.at
			} else if len(w.asks) > room || !w.at.Equal(f.batch.at) {
				break
			}
			q.remove(w)
			w.state.Store(sent)
			f.waiters = append(f.waiters, w)
			room -= len(w.asks)
		}
		if from == 0 {
			q.coming--
			if len(f.waiters) == 0 {
				m.end(q)
			}
		}
		m.mu.Unlock()
		if len(f.waiters) == from {
			break
		}
		for _, w := range f.waiters[from:] {
			w.group, w.place = s.add(&f.batch, w.asks)
		}
	}
	return len(f.waiters) > 0
}

// end notes that a call of q is over. The lock is held.
func (m *merger) end(q *queue) {
	q.calls--
	m.calls--
	if q.calls == 0 {
		delete(m.queues, q.slot)
		if len(m.idle) < fewIdle {
			m.idle = append(m.idle, q)
		}
	}
}

// land hands out the answers.
func (s *Store) land(q *queue, f *flight, reply string, err error) {
	s.merger.mu.Lock()
	q.coming++
	s.merger.mu.Unlock()
	// A waiter is its caller's once answered, so are the asks of its group.
	answers := f.batch.args[:0]
	var broken error
	for i := range f.batch.groups {
		if err != nil {
			break
		}
		var answer string
		if broken == nil {
			answer, reply, broken = cut(reply, f.batch.groups[i].asks)
		}
		answers = append(answers, answer)
	}
	for i, w := range f.waiters {
		switch {
		case err != nil:
			w.err = err
		case answers[w.group] == "":
			w.err = broken
		default:
			w.reply = answers[w.group]
		}
		if w.state.CompareAndSwap(sent, answered) {
			w.alarm.ring()
		} else {
			w.free()
		}
		f.waiters[i] = nil
	}
	f.batch.args = answers
	f.waiters = f.waiters[:0]
	f.batch.reset(err)
}

// Who finds nobody to go with, and may wait forever, makes the call on its own
// goroutine. To start another, and to be woken by it, wakes threads, which costs
// more than all else that this package does for a request.

// takeAlone makes a call of q for one request that has no deadline, of a context that
// never ends. Those who come meanwhile find a call under way, as if a goroutine had made
// it.
func (s *Store) takeAlone(q *queue, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	defer s.over(q)
	f := flights.Get().(*flight)
	f.batch.at = r.At
	s.add(&f.batch, r.Asks)
	reply, err := s.run(context.Background(), &f.batch)
	f.batch.reset(err)
	flights.Put(f)
	if err != nil {
		return stint.Decision{}, err
	}
	return s.read(reply, r.Asks, 0, out)
}

// over ends a call that its caller made, or leaves it to those who wait by now.
func (s *Store) over(q *queue) {
	m := &s.merger
	m.mu.Lock()
	goOn := q.first != nil && q.coming == 0
	if goOn {
		q.coming++
	} else {
		m.end(q)
	}
	m.mu.Unlock()
	if goOn {
		go q.run()
	}
}
