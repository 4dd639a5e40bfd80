package stint

import "github.com/stintdev/stint/internal/algo"

// part is one ask of a request that takeFew decides.
type part struct {
	slot   slot
	shard  *shard
	print  uint64
	number uint32 // of the limit's plan
	locked bool   // the slot's word
	block  block  // 0: it has none
	word   uint64 // the slot's, from before it was locked
	base   uint64
	next   uint64 // the word after a charge, where base stays
	fits   bool   // next can be
	// What is to be remembered after a charge, of a count without a block.
	last, used int64
	view       algo.View // of a count in a block
	verdict    algo.Verdict
}

// takeFew decides a request of up to fewAsks asks, without penalties and MaxDelays, about
// counts that lie in tables, without the shards' locks. It reports whether it did; if not, nothing
// was changed. out may be nil, and d must be zero.
//
// First it decides by what the words say, and then it locks them if they still say that.
// When all are locked, what was decided is true, and it is written down. A word that it
// cannot lock makes it let go of the others and begin again.
func (m *Memory) takeFew(r *Request, out []Decision, d *Decision) bool {
	switch n := len(r.Asks); { // on the stack, and no more of it than that takes
	case n <= fewAsks/2:
		var few [fewAsks / 2]part
		return m.decideFew(r, few[:n], out, d)
	case n <= fewAsks:
		var few [fewAsks]part
		return m.decideFew(r, few[:n], out, d)
	}
	return false
}

func (m *Memory) decideFew(r *Request, parts []part, out []Decision, d *Decision) bool {
	now := m.now(r) // before the counts are looked for; see takeOne
	if !m.find(r, parts) {
		return false
	}
	for pause := firstPause; pause <= lastPause; pause *= 2 {
		switch m.tryFew(r, parts, &now) {
		case decided:
			answer(r, parts, out, d)
			return true
		case impossible:
			return false
		}
		for range pause { // see tryAgain
		}
	}
	return false
}

// find finds the slots of a request's asks. It reports whether all have one, and nothing
// else keeps takeFew from deciding.
func (m *Memory) find(r *Request, parts []part) bool {
	var hash uint64
	for i := range parts {
		a, p := &r.Asks[i], &parts[i]
		if a.Penalty != nil || a.MaxDelay != 0 {
			return false
		}
		if p.number = a.Limit.number(); p.number == noPlan {
			return false
		}
		if i == 0 || a.Key != r.Asks[i-1].Key { // most requests ask about one key
			hash = m.hash(a.Key)
		}
		p.shard, p.print = m.shardOf(hash), printOf(hash, a.Limit.salt)
		if p.slot = p.shard.table.Load().find(p.print); !p.slot.found() {
			return false
		}
	}
	return true
}

type attempt uint8

const (
	again      attempt = iota // a word was locked, or changed meanwhile
	decided                   // all is written down, and nothing is locked
	impossible                // that takes the shard's lock
)

// tryFew decides a request. Nothing stays locked.
func (m *Memory) tryFew(r *Request, parts []part, now *int64) attempt {
	allowed := true
	for i := range parts {
		a, p := &r.Asks[i], &parts[i]
		p.word, p.base = p.slot.word.Load(), p.slot.base.Load()
		if !isFree(p.word) {
			return stop(parts[:i], again)
		}
		if numberIn(p.base) != p.number || p.slot.print.Load() != p.print {
			return stop(parts[:i], impossible)
		}
		if !a.Limit.plan.Small() {
			if !p.lock() {
				return stop(parts[:i+1], again)
			}
			if p.last = lastIn(p.word); p.last > *now && r.At.IsZero() {
				*now = m.clock()
				return stop(parts[:i+1], again)
			}
			p.block = blockIn(p.base)
			if !p.look(&a.Limit.plan, *now, a.Units()) {
				return stop(parts[:i+1], impossible)
			}
		} else {
			last, used := read(p.word, p.base, &a.Limit.plan)
			if last > *now && r.At.IsZero() { // charged since the clock was read
				*now = m.clock()
				return stop(parts[:i], again)
			}
			p.last, p.used = a.Limit.plan.DecideSmall(last, used, *now, a.Units(), &p.verdict)
			p.next, p.fits = pack(p.last, p.used, p.base, &a.Limit.plan)
		}
		allowed = allowed && p.verdict.Allowed
	}
	for i := range parts {
		if !parts[i].locked && !parts[i].lock() {
			return stop(parts, again)
		}
	}
	for i := range parts {
		parts[i].settle(&r.Asks[i], *now, allowed)
	}
	return decided
}

