package stint

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stintdev/stint/internal/algo"
)

// shard holds all counts of its keys, so that the limits of one key are decided
// under one lock: in its table, with blocks where a word is not enough, and what has
// no place there in its map.
type shard struct {
	mu     sync.Mutex
	table  atomic.Pointer[table]
	blocks *blocks // nil: no count ever had one
	index  map[uint64]*entry
	all    []*entry // the same, in no order
	hand   int      // where in all to look next for what may go
	room   int
	// reserved is how much of the room the request that is looking will take.
	reserved int
	_        [64]byte // its neighbour's lock lies in another cache line
}

// entry is a count that does not lie in a table: of a penalty, of a plan without a
// number, and what found no slot.
type entry struct {
	print  uint64
	place  int32     // in shard.all
	pinned bool      // found by the request that is now looking for room
	unused int64     // the instant from which it may be dropped, µs
	apart  *apart    // a count under a limit, or nil
	record *punished // else a record under a penalty
}

// apart is a count under a limit that lies in the map.
type apart struct {
	plan   *algo.Plan // of the last charge
	number uint32     // of plan; noPlan: it cannot be in a table
	state  algo.State
}

// punished is a key's record under a penalty.
type punished struct {
	algo.Record
	penalty *Penalty
	key     string // or its hash, where that is shorter
	hashed  bool
}

func (s *shard) open(room int) {
	s.room, s.index = room, make(map[uint64]*entry)
	s.table.Store(new(table))
}

// counts is how many counts the shard holds.
func (s *shard) counts() int { return s.table.Load().used + len(s.all) }

// add adds an unused entry.
func (s *shard) add(print uint64) *entry {
	e := &entry{print: print, place: int32(len(s.all))}
	s.index[print] = e
	s.all = append(s.all, e)
	return e
}

// remove forgets e; nil is nothing to forget.
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

// makeRoom makes room for a count, at the expense of another if need be; see victim.
func (s *shard) makeRoom(now, cost int64, unused bool) bool {
	if s.counts() < s.room {
		return true
	}
	v := s.victim(now, cost, unused)
	if v.found() {
		s.evict(&v)
	}
	return v.found()
}

// keep takes a count that was charged under l and is not there yet into the table,
// where that can be, else into the map. at is its block, if it has one.
func (s *shard) keep(print uint64, state *algo.State, at block, l *Limit, unused int64) {
	number := l.number()
	if number != noPlan {
		if s.table.Load().isFull() {
			s.grow()
		}
		if s.table.Load().put(print, state, number, at) {
			return
		}
	}
	s.keepApart(print, s.unblock(state, at, &l.plan), number, &l.plan, unused)
}

// keepApart takes a count into the map.
func (s *shard) keepApart(print uint64, state algo.State, number uint32, p *algo.Plan, unused int64) {
	e := s.add(print)
	e.apart, e.unused = &apart{p, number, state}, unused
}

// unblock frees the block of a count, if it has one, and returns its state, which no
// longer needs it.
func (s *shard) unblock(state *algo.State, at block, p *algo.Plan) algo.State {
	free := *state
	if at != 0 {
		free.Counts, free.Marks = slices.Clone(free.Counts), slices.Clone(free.Marks)
		s.blocks.release(p, at)
	}
	return free
}

// state is what a locked slot holds, and its block if it has one, and the number of the
// plan that it was charged under. word is what the slot's was.
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

// grow moves the counts, none of which may be locked by the caller, into a larger table,
// and from the map those that had found no slot. In the old table they stay locked, so
// that whoever still looks there waits for the shard, and then looks here.
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

// newBlock moves a state into a block, an unused one as well.
func (s *shard) newBlock(p *algo.Plan, state *algo.State) block {
	if s.blocks == nil {
		s.blocks = new(blocks)
	}
	return s.blocks.alloc(p, state)
}

// sweep looks at some counts for each one that comes in, so that what is unused
// goes sooner than it comes, and no request ever waits for a walk over all.
func (s *shard) sweep(now int64) {
	for range min(2, len(s.all)) {
		s.hand %= len(s.all)
		if e := s.all[s.hand]; !e.pinned && e.unused <= now {
			s.remove(e)
			if len(s.all) == 0 {
				break
			}
		} else {
			s.hand++
		}
	}
	t := s.table.Load()
	for range min(4, slotsInGroup*len(t.groups)) {
		if o := t.next(); o.print.Load() != 0 && !o.isLocked() {
			if word := o.lock(); s.share(o, word, now, 1) <= 0 {
				s.drop(o, word)
			} else {
				o.word.Store(word)
			}
		}
	}
}

