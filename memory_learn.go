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
		a, spent := &r.Asks[i], int64(0)
		if a.Limit == nil {
			continue
		}
		if d.Allowed {
			spent = a.Units()
		}
		m.learnLimit(r, a, each[i].Remaining, spent, now)
	}
}

// learnLimit makes so many units remain under an ask's limit, of which spent were taken
// just now. Where less is in use there than here, the oldest have left: what stays was
// charged here when the other store told it, so not before that charged it.
func (m *Memory) learnLimit(r *Request, a *Ask, remaining, spent, now int64) {
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
	here := p.Left(&v)
	if p.IsBucket() {
		spent = 0 // all its units leave alike
	}
	left := remaining + spent - here
	if here > remaining || left == 0 {
		left = 0
	} else if p.DropOldest(c.state(), now, left) {
		c.forget()
		m.learnLimit(r, a, remaining, spent, now)
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

// learnRecord notes the ban, or the count of violations, that d tells of a's key.
func (m *Memory) learnRecord(r *Request, a *Ask, d *Decision, now int64) {
	s, e := m.findRecord(a.Key, a.Penalty)
	if e == nil {
		if m.sweep(s, r, now); !s.makeRoom(now, m.least.Load(), false) {
			return
		}
		e = m.addRecord(s, a)
	}
	e.record.penalty = a.Penalty
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