// lock locks a part's word if it and all else of the slot is as it was read.
func (p *part) lock() bool {
	if !p.slot.word.CompareAndSwap(p.word, p.word|lockedBit) {
		return false
	}
	p.locked = true
	return p.slot.base.Load() == p.base && p.slot.print.Load() == p.print
}

// stop unlocks the words of parts.
func stop(parts []part, why attempt) attempt {
	for i := range parts {
		if p := &parts[i]; p.locked {
			p.locked = false
			p.slot.word.Store(p.word)
		}
	}
	return why
}

// look looks at a locked count in a block, as Plan.Look and Fits do. It reports whether
// the block has room for a charge.
func (p *part) look(plan *algo.Plan, now, cost int64) bool {
	state := p.shard.blocks.state(plan, p.last, p.block)
	p.view = plan.Look(&state, now)
	p.verdict.Allowed = plan.Fits(&p.view, cost)
	return !p.verdict.Allowed || cost == 0 || p.shard.blocks.fits(plan, &state, &p.view, p.block)
}

// settle ends the decision about one locked count: it charges it if the request is
// allowed, and unlocks it.
func (p *part) settle(a *Ask, now int64, allowed bool) {
	plan, units := &a.Limit.plan, a.Units()
	charged := allowed && units > 0
	p.locked = false
	if p.block != 0 {
		p.settleBlock(plan, units, allowed)
	} else if !allowed && p.verdict.Allowed { // decided as if the whole request were
		last, used := read(p.word, p.base, plan)
		v := plan.LookSmall(last, used, now)
		p.verdict = plan.SettleSmall(&v, units, false)
	}
	switch {
	case !charged:
		p.slot.word.Store(p.word)
	case p.block != 0:
		p.slot.word.Store(uint64(p.last) | p.word&editions)
	case p.fits:
		p.slot.word.Store(p.next | p.word&editions)
	default:
		base := baseOf(p.last, p.number)
		next, _ := pack(p.last, p.used, base, plan) // it fits; see move
		p.slot.base.Store(base)
		p.slot.word.Store(next | nextEdition(p.word))
	}
}

func (p *part) settleBlock(plan *algo.Plan, cost int64, allowed bool) {
	state := p.shard.blocks.state(plan, p.last, p.block)
	if allowed && cost > 0 {
		p.shard.blocks.makeRoom(plan, &state, &p.view, p.block)
	}
	p.verdict = plan.Settle(&state, &p.view, cost, allowed)
	if allowed && cost > 0 {
		p.shard.blocks.close(plan, &state, p.block)
		p.last = state.Last
	}
}

// answer puts the verdicts in the caller's words; see Strictest.
func answer(r *Request, parts []part, out []Decision, d *Decision) {
	for i := range out {
		out[i] = Decision{}
		out[i].tell(r.Asks[i].Key, r.Asks[i].Limit, &parts[i].verdict)
	}
	at, delay := 0, parts[0].verdict.Delay
	for i := 1; i < len(parts); i++ {
		delay = max(delay, parts[i].verdict.Delay)
		if parts[i].verdict.StricterThan(&parts[at].verdict) {
			at = i
		}
	}
	whole := parts[at].verdict
	whole.Delay = delay
	d.tell(r.Asks[at].Key, r.Asks[at].Limit, &whole)
}
