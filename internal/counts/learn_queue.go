package counts

import "github.com/stintdev/stint/internal/algo"

// Placed says that until so late (µs since 1970) places in queues may be taken that this Memory gave
// and another store did not. Until then Learn gives places at the end of the queue, since a place
// that the other store gives may be one of them. It must be said before such a place is given.
func (m *Memory) Placed(until int64) {
	for was := m.placed.Load(); was < until; was = m.placed.Load() {
		if m.placed.CompareAndSwap(was, until) {
			return
		}
	}
}

// learnQueue has the queue of a LeakyBucket end behind the place that the other store gave, and at
// least the units that it has in use. It never shortens the queue, which drains by itself: an answer
// may be older than the places that were given here.
//
// While no other places are taken, each request keeps the other store's. Answers that overtake each
// other would else lose time.
func (m *Memory) learnQueue(a *Ask, spent int64, allowed bool, late, now int64, own bool) {
	p := &a.Limit.Plan
	var c count
	m.look(a.Key, a.Limit, &c)
	v := p.Look(c.state(), now)
	level := p.Full - (a.Verdict.Remaining+1)*p.Unit + 1 // at least so much: Remaining is rounded down
	if allowed {
		level = p.LevelAt(a.Verdict.Delay)
	}
	if taken := now < m.placed.Load(); allowed && taken && c.found() {
		level = max(level, v.Used)
		a.Verdict.Delay = max(a.Verdict.Delay, p.Settle(c.state(), &v, 0, true).Delay)
		if spent > 0 {
			m.Placed(now + a.Verdict.Delay + p.Flow(spent) + late)
		}
	}
	if level += spent * p.Unit; level <= v.Used {
		c.release()
		return
	}
	if !c.found() {
		if c.shard.sweep(now, own); !c.shard.makeRoom(now, m.least.Load(), false) {
			return
		}
	}
	if unused := v.Now + p.Raise(c.state(), &v, min(level, algo.Exact)); !c.charged(a.Limit, unused) {
		c.add(a.Limit, unused)
	}
}
