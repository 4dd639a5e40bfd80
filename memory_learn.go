package stint

// learn makes m's counts agree with another store's answers to r, so that m could
// go on from there. It does what it has room for.
func (m *Memory) learn(r *Request, d *Decision, each []Decision) {
	m.init()
	var few [fewAsks]uint64
	defer m.unlock(m.lock(r, few[:0]))
	now := m.now(r)
	if i := d.punished(r); i >= 0 {
		m.learnRecord(r, &r.Asks[i], d, now)
	}
	if d.Limit == nil {
		return // a running ban answered, or no limit was asked
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

// learnRecord notes the ban, or the count of violations, that d tells of a's key.
func (m *Memory) learnRecord(r *Request, a *Ask, d *Decision, now int64) {
	s, e := m.findRecord(a.Key, a.Penalty)
	if e == nil {
		if m.sweep(s, r, now); !s.makeRoom(now, m.least.Load(), false) {
			return
		}
		e = m.addRecord(s, a)
	}
	e.penalty = a.Penalty
	if d.Outcome == Banned {
		e.record.Violations, e.record.Until = 0, now+d.BanLeft.Microseconds()
	} else {
		e.record.Violations, e.record.Last = d.Violations, now
	}
	e.record.Forget = a.Penalty.plan.Forget
	e.unused = e.record.Clean()
}

// sharedBy says that a unit is counted here as so many, one for each instance.
func (m *Memory) sharedBy(live int64) {
	if m.least.Load() != live {
		m.least.Store(live)
	}
}
