package stint

// learn makes m's counts agree with another store's answers to r, so that m could
// go on from there. It does what it has room for.
func (m *Memory) learn(r *Request, d *Decision, each []Decision) {
	m.init()
	var few [fewAsks]uint64
	defer m.unlock(m.lock(r, few[:0]))
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
	var c count
	m.look(a, &c)
	if !c.found() {
		if remaining >= p.Capacity {
			return
		}
		if m.sweep(c.shard, r, now); !c.shard.makeRoom(now, m.least.Load(), false) {
			return
		}
	}
	v := p.Look(c.state(), now)
	here := max(0, p.Full-v.Used) / p.Unit
	switch {
	case here > remaining:
		c.prepare(a.Limit, &v)
		unused := v.Now + p.Settle(c.state(), &v, here-remaining, true).Reset
		if !c.charged(a.Limit, unused) {
			c.add(a.Limit, unused)
		}
	case here == remaining:
		c.release()
	case p.GiveBack(c.state(), now, remaining-here):
		c.forget()
	default:
		c.keep()
	}
}

// learnBan notes the ban that d tells of.
func (m *Memory) learnBan(r *Request, d *Decision, now int64) {
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Penalty != d.Penalty {
			continue
		}
		s, e := m.findRecord(a.Key, a.Penalty)
		if e == nil {
			if m.sweep(s, r, now); !s.makeRoom(now, m.least.Load(), false) {
				return
			}
			e = m.addRecord(s, a)
		}
		e.penalty = a.Penalty
		e.record.Until = now + d.BanLeft.Microseconds()
		e.record.Forget = a.Penalty.plan.Forget
		e.unused = e.record.Clean()
		return
	}
}

// sharedBy says that a unit is counted here as so many, one for each instance.
func (m *Memory) sharedBy(live int64) {
	if m.least.Load() != live {
		m.least.Store(live)
	}
}