// next is the slot at the hand, which goes on.
func (t *table) next() slot {
	t.hand %= slotsInGroup * len(t.groups)
	s := t.groups[t.hand/slotsInGroup].slot(t.hand % slotsInGroup)
	t.hand++
	return s
}

// victim is a count that gives way to another, pinned. The zero victim is none.
type victim struct {
	entry *entry
	slot  slot
	word  uint64 // the slot's, from before it was locked
	shard *shard // for who finds several
}

func (v *victim) found() bool { return v.entry != nil || v.slot.found() }

// spare lets a victim be.
func (v *victim) spare() {
	if v.slot.found() {
		v.slot.word.Store(v.word)
	} else if v.entry != nil {
		v.entry.pinned = false
	}
}

// evict forgets a victim.
func (s *shard) evict(v *victim) {
	if v.slot.found() {
		s.drop(v.slot, v.word)
	} else {
		s.remove(v.entry)
	}
}

// A request that finds the shard full looks at victimsSeen counts, and where none of
// them may go, on to mostSeen.
const (
	victimsSeen = 32
	mostSeen    = 128
)

// victim finds the count to give way: an unused one, else, unless only that will
// do, the one with the smallest share used of those that are neither exhausted nor
// banned. cost is the smallest that is asked; see Memory.least.
func (s *shard) victim(now, cost int64, unused bool) (v victim) {
	for range 4 { // a slot may be charged until it is locked
		v.entry, v.slot = s.candidate(now, cost, unused)
		switch {
		case v.entry != nil:
			v.entry.pinned = true
			return v
		case !v.slot.found():
			return v
		}
		v.word = v.slot.lock()
		if share := s.share(v.slot, v.word, now, cost); share <= 0 || share < 1 && !unused {
			return v
		}
		v.spare()
	}
	return victim{}
}

func (s *shard) candidate(now, cost int64, unused bool) (entry *entry, at slot) {
	least := 1.0
	t := s.table.Load()
	for seen, i := 0, 0; !enough(seen, at.found()) && i < slotsInGroup*len(t.groups); i++ {
		o := t.next()
		if o.print.Load() == 0 || o.isLocked() {
			continue
		}
		seen++
		word := o.lock()
		share := s.share(o, word, now, cost)
		o.word.Store(word)
		if share <= 0 {
			return nil, o
		}
		if share < least && !unused {
			least, at = share, o
		}
	}
	for i := range len(s.all) {
		if enough(i, entry != nil) {
			break
		}
		s.hand %= len(s.all)
		e := s.all[s.hand]
		s.hand++
		if e.pinned {
			continue
		}
		if e.unused <= now {
			return e, slot{}
		}
		if share := e.share(now, cost); share < least && !unused {
			least, entry, at = share, e, slot{}
		}
	}
	return entry, at
}

func enough(seen int, found bool) bool { return seen >= mostSeen || found && seen >= victimsSeen }

// share is how much of what it may use a count has used; 0: it is unused; 1: it must
// not be forgotten, for no request of such a cost is allowed any more. The slot must be
// locked, and word is what its was.
func (s *shard) share(o slot, word uint64, now, cost int64) float64 {
	state, _, number := s.state(o, word)
	return share(planOf(number), &state, now, cost)
}

func (e *entry) share(now, cost int64) float64 {
	if r := e.record; r != nil {
		if r.penalty.plan.BanLeft(&r.Record, now) > 0 {
			return 1
		}
		return 0.99 // violations count for more than most
	}
	return share(e.apart.plan, &e.apart.state, now, cost)
}

func share(p *algo.Plan, state *algo.State, now, cost int64) float64 {
	v := p.Look(state, now)
	if v.Used == 0 {
		return 0
	}
	if !p.Fits(&v, max(1, min(cost, p.Capacity))) {
		return 1
	}
	return float64(v.Used) / float64(p.Full)
}
