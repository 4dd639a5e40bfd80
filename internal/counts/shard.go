package counts

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stintdev/stint/internal/algo"
)

// shard holds all counts of its keys, so that one lock serves the limits of a key.
type shard struct {
	mu     sync.Mutex
	table  atomic.Pointer[table]
	blocks *blocks // nil: no count ever had one
	index  map[uint64]*entry
	all    []*entry // the same, in no order
	hand   int      // index in all for the next search for a victim
	room   int
	// reserved is how much room the current request will take.
	reserved int
	holds    holds
	_        [64]byte // keeps the neighbour's lock in another cache line
}

// entry is a count outside the table: a penalty's, of a plan without a number, or without a slot.
type entry struct {
	print  uint64
	place  int32     // in shard.all
	pinned bool      // found by the request that now needs room
	unused int64     // the instant from which it may be dropped, µs
	apart  *apart    // a count under a limit, or nil
	record *punished // else a record under a penalty
}

type apart struct {
	plan   *algo.Plan // of the last charge
	number uint32     // of plan; noPlan: it cannot be in a table
	state  algo.State
}

type punished struct {
	algo.Record
	penalty *Penalty
	key     string // or its hash, if that is shorter
	hashed  bool
}

func (s *shard) open(room int) {
	s.room, s.index = room, make(map[uint64]*entry)
	s.table.Store(new(table))
}

// counts is how many counts the shard holds.
func (s *shard) counts() int { return s.table.Load().used + len(s.all) }

func (s *shard) add(print uint64) *entry {
	e := &entry{print: print, place: int32(len(s.all))}
	s.index[print] = e
	s.all = append(s.all, e)
	return e
}

// remove forgets e, which may be nil.
func (s *shard) remove(e *entry) {
	if e == nil {
		return
	}
	delete(s.index, e.print)
	last := len(s.all) - 1
	s.all[e.place] = s.all[last]
	s.all[e.place].place = e.place
	s.all[last] = nil
	s.all = slices.Delete(s.all, last, last+1)
}

// keep takes a new count into the table if possible, else into the map. at is its block, if any.
func (s *shard) keep(print uint64, state *algo.State, at block, l *Limit, unused int64) {
	number := l.planNumber()
	if number != noPlan {
		if s.table.Load().isFull() {
			s.grow()
		}
		if s.table.Load().put(print, state, number, at) {
			return
		}
	}
	s.keepApart(print, s.unblock(state, at, &l.Plan), number, &l.Plan, unused)
}

func (s *shard) keepApart(print uint64, state algo.State, number uint32, p *algo.Plan, unused int64) {
	e := s.add(print)
	e.apart, e.unused = &apart{p, number, state}, unused
}

// unblock frees a count's block, if any, and returns its state.
func (s *shard) unblock(state *algo.State, at block, p *algo.Plan) algo.State {
	free := *state
	if at != 0 {
		free.Counts, free.Marks = slices.Clone(free.Counts), slices.Clone(free.Marks)
		s.blocks.release(p, at)
	}
	return free
}

// state returns the content of a locked slot; word is its word from before.
func (s *shard) state(o slot, word uint64) (state algo.State, at block, number uint32) {
	base := o.base.Load()
	number = numberIn(base)
	if p := planOf(number); p.Small() {
		last, used := read(word, base, p)
		state = p.SmallState(last, used)
	} else {
		at = blockIn(base)
		state = s.blocks.state(p, lastIn(word), at)
	}
	return state, at, number
}

// drop forgets the count of a locked slot, and unlocks it.
func (s *shard) drop(o slot, word uint64) {
	base := o.base.Load()
	if p := planOf(numberIn(base)); !p.Small() {
		s.blocks.release(p, blockIn(base))
	}
	s.table.Load().remove(o, word)
}

// grow moves the counts, none locked by the caller, into a larger table, together with those in the
// map that had no slot. They stay locked in the old table, so that requests that find them there
// wait for the shard and then use the new one.
func (s *shard) grow() {
	old := s.table.Load()
	larger := old.larger()
	for i := range old.groups {
		for j := range slotsInGroup {
			o := old.groups[i].slot(j)
			print := o.print.Load()
			if print == 0 {
				continue
			}
			state, at, number := s.state(o, o.lock())
			if !larger.put(print, &state, number, at) {
				p := planOf(number)
				v := p.Look(&state, state.Last)
				unused := state.Last + p.Settle(&state, &v, 0, false).Reset
				s.keepApart(print, s.unblock(&state, at, p), number, p, unused)
			}
		}
	}
	for i := len(s.all) - 1; i >= 0; i-- {
		if e := s.all[i]; e.apart != nil && e.apart.number != noPlan && s.putEntry(larger, e) {
			s.remove(e)
		}
	}
	s.table.Store(larger)
}

// putEntry puts an entry's count into a table, if there is a place.
func (s *shard) putEntry(t *table, e *entry) bool {
	var at block
	c := e.apart
	if !c.plan.Small() {
		at = s.newBlock(c.plan, &c.state)
	}
	if t.put(e.print, &c.state, c.number, at) {
		return true
	}
	c.state = s.unblock(&c.state, at, c.plan)
	return false
}

func (s *shard) newBlock(p *algo.Plan, state *algo.State) block {
	if s.blocks == nil {
		s.blocks = new(blocks)
	}
	return s.blocks.alloc(p, state)
}
