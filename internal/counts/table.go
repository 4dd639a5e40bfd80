package counts

import (
	"math/bits"
	"runtime"
	"sync/atomic"

	"github.com/stintdev/stint/internal/algo"
)

// A table holds the counts of a shard: 24 bytes each, without pointers, where the
// garbage collector has nothing to look at. That is all for a bucket or a fixed window, which are
// two numbers; the rest of other counts is in blocks. A count may be in either of two groups of
// eight; it goes into the emptier one, so that a table can be filled to 88 %. The few without a
// place are in the shard's map, with the records of penalties.
//
// Keys are distinguished by a keyed hash of 64 bits of the key and the limit's ID. Among n counts,
// two are taken for one with a probability of n²/2^65: 1 in 37 million for a million counts.
//
// A request of one bucket or fixed window in the table is decided without a lock: it reads the
// clock, then the count, and swaps the count if it is still the same; a refusal writes nothing. A
// few counts in the table, and those in blocks, are decided with only their words locked; see
// takeFew. All else happens under the shard's lock, with the words of its counts locked.
//
// A request with the shard's lock waits for locked words. One without it waits for nothing while it
// has locked a word. So there is no deadlock.
type table struct {
	groups []group
	used   int // taken slots
	hand   int // next slot to search for a victim
}

// group has its prints in one cache line, and its cells in two more, four in each.
type group struct {
	prints [slotsInGroup]atomic.Uint64 // 0: free
	cells  [slotsInGroup]cell
}

const slotsInGroup = 8

// cell is a count. Its word is, from the top: locked; edition, which changes whenever anything
// but the word does; the last charge's instant from base on; what is used, in the plan's bits.
type cell struct {
	word atomic.Uint64
	base atomic.Uint64 // an instant in units of 1,024 µs, and the plan's number in the lowest 22 bits
}

// slot is a place for a count. The zero slot: none.
type slot struct {
	*cell
	print *atomic.Uint64
}

func (s slot) found() bool { return s.cell != nil }

const (
	lockedBit  = 1 << 63
	editionBit = 1 << 60
	stateBits  = 60
	editions   = lockedBit - editionBit
	moving     = editions // the edition of a slot whose base is about to change
	planBits   = 22
	baseShift  = 10
)

func printOf(hash, salt uint64) uint64 {
	hi, lo := bits.Mul64(hash^0xa0761d6478bd642f, salt^0xe7037ed1a0b428db)
	return max(1, hi^lo)
}

func (t *table) groupsOf(print uint64) (*group, *group) {
	n := uint64(len(t.groups))
	return &t.groups[print>>32*n>>32], &t.groups[print&(1<<32-1)*n>>32]
}

// find returns the slot of a count, if it has one.
func (t *table) find(print uint64) slot {
	if len(t.groups) == 0 {
		return slot{}
	}
	first, second := t.groupsOf(print)
	// These loads only prefetch: all lines that the count may be in are fetched at once, not the
	// cell's after the prints', which halves the wait.
	first.cells[0].word.Load()
	first.cells[slotsInGroup/2].word.Load()
	second.cells[0].word.Load()
	second.cells[slotsInGroup/2].word.Load()
	for i := range first.prints {
		if first.prints[i].Load() == print {
			return first.slot(i)
		}
		if second.prints[i].Load() == print {
			return second.slot(i)
		}
	}
	return slot{}
}

func (g *group) slot(i int) slot { return slot{&g.cells[i], &g.prints[i]} }

func (t *table) free(print uint64) slot {
	first, second := t.groupsOf(print)
	a, n := first.free()
	b, m := second.free()
	if m > n {
		return b
	}
	return a
}

func (g *group) free() (s slot, n int) {
	for i := range g.prints {
		if g.prints[i].Load() == 0 {
			s = g.slot(i)
			n++
		}
	}
	return s, n
}

// lock locks a slot's word and returns it. The shard must be locked, the word not by the caller.
func (s slot) lock() uint64 {
	for {
		if word, ok := s.tryLock(); ok {
			return word
		}
		runtime.Gosched()
	}
}

// tryLock is lock for callers that must not wait. Words of a replaced table stay locked.
func (s slot) tryLock() (word uint64, ok bool) {
	w := s.word.Load()
	if isFree(w) && s.word.CompareAndSwap(w, w|lockedBit) {
		return w, true
	}
	return s.tryAgain()
}

// tryAgain repeats tryLock, more and more slowly: a processor then keeps the word in its cache for
// several decisions. That is unfair, but faster than passing it on.
func (s slot) tryAgain() (word uint64, ok bool) {
	for pause := firstPause; pause <= lastPause; pause *= 2 {
		for range pause { // a cycle each
		}
		w := s.word.Load()
		if isFree(w) && s.word.CompareAndSwap(w, w|lockedBit) {
			return w, true
		}
	}
	return 0, false
}

