package stint

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// firstPoll is after how long the first in a line asks again if no hold of this Limiter has ended. The
// pause doubles, up to the hint of the refusal.
const firstPoll = 5 * time.Millisecond

// line is the callers of a Limiter that wait for what others hold, by key and limit: first come, first
// served. Only the first asks the Store, at once when a hold of this Limiter ends, and now and then
// because holds of others may have ended.
type line struct {
	mu     sync.Mutex
	queues map[entryKey][]*place
}

// place is a caller's in a line.
type place struct {
	line  *line
	of    entryKey
	turn  chan struct{} // has an element if it is the first and is to ask
	pause time.Duration
}

// lineOf is the line that l shares with the Limiters over the same counts.
func (l *Limiter) lineOf() *line {
	if l.of != nil {
		return &l.of.line
	}
	return &l.line
}

func (n *line) join(of entryKey) *place {
	p := &place{line: n, of: of, turn: make(chan struct{}, 1), pause: firstPoll}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.queues == nil {
		n.queues = make(map[entryKey][]*place)
	}
	n.queues[of] = append(n.queues[of], p)
	return p
}

// joinBehind joins a line in which others wait for what r would hold; nil: there is none.
func (n *line) joinBehind(r *Request) *place {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Limit == nil || !a.Limit.IsHeld() {
			continue
		}
		of := entryKey{a.Key, a.Limit.id}
		n.mu.Lock()
		waited := len(n.queues[of]) > 0
		n.mu.Unlock()
		if waited {
			return n.join(of)
		}
	}
	return nil
}

// wake has the first ask who waits for key under l.
func (n *line) wake(key string, l *Limit) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wakeFirst(entryKey{key, l.id})
}

// wakeFirst must be called with mu locked.
func (n *line) wakeFirst(of entryKey) {
	if q := n.queues[of]; len(q) > 0 {
		select {
		case q[0].turn <- struct{}{}:
		default:
		}
	}
}

// leave gives up a place, which may be nil. The next one asks at once: there may be more room.
func (p *place) leave() {
	if p == nil {
		return
	}
	n := p.line
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.queues[p.of]
	i := slices.Index(q, p)
	if i < 0 {
		return
	}
	if i == 0 {
		q[0] = nil
		q = q[1:]
	} else {
		q = slices.Delete(q, i, i+1)
	}
	if n.queues[p.of] = q; len(q) == 0 {
		delete(n.queues, p.of)
	} else if i == 0 {
		n.wakeFirst(p.of)
	}
}

func (p *place) isFirst() bool {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	return p.line.queues[p.of][0] == p
}

// await waits until it is p's turn to ask, or ctx is done. The pause between two polls is at most about
// longest.
func (p *place) await(ctx context.Context, longest time.Duration) error {
	var poll <-chan time.Time
	if p.isFirst() {
		pause := min(p.pause, longest)
		p.pause = min(2*p.pause, max(longest, firstPoll))
		t := time.NewTimer(pause/2 + rand.N(pause+1))
		defer t.Stop()
		poll = t.C
	}
	select {
	case <-p.turn:
		return nil
	case <-poll:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
