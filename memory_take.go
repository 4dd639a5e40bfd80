package stint

import (
	"math"
	"runtime"
	"slices"

	"github.com/stintdev/stint/internal/algo"
)

// ownClock stands for the instant at which a Memory decides by its own clock.
const ownClock = math.MinInt64

// takeOne decides about a count that lies in a table, without the shard's lock. ok is
// false where that takes more, or the request is malformed, and then d is as it was. d
// must be zero. See table.
func (m *Memory) takeOne(key string, limit *Limit, cost, at int64, d *Decision) (ok bool) {
	if limit == nil || key == "" || len(key) > MaxKey || cost < 0 || !m.ready.Load() {
		return false
	}
	number := limit.number()
	if number == noPlan {
		return false
	}
	hash := m.hash(key)
	// Reading the clock waits for all that is being read from memory. So it comes before
	// the count, for which then only what comes after waits.
	now := at
	if at == ownClock {
		now = m.clock()
	}
	print := printOf(hash, limit.salt)
	sh := m.shardOf(hash)
	s := sh.table.Load().find(print)
	if !s.found() {
		return false
	}
	p := &limit.plan
	var v algo.Verdict
	if !p.Small() {
		if ok = m.takeBlock(sh, s, print, limit, cost, at, now, &v); ok {
			d.tell(key, limit, &v)
		}
		return ok
	}
	for {
		word, base := s.word.Load(), s.base.Load()
		if word&lockedBit != 0 || word&editions == moving || numberIn(base) != number || s.print.Load() != print {
			return false
		}
		last, used := read(word, base, p)
		if last > now && at == ownClock { // charged since the clock was read
			now = m.clock()
		}
		last, used = p.DecideSmall(last, used, now, cost, &v)
		if !v.Allowed || cost == 0 {
			if s.word.Load() != word { // base may be another's
				continue
			}
		} else {
			next, fits := pack(last, used, base, p)
			if fits && !s.word.CompareAndSwap(word, next|word&editions) ||
				!fits && !s.move(word, last, used, number, p) {
				continue
			}
		}
		d.tell(key, limit, &v)
		return true
	}
}

