package counts

import (
	"runtime"
	"slices"

	"github.com/stintdev/stint/internal/algo"
)

// count is the place of a count, if a request found one. Shard and slot stay locked until it is
// kept or forgotten.
type count struct {
	shard  *shard
	print  uint64
	entry  *entry
	slot   slot
	word   uint64 // the slot's, from before it was locked
	block  block  // of a count in a slot, or for one; 0: none
	number uint32 // of the plan of the slot's state
	opened algo.State
}

// look looks for the count of a key under a limit into c, which must be zero.
func (m *Memory) look(key string, l *Limit, c *count) { m.lookBeside(key, l, c, nil) }

// lookBeside is look after others were found. It returns false if this count is one of them.
func (m *Memory) lookBeside(key string, l *Limit, c *count, found []step) bool {
	hash := m.hash(key)
	c.shard, c.print = m.shardOf(hash), printOf(hash, l.Salt)
	_ = l.planNumber() // without it, the next request comes here as well
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
		if planOf(c.number).Kind == l.Plan.Kind {
			return true
		}
		// Two prints are equal by chance: the state is impossible.
		c.forget()
		*c = count{shard: c.shard, print: c.print}
	}
	c.entry = c.shard.index[c.print]
	return true
}

func (c *count) found() bool { return c.slot.found() || c.entry != nil }

// state may be changed by Refund, or by Settle after prepare. It is zero if nothing was found.
func (c *count) state() *algo.State {
	if c.entry != nil {
		return &c.entry.apart.state
	}
	return &c.opened
}

// plan is the plan of the last charge of a count that was found.
func (c *count) plan() *algo.Plan {
	if c.entry != nil {
		return c.entry.apart.plan
	}
	return planOf(c.number)
}

// prepare makes room in the block of a count that is about to be charged at v.
func (c *count) prepare(l *Limit, v *algo.View) {
	p := &l.Plan
	switch {
	case p.Small() || c.entry != nil || l.planNumber() == noPlan:
	case c.block == 0:
		c.block = c.shard.newBlock(p, &c.opened)
	case !c.shard.blocks.fits(p, &c.opened, v, c.block):
		c.block = c.shard.blocks.resize(&c.opened, v, c.block)
	default:
		c.shard.blocks.makeRoom(p, &c.opened, v, c.block)
	}
}

func (c *count) release() {
	if c.slot.found() {
		c.slot.word.Store(c.word)
	}
}

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
		c.release() // impossible: a count that fitted also fits with less used
	}
}

// charged keeps a count that was found and charged under l. If not kept, add must be called when
// no count of the request is locked.
func (c *count) charged(l *Limit, unused int64) (kept bool) {
	number := l.planNumber()
	switch {
	case c.entry != nil:
		c.entry.apart.plan, c.entry.apart.number, c.entry.unused = &l.Plan, number, unused
		return true
	case !c.slot.found():
		if c.block != 0 {
			c.shard.blocks.close(&l.Plan, &c.opened, c.block)
		}
		return false
	case c.block != 0 && number != noPlan:
		c.shard.blocks.close(&l.Plan, &c.opened, c.block)
		c.slot.setBlock(c.word, c.opened.Last, c.block, number)
		return true
	case c.block == 0 && c.slot.set(c.word, &c.opened, number):
		return true
	}
	c.opened = c.shard.unblock(&c.opened, c.block, &l.Plan)
	c.shard.table.Load().remove(c.slot, c.word)
	c.slot, c.block = slot{}, 0
	return false
}

// add takes a count that was charged under l and has no place yet into the shard.
func (c *count) add(l *Limit, unused int64) {
	c.shard.keep(c.print, &c.opened, c.block, l, unused)
}
