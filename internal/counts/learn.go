package counts

import "github.com/stintdev/stint/internal/algo"

// Learn makes m's counts agree with the answers of another store to asks, which are Remaining and
// Held of their Verdicts, so that m can go on from there. allowed says that the request was charged
// there, and by is its Holding. late is how long ago that may have been, µs. It keeps as much as it
// has room for. For a LeakyBucket it also reads the Verdict's Delay, and lengthens it if its place
// may be taken, see Placed.
func (m *Memory) Learn(asks []Ask, by *Holding, allowed bool, late, at int64) {
	var few [fewAsks]uint64
	defer m.unlock(m.lock(asks, few[:0]))
	now, own := m.at(at), at == OwnClock
	if !allowed {
		by = nil
	}
	for i := range asks {
		a, spent := &asks[i], int64(0)
		if a.Limit == nil {
			continue
		}
		held := a.Limit.Plan.Held()
		if allowed && !(held && by != nil) {
			spent = a.Cost
		}
		switch {
		case a.Limit.Plan.Kind == algo.LeakyBucket && !held:
			m.learnQueue(a, spent, allowed, late, now, own)
		case a.Limit.Plan.Kind != algo.InFlight:
			m.learnCount(a, spent, now, own)
		}
		if held {
			hash := m.hash(a.Key)
			m.shardOf(hash).learnHeld(a, printOf(hash, a.Limit.Salt), by, now, own)
		}
	}
}

// learnCount makes as many units remain, besides held ones, as the Verdict says; spent were just
// taken. If fewer are in use there, the oldest leave: those that stay were charged here later than
// in the other store.
func (m *Memory) learnCount(a *Ask, spent, now int64, own bool) {
	p, remaining := &a.Limit.Plan, a.Verdict.Remaining+a.Verdict.Held
	var c count
	m.look(a.Key, a.Limit, &c)
	if !c.found() {
		if remaining >= p.Capacity {
			return
		}
		if c.shard.sweep(now, own); !c.shard.makeRoom(now, m.least.Load(), false) {
			return
		}
	}
	v := p.Look(c.state(), now)
	here := p.Left(&v)
	if a.Verdict.Remaining == 0 {
		remaining = min(remaining, max(here, 0)) // more may be in use there than the holds leave
	}
	if p.IsBucket() {
		spent = 0 // all its units leave in the same way
	}
	left := remaining + spent - here
	if here > remaining || left == 0 {
		left = 0
	} else if p.DropOldest(c.state(), now, left) {
		c.forget()
		m.learnCount(a, spent, now, own)
		return
	}
	if left > 0 {
		v = p.Look(c.state(), now)
		here = p.Left(&v)
	}
	switch {
	case here > remaining:
		c.prepare(a.Limit, &v)
		unused := v.Now + p.Settle(c.state(), &v, here-remaining, true).Reset
		if !c.charged(a.Limit, unused) {
			c.add(a.Limit, unused)
		}
	case left > 0:
		c.keep()
	default:
		c.release()
	}
}

// LearnRecord remembers the ban, or the count of violations, of a key under a penalty from another
// store's answer.
func (m *Memory) LearnRecord(a *Ask, p algo.Punishment, at int64) {
	s := m.lockKey(a.Key)
	defer s.mu.Unlock()
	now := m.at(at)
	_, e := m.findRecord(a.Key, a.Penalty)
	if e == nil {
		if s.sweep(now, at == OwnClock); !s.makeRoom(now, m.least.Load(), false) {
			return
		}
		e = m.addRecord(s, a)
	}
	e.record.penalty = a.Penalty
	if p.Sentence == algo.Banned {
		e.record.Violations, e.record.Until = 0, now+p.BanLeft
	} else {
		e.record.Violations, e.record.Last = p.Violations, now
	}
	e.record.Forget = a.Penalty.Plan.Forget
	e.unused = e.record.Clean()
}