// takeBlock is takeOne for a count in a block, whose slot it locks.
func (m *Memory) takeBlock(sh *shard, s slot, print uint64, limit *Limit, cost, at, now int64, d *algo.Verdict) (ok bool) {
	word, ok := s.tryLock()
	if !ok {
		return false
	}
	p, base := &limit.plan, s.base.Load()
	if numberIn(base) != limit.number() || s.print.Load() != print {
		s.word.Store(word)
		return false
	}
	if lastIn(word) > now && at == ownClock { // charged since the clock was read
		now = m.clock()
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

// count is where a request found a count, or did not. Its shard is locked, and so
// is its slot, if it has one, until it is kept or forgotten.
type count struct {
	shard  *shard
	print  uint64
	entry  *entry
	slot   slot
	word   uint64 // the slot's, from before it was locked
	block  block  // of a count that has or is to have a slot; 0: it has no block
	number uint32 // of the plan under which the slot's state came about
	opened algo.State
}

// look looks for the count of a into c, which must be zero.
func (m *Memory) look(a *Ask, c *count) { m.lookBeside(a, c, nil) }

// lookBeside is look where the request has found and locked other counts before. It
// reports false where this is one of them, by asks that Check refuses.
func (m *Memory) lookBeside(a *Ask, c *count, found []step) bool {
	hash := m.hash(a.Key)
	c.shard, c.print = m.shardOf(hash), printOf(hash, a.Limit.salt)
	if c.slot = c.shard.table.Load().find(c.print); c.slot.found() {
		for ok := false; !ok; {
			if c.word, ok = c.slot.tryLock(); !ok {
				if slices.ContainsFunc(found, func(s step) bool { return s.slot == c.slot }) {
					return false
				}
				runtime.Gosched()
			}
		}
		c.opened, c.block, c.number = c.shard.state(c.slot, c.word)
		if planOf(c.number).Kind == a.Limit.plan.Kind {
			return true
		}
		// Two prints that are equal by chance, and states that cannot be.
		c.forget()
		*c = count{shard: c.shard, print: c.print}
	}
	c.entry = c.shard.index[c.print]
	return true
}

func (c *count) found() bool { return c.slot.found() || c.entry != nil }

// state may be changed, by Refund, or by Settle after prepare, and is zero where nothing was found.
func (c *count) state() *algo.State {
	if c.entry != nil {
		return &c.entry.apart.state
	}
	return &c.opened
}

// prepare sees to it that a count that belongs in a block, and is about to be charged at
// v, has room in one.
func (c *count) prepare(l *Limit, v *algo.View) {
	p := &l.plan
	switch {
	case p.Small() || c.entry != nil || l.number() == noPlan:
	case c.block == 0:
		c.block = c.shard.newBlock(p, &c.opened)
	case !c.shard.blocks.fits(p, &c.opened, v, c.block):
		c.block = c.shard.blocks.resize(&c.opened, v, c.block)
	default:
		c.shard.blocks.makeRoom(p, &c.opened, v, c.block)
	}
}

// release leaves the count as it was found.
func (c *count) release() {
	if c.slot.found() {
		c.slot.word.Store(c.word)
	}
}

// forget drops a count that was found.
func (c *count) forget() {
	if c.slot.found() {
		c.shard.drop(c.slot, c.word)
	} else {
		c.shard.remove(c.entry)
	}
}

// keep keeps the state of a count that was found, after a refund.
func (c *count) keep() {
	switch {
	case !c.slot.found():
	case c.block != 0:
		c.shard.blocks.close(planOf(c.number), &c.opened, c.block)
		c.release()
	case !c.slot.set(c.word, &c.opened, c.number):
		c.release() // it cannot be: what fitted does so with less used
	}
}

// charged keeps the state of a count that was charged under l, where the count was
// found and has a place for that. If not, add has to be called when no count of the
// request is locked any more.
func (c *count) charged(l *Limit, unused int64) (kept bool) {
	number := l.number()
	switch {
	case c.entry != nil:
		c.entry.apart.plan, c.entry.apart.number, c.entry.unused = &l.plan, number, unused
		return true
	case !c.slot.found():
		if c.block != 0 {
			c.shard.blocks.close(&l.plan, &c.opened, c.block)
		}
		return false
	case c.block != 0 && number != noPlan:
		c.shard.blocks.close(&l.plan, &c.opened, c.block)
		c.slot.setBlock(c.word, c.opened.Last, c.block, number)
		return true
	case c.block == 0 && c.slot.set(c.word, &c.opened, number):
		return true
	}
	c.opened = c.shard.unblock(&c.opened, c.block, &l.plan)
	c.shard.table.Load().remove(c.slot, c.word)
	c.slot, c.block = slot{}, 0
	return false
}

// add takes a count that was charged under l and has no place yet into the shard.
func (c *count) add(l *Limit, unused int64) {
	c.shard.keep(c.print, &c.opened, c.block, l, unused)
}

// step is what is known of one ask between looking and settling.
type step struct {
	count
	view    algo.View
	fits    bool
	charged bool  // and its count is to be added
	unused  int64 // the instant from which it then is unused
}

// fewAsks is how many asks are decided without allocating.
const fewAsks = 8

func (m *Memory) take(r *Request, now int64, out []Decision) (Decision, error) {
	d, stale := m.banned(r, now)
	if d.BanLeft > 0 {
		m.awaitLimits(r, now, &d)
		return d, nil
	}
	var steps []step
	switch n := len(r.Asks); { // on the stack, and no more of it than that takes
	case n == 1:
		var one [1]step
		steps = one[:]
	case n <= fewAsks:
		var few [fewAsks]step
		steps = few[:n]
	default:
		steps = make([]step, n)
	}
	allowed := true
	for i := range steps {
		a, s := &r.Asks[i], &steps[i]
		if a.Limit == nil {
			s.fits = true
			continue
		}
		if !m.lookBeside(a, &s.count, steps[:i]) {
			for j := range steps[:i] {
				steps[j].release()
			}
			return Decision{}, a.duplicate()
		}
		s.view = a.Limit.plan.Look(s.state(), now)
		s.fits = a.within().Fits(&s.view, a.Units())
		allowed = allowed && s.fits
	}
	if allowed {
		if err := m.place(r, steps, now); err != nil {
			for i := range steps {
				steps[i].release()
			}
			return Decision{}, err
		}
	}
	d = settle(r, steps, allowed, out)
	if !allowed {
		m.punish(r, steps, now, &d)
	} else if stale {
		m.dropStale(r, now)
	}
	return d, nil
}

// place finds room for the counts that are about to be charged and are not there
// yet: for all of them, or none, and then nothing has given way.
func (m *Memory) place(r *Request, steps []step, now int64) error {
	missing := 0
	for i := range steps {
		if e := steps[i].entry; e != nil {
			e.pinned = true
		}
		if !steps[i].found() && r.Asks[i].Units() > 0 {
			missing++
		}
	}
	var err error
	if missing > 0 {
		err = m.placeMissing(r, steps, now)
	}
	for i := range steps {
		if e := steps[i].entry; e != nil {
			e.pinned = false
		}
	}
	return err
}

func (m *Memory) placeMissing(r *Request, steps []step, now int64) error {
	var victims []victim
	full := false
	for i := range steps {
		s := steps[i].shard
		if steps[i].found() || r.Asks[i].Units() == 0 {
			continue
		}
		m.sweep(s, r, now)
		if s.counts()+s.reserved < s.room {
			s.reserved++
			continue
		}
		v := s.victim(now, m.least.Load(), false)
		if full = !v.found(); full {
			break
		}
		v.shard = s
		victims = append(victims, v)
	}
	for i := range steps {
		if s := steps[i].shard; s != nil {
			s.reserved = 0
		}
	}
	for i := range victims {
		if full {
			victims[i].spare()
		} else {
			victims[i].shard.evict(&victims[i])
		}
	}
	if full {
		return ErrFull
	}
	return nil
}

// sweep is shard.sweep, where that may be. Where the caller gives the instant,
// which may lie before another that was given, what is unused at this one goes
// only if room is needed.
func (m *Memory) sweep(s *shard, r *Request, now int64) {
	if r.At.IsZero() {
		s.sweep(now)
	}
}

// settle ends the decision: it charges the counts or lets them be, and says how
// they stand. Those that are new come last, for a table may grow for them, and no
// slot may be locked then.
func settle(r *Request, steps []step, allowed bool, out []Decision) Decision {
	if n := len(steps); out == nil {
		switch {
		case n == 1:
			var one [1]Decision
			out = one[:]
		case n <= fewAsks:
			var few [fewAsks]Decision
			out = few[:n]
		default:
			out = make([]Decision, n)
		}
	}
	for i := range steps {
		a, s := &r.Asks[i], &steps[i]
		if a.Limit == nil {
			out[i] = Decision{Allowed: true, Outcome: Allowed, Key: a.Key}
			continue
		}
		if allowed && a.Units() > 0 {
			s.prepare(a.Limit, &s.view)
		}
		v := a.settle(s.state(), &s.view, allowed)
		out[i] = Decision{}
		out[i].tell(a.Key, a.Limit, &v)
		if !allowed || a.Units() == 0 {
			s.release()
			continue
		}
		s.unused = s.view.Now + v.Reset
		s.charged = !s.count.charged(a.Limit, s.unused)
	}
	for i := range steps {
		if s := &steps[i]; s.charged {
			s.add(r.Asks[i].Limit, s.unused)
		}
	}
	return Strictest(out)
}
