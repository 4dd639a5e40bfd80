package fleet

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
)

// cache is a set-associative table of fixed size. What it holds is looked at without
// writing anything, so that a key that all cores ask for costs each of them no more
// than one that nobody else does.
type cache[E any] struct {
	slots []atomic.Pointer[E]
	ways  int
}

func (t *cache[E]) make(room int) {
	t.ways = min(room, 8)
	t.slots = make([]atomic.Pointer[E], room/t.ways*t.ways)
}

// set is where what has that hash can be.
func (t *cache[E]) set(hash uint64) []atomic.Pointer[E] {
	i, _ := bits.Mul64(hash, uint64(len(t.slots)/t.ways))
	return t.slots[int(i)*t.ways:][:t.ways]
}

// put puts e in the place of one that may go, else of one at random: a client that
// chooses keys can drive others out, but not those of his choice.
func (t *cache[E]) put(hash uint64, e *E, mayGo func(*E) bool) {
	set := t.set(hash)
	for i := range set {
		if old := set[i].Load(); old == nil || mayGo(old) {
			set[i].Store(e)
			return
		}
	}
	set[rand.IntN(len(set))].Store(e)
}
