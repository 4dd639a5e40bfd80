package counts

import "github.com/stintdev/stint/internal/algo"

// TakeOne decides about a count in a table, without the shard's lock. ok is false if that is not
// enough, or m has not been opened; then v is unchanged. See table.
func (m *Memory) TakeOne(key string, l *Limit, cost, at int64, v *algo.Verdict) (ok bool) {
	if !m.ready.Load() {
		return false
	}
	hash := m.hash(key)
	// Reading the clock waits for all pending reads from memory. So it comes before reading the
	// count, and then only later code waits for the count.
	now := at
	if at == OwnClock {
		now = m.Now()
	}
	print := printOf(hash, l.Salt)
	sh := m.shardOf(hash)
	s := sh.table.Load().find(print)
	if !s.found() {
		return false
	}
	p, number := &l.Plan, l.quick.Load() // no slot has 0 or noPlan
	if !p.Small() {
		return m.takeBlock(sh, s, print, l, cost, at, now, v)
	}
	for {
		word, base := s.word.Load(), s.base.Load()
		if word&lockedBit != 0 || word&editions == moving || numberIn(base) != number || s.print.Load() != print {
			return false
		}
		last, used := read(word, base, p)
		if last > now && at == OwnClock { // charged since the clock was read
			now = m.Now()
		}
		last, used = p.DecideSmall(last, used, now, cost, v)
		if !v.Allowed || cost == 0 {
			if s.word.Load() != word { // base may be another count's
				continue
			}
		} else {
			next, fits := pack(last, used, base, p)
			if fits && !s.word.CompareAndSwap(word, next|word&editions) ||
				!fits && !s.move(word, last, used, number, p) {
				continue
			}
		}
		return true
	}
}

// takeBlock is TakeOne for a count in a block, whose slot it locks.
func (m *Memory) takeBlock(sh *shard, s slot, print uint64, l *Limit, cost, at, now int64, d *algo.Verdict) (ok bool) {
	word, ok := s.tryLock()
	if !ok {
		return false
	}
	p, base := &l.Plan, s.base.Load()
	if numberIn(base) != l.quick.Load() || s.print.Load() != print {
		s.word.Store(word)
		return false
	}
	if lastIn(word) > now && at == OwnClock { // charged since the clock was read
		now = m.Now()
	}
	b := blockIn(base)
	state := sh.blocks.state(p, lastIn(word), b)
	v := p.Look(&state, now)
	allowed := p.Fits(&v, cost)
	if allowed && cost > 0 {
		if !sh.blocks.fits(p, &state, &v, b) {
			s.word.Store(word)
			return false
		}
		sh.blocks.makeRoom(p, &state, &v, b)
	}
	*d = p.Settle(&state, &v, cost, allowed)
	if allowed && cost > 0 {
		sh.blocks.close(p, &state, b)
		word = uint64(state.Last) | word&editions
	}
	s.word.Store(word)
	return true
}
