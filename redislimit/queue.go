package redislimit

import (
	"fmt"
	"sync"

	"github.com/stintdev/stint/redislimit/internal/conn"
)

const (
	// mergedAsks is about how many asks go in one call, which blocks Redis for some 100 µs.
	mergedAsks = 32
	// fewCalls may be under way before requests wait: Redis decides one while another's answers
	// are handed out.
	fewCalls = 2
	// mostCalls may be under way if requests for a whole call wait, for distant servers.
	mostCalls = 128
	fewIdle   = 256
)

// merger is the queues of a Store.
type merger struct {
	runCalls func(*queue) // makes calls for a queue, on a goroutine of its own
	// waiters are free for use. Each merger has its own, because a waiter made in a bubble of
	// testing/synctest must not be used outside it.
	waiters sync.Pool

	mu     sync.Mutex
	queues map[uint16]*queue // by slot; of a single server, 0
	calls  int               // under way, of all queues
	idle   []*queue          // for reuse
}

// queue has the waiting requests of one slot, in order. An empty queue without a call under way
// may be reused for another slot; its former waiters see by their state that they have left it.
type queue struct {
	slot        uint16
	first, last *waiter
	asks        int // asks and calls of the waiters
	calls       int // under way
	starting    int // calls that have not taken requests yet
	run         func()
}

var errWaiting = fmt.Errorf("%d calls wait for the server", conn.MaxWaiting)

// enqueue adds w to the queue of a slot and starts a call, unless w must wait for one. direct
// means that the queue was idle and the caller, who set mayCall, makes the call itself. A nil
// queue: too many calls are under way, as when no node answers.
func (m *merger) enqueue(slot uint16, w *waiter, mayCall bool) (_ *queue, direct bool) {
	m.mu.Lock()
	q := m.queues[slot]
	if q == nil {
		if m.calls >= conn.MaxWaiting {
			m.mu.Unlock()
			return nil, false
		}
		q = m.newQueue()
		q.slot = slot
		m.queues[slot] = q
	}
	if mayCall && q.calls == 0 { // so nothing waits in it either
		m.calls++
		q.calls++
		m.mu.Unlock()
		return q, true
	}
	q.append(w)
	start := q.starting == 0 && q.calls < fewCalls || q.asks >= mergedAsks*(q.starting+1) && q.calls < mostCalls
	start = start && (q.calls == 0 || m.calls < conn.MaxWaiting)
	if start {
		m.calls++
		q.calls++
		q.starting++
	}
	m.mu.Unlock()
	if start {
		go q.run()
	}
	return q, false
}

func (m *merger) newQueue() *queue {
	if k := len(m.idle) - 1; k >= 0 {
		q := m.idle[k]
		m.idle = m.idle[:k]
		return q
	}
	q := new(queue)
	q.run = func() { m.runCalls(q) }
	return q
}

// leave removes w, and returns false if a call has taken it before.
func (m *merger) leave(q *queue, w *waiter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.state.Load() != waiting {
		return false
	}
	q.remove(w)
	return true
}

func (m *merger) hasWholeCall(q *queue) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return q.asks >= mergedAsks
}

// finishDirect ends a call that its caller made, or leaves it to the requests that wait.
func (m *merger) finishDirect(q *queue) {
	m.mu.Lock()
	more := q.first != nil && q.starting == 0
	if more {
		q.starting++
	} else {
		m.end(q)
	}
	m.mu.Unlock()
	if more {
		go q.run()
	}
}

// end notes that a call of q is over. The lock must be held.
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

func (q *queue) append(w *waiter) {
	if w.prev = q.last; w.prev != nil {
		w.prev.next = w
	} else {
		q.first = w
	}
	q.last = w
	q.asks += w.size()
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
	q.asks -= w.size()
}
