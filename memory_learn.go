package stint

// learn makes m's counts agree with another store's answers to r, so that m could
// go on from there. It does what it has room for.
func (m *Memory) learn(r *Request, d *Decision, each []Decision) {
	m.init()
	defer m.unlock(m.lock(r))
	now := m.now(r)
	if d.Outcome == Banned && d.Penalty != nil {
		m.learnBan(r, d, now)
	}
	if d.Outcome == Banned && d.Limit == nil {
		return // a running ban answered, and no limit was asked
	}
	for i := range r.Asks {
		m.learnLimit(r, &r.Asks[i], each[i].Remaining, now)
	}
}

// learnLimit makes so many units remain under an ask's limit.
func (m *Memory) learnLimit(r *Request, a *Ask, remaining, now int64) {
	p := &a.Limit.plan
	s := &m.shards[m.shardOf(a.Key)]
	e := s.index[entryKey{a.Key, a.Limit.id}]
	if e == nil {
		if remaining >= p.Capacity {
			return
		}
		if e = m.room(s, r, entryKey{a.Key, a.Limit.id}, now); e == nil {
			return
		}
	}
	v := p.Look(&e.state, now)
	here := max(0, p.Full-v.Used) / p.Unit
	switch {
	case here > remaining:
		v := p.Look(&e.state, now)
		p.Settle(&e.state, &v, here-remaining, true)
	case here < remaining:
		if p.GiveBack(&e.state, now, remaining-here) {
			s.remove(e)
			return
		}
	}
	v = p.Look(&e.state, now)
	e.limit = a.Limit
	e.unused = v.Now + p.Settle(&e.state, &v, 0, false).Reset
}

// learnBan notes the ban that d tells of.
func (m *Memory) learnBan(r *Request, d *Decision, now int64) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty != d.Penalty {
			continue
		}
		s := &m.shards[m.shardOf(a.Key)]
		e := s.index[entryKey{a.Key, a.Penalty.id}]
		if e == nil {
			if e = m.room(s, r, entryKey{a.Key, a.Penalty.id}, now); e == nil {
				return
			}
		}
		e.penalty = a.Penalty
		e.record.Until = now + d.BanLeft.Microseconds()
		e.unused = a.Penalty.plan.Clean(&e.record)
		return
	}
}

// room makes room for a count as Take does, so that no key that is exhausted or
// banned goes for a newcomer; nil: there is none.
func (m *Memory) room(s *shard, r *Request, k entryKey, now int64) *entry {
	m.sweep(s, r, now)
	if len(s.all) >= s.room {
		victim := s.victim(now, m.least.Load(), false)
		if victim == nil {
			return nil
		}
		s.remove(victim)
	}
	return s.add(k)
}

// sharedBy says that a unit is counted here as so many, one for each instance.
func (m *Memory) sharedBy(live int64) {
	if m.least.Load() != live {
		m.least.Store(live)
	}
}

// clock is the instant by which counts are made here, µs since 1970.
func (m *Memory) clock() int64 {
	m.init()
	return m.now(&Request{})
}
