package counts

import "github.com/stintdev/stint/internal/algo"

// part is one ask of takeFew.
type part struct {
	slot   slot
	shard  *shard
	print  uint64
	number uint32 // of the limit's plan
	locked bool   // the slot's word
	fits   bool   // next is possible
	block  block  // 0: it has none
	word   uint64 // the slot's, from before it was locked
	base   uint64
	next   uint64 // the word after a charge, if base stays
	// For a count in a block, as found; else Now and Used are the values after a charge.
	view algo.View
}

// takeFew decides few asks without penalties and MaxDelays, whose counts are in tables, without
// shard locks. If it returns false, only verdicts have changed. It decides by the words, locks them
// if they are unchanged, and writes. If it cannot lock one, it unlocks all and starts again.
func (m *Memory) takeFew(asks []Ask, at int64) bool {
	switch n := len(asks); { // on the stack, and no more of it than that takes
	case n <= fewAsks/2:
		var few [fewAsks / 2]part
		return m.decideFew(asks, few[:n], at)
	case n <= fewAsks:
		var few [fewAsks]part
		return m.decideFew(asks, few[:n], at)
	}
	return false
}

func (m *Memory) decideFew(asks []Ask, parts []part, at int64) bool {
	now := m.at(at) // before the counts are looked for; see TakeOne
	if !m.find(asks, parts) {
		return false
	}
	for pause := firstPause; pause <= lastPause; pause *= 2 {
		switch m.tryFew(asks, parts, &now, at == OwnClock) {
		case decided:
			return true
		case impossible:
			return false
		}
		for range pause { // see tryAgain
		}
	}
	return false
}

// find finds the slots of all asks; false if takeFew cannot decide.
func (m *Memory) find(asks []Ask, parts []part) bool {
	var hash uint64
	for i := range parts {
		a, p := &asks[i], &parts[i]
		if a.Limit == nil || a.Penalty != nil || a.MaxDelay != 0 {
			return false
		}
		p.number = a.Limit.quick.Load()       // no slot has 0 or noPlan
		if i == 0 || a.Key != asks[i-1].Key { // most requests ask about one key
			hash = m.hash(a.Key)
		}
		p.shard, p.print = m.shardOf(hash), printOf(hash, a.Limit.Salt)
		if p.slot = p.shard.table.Load().find(p.print); !p.slot.found() {
			return false
		}
	}
	return true
}

type attempt uint8

const (
	again      attempt = iota // a word was locked, or changed meanwhile
	decided                   // all is written, and nothing is locked
	impossible                // it needs the shard's lock
)

// tryFew decides a request, and leaves nothing locked. own: now is by the Memory's clock.
func (m *Memory) tryFew(asks []Ask, parts []part, now *int64, own bool) attempt {
	allowed := true
	for i := range parts {
		a, p := &asks[i], &parts[i]
		p.word, p.base = p.slot.word.Load(), p.slot.base.Load()
		if !isFree(p.word) {
			return stop(parts[:i], again)
		}
		if numberIn(p.base) != p.number || p.slot.print.Load() != p.print {
			return stop(parts[:i], impossible)
		}
		if !a.Limit.Plan.Small() {
			if !p.lock() {
				return stop(parts[:i+1], again)
			}
			if lastIn(p.word) > *now && own {
				*now = m.Now()
				return stop(parts[:i+1], again)
			}
			p.block = blockIn(p.base)
			if !p.look(a, *now) {
				return stop(parts[:i+1], impossible)
			}
		} else {
			last, used := read(p.word, p.base, &a.Limit.Plan)
			if last > *now && own { // charged since the clock was read
				*now = m.Now()
				return stop(parts[:i], again)
			}
			v := &p.view
			v.Now, v.Used = a.Limit.Plan.DecideSmall(last, used, *now, a.Cost, &a.Verdict)
			p.next, p.fits = pack(v.Now, v.Used, p.base, &a.Limit.Plan)
		}
		allowed = allowed && a.Verdict.Allowed
	}
	for i := range parts {
		if !parts[i].locked && !parts[i].lock() {
			return stop(parts, again)
		}
	}
	for i := range parts {
		parts[i].settle(&asks[i], *now, allowed)
	}
	return decided
}

// lock locks a part's word if the slot is unchanged since it was read.
func (p *part) lock() bool {
	if !p.slot.word.CompareAndSwap(p.word, p.word|lockedBit) {
		return false
	}
	p.locked = true
	return p.slot.base.Load() == p.base && p.slot.print.Load() == p.print
}

func stop(parts []part, why attempt) attempt {
	for i := range parts {
		if p := &parts[i]; p.locked {
			p.locked = false
			p.slot.word.Store(p.word)
		}
	}
	return why
}

// look does Plan.Look and Fits for a locked count in a block, and reports whether the block has
// room.
func (p *part) look(a *Ask, now int64) bool {
	plan := &a.Limit.Plan
	state := p.shard.blocks.state(plan, lastIn(p.word), p.block)
	p.view = plan.Look(&state, now)
	a.Verdict.Allowed = plan.Fits(&p.view, a.Cost)
	return !a.Verdict.Allowed || a.Cost == 0 || p.shard.blocks.fits(plan, &state, &p.view, p.block)
}

// settle charges a locked count if the request is allowed, and unlocks it.
func (p *part) settle(a *Ask, now int64, allowed bool) {
	plan, charged := &a.Limit.Plan, allowed && a.Cost > 0
	p.locked = false
	if p.block != 0 {
		p.settleBlock(a, allowed)
		return
	}
	if !allowed && a.Verdict.Allowed { // decided as if the whole request were allowed
		last, used := read(p.word, p.base, plan)
		v := plan.LookSmall(last, used, now)
		a.Verdict = plan.SettleSmall(&v, a.Cost, false)
	}
	switch {
	case !charged:
		p.slot.word.Store(p.word)
	case p.fits:
		p.slot.word.Store(p.next | p.word&editions)
	default:
		base := baseOf(p.view.Now, p.number)
		next, _ := pack(p.view.Now, p.view.Used, base, plan) // it fits; see move
		p.slot.base.Store(base)
		p.slot.word.Store(next | nextEdition(p.word))
	}
}

func (p *part) settleBlock(a *Ask, allowed bool) {
	plan, charged := &a.Limit.Plan, allowed && a.Cost > 0
	state := p.shard.blocks.state(plan, lastIn(p.word), p.block)
	if charged {
		p.shard.blocks.makeRoom(plan, &state, &p.view, p.block)
	}
	a.Verdict = plan.Settle(&state, &p.view, a.Cost, allowed)
	if charged {
		p.shard.blocks.close(plan, &state, p.block)
		p.slot.word.Store(uint64(state.Last) | p.word&editions)
	} else {
		p.slot.word.Store(p.word)
	}
}
