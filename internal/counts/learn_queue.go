package counts

import "github.com/stintdev/stint/internal/algo"

// Placed says that places in queues which this Memory gave, and another store does not know, may be
// taken until an instant (µs since 1970). Until then Learn gives places at the end of the queue,
// because a place from the other store may be one of them. Call it before such a place is given.
func (m *Memory) Placed(until int64) {
	for was := m.placed.Load(); was < until; was = m.placed.Load() {
		if m.placed.CompareAndSwap(was, until) {
			return
		}
	}
}

// learnQueue makes the queue of a LeakyBucket end behind the place that the other store gave, with
// at least the units that are in use there. It never shortens the queue, which drains by itself: an
// answer may be older than the places given here.
//
// While no other places are taken, each request keeps the other store's place. Otherwise answers
// that overtake each other would lose time.
func (m *Memory) learnQueue(a *Ask, spent int64, allowed bool, late, now int64, own bool) {
	p := &a.Limit.Plan
	var c count
	m.look(a.Key, a.Limit, &c)
	v := p.Look(c.state(), now)
	level := p.Full - (a.Verdict.Remaining+1)*p.Unit + 1 // at least, because Remaining is rounded down
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