const (
	firstPause = 1024
	lastPause  = 16384
)

// isFree reports whether a word is neither locked nor moving.
func isFree(word uint64) bool { return word&lockedBit == 0 && word&editions != moving }

// nextEdition is the edition after that of word.
func nextEdition(word uint64) uint64 {
	if e := word&editions + editionBit; e < moving {
		return e
	}
	return 0
}

// isLocked reports whether any goroutine has locked the slot.
func (s slot) isLocked() bool { return s.word.Load()&lockedBit != 0 }

// read splits a word. base is the same slot's.
func read(word, base uint64, p *algo.Plan) (last, used int64) {
	width := p.UsedBits() & 63 // spares a shift its check
	state := word & (editionBit - 1)
	return int64(base>>planBits<<baseShift + state>>width), int64(state & (1<<width - 1))
}

// pack is the inverse of read, with edition 0; not ok: the numbers do not fit.
func pack(last, used int64, base uint64, p *algo.Plan) (word uint64, ok bool) {
	width := p.UsedBits() & 63
	since := uint64(last) - base>>planBits<<baseShift // for an instant before base, too large to fit
	return since<<width | uint64(used), since>>((stateBits-width)&63) == 0 && uint64(used)>>width == 0
}

// numberIn is the number of a count's plan, from its base.
func numberIn(base uint64) uint32 { return uint32(base & (1<<planBits - 1)) }

// blockIn is the block of a count, from its base; lastIn is its last charge, from its word.
func blockIn(base uint64) block { return block(base >> planBits) }

func lastIn(word uint64) int64 { return int64(word & (editionBit - 1)) }

// setBlock makes a locked slot refer to a block, and unlocks it.
func (s slot) setBlock(word uint64, last int64, at block, number uint32) {
	s.base.Store(uint64(at)<<planBits | uint64(number))
	s.word.Store(uint64(last) | word&editions)
}

// baseOf is the base of a cell from an instant on.
func baseOf(last int64, number uint32) uint64 {
	return uint64(last)>>baseShift<<planBits | uint64(number)
}

// move changes a slot whose base is too old for last, without the shard's lock. It returns false if
// the word has changed. Others that meet it meanwhile take the shard's lock and wait for the word.
func (s slot) move(word uint64, last, used int64, number uint32, p *algo.Plan) bool {
	base := baseOf(last, number)
	next, _ := pack(last, used, base, p) // it fits: usage never exceeds the plan's bits
	if !s.word.CompareAndSwap(word, word|moving) {
		return false
	}
	s.base.Store(base)
	s.word.Store(next | nextEdition(word))
	return true
}

// set gives a locked slot a state and unlocks it, if the state fits; else it stays locked.
func (s slot) set(word uint64, state *algo.State, number uint32) bool {
	if number == noPlan {
		return false
	}
	p, base := planOf(number), s.base.Load()
	next, ok := pack(state.Last, state.Used, base, p)
	if !ok || numberIn(base) != number {
		base = baseOf(state.Last, number)
		if next, ok = pack(state.Last, state.Used, base, p); !ok {
			return false
		}
		s.base.Store(base)
		word = nextEdition(word)
	}
	s.word.Store(next | word&editions)
	return true
}

// A table filled to mostFull is replaced by one 25 % larger, or twice as large while small.
const (
	mostFull    = 0.88
	smallTable  = 64 // groups
	firstGroups = 2
)

func (t *table) isFull() bool {
	return float64(t.used) >= mostFull*slotsInGroup*float64(len(t.groups))
}

// larger returns a larger, empty table.
func (t *table) larger() *table {
	n := max(firstGroups, 2*len(t.groups))
	if len(t.groups) >= smallTable {
		n = len(t.groups) + len(t.groups)/4
	}
	return &table{groups: make([]group, n)}
}

// put takes a slot for a count; at is its block, if any. False: no slot can hold it.
func (t *table) put(print uint64, state *algo.State, number uint32, at block) bool {
	if number == noPlan || len(t.groups) == 0 {
		return false
	}
	s := t.free(print)
	if !s.found() {
		return false
	}
	word := s.lock()
	if at != 0 {
		s.setBlock(word, state.Last, at, number)
		s.print.Store(print)
		t.used++
		return true
	}
	if !s.set(word, state, number) {
		s.word.Store(word)
		return false
	}
	s.print.Store(print)
	t.used++
	return true
}

// remove frees a locked slot, and unlocks it.
func (t *table) remove(s slot, word uint64) {
	s.print.Store(0)
	s.word.Store(nextEdition(word))
	t.used--
}
