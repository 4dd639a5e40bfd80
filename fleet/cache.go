package fleet

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
)

// cache is a set-associative table of fixed size. Reading it writes nothing, so a hot key costs
// every core as little as a cold one.
type cache[E any] struct {
	slots []atomic.Pointer[E]
	ways  int
}

func (t *cache[E]) make(room int) {
	t.ways = min(room, 8)
	t.slots = make([]atomic.Pointer[E], room/t.ways*t.ways)
}

func (t *cache[E]) set(hash uint64) []atomic.Pointer[E] {
	i, _ := bits.Mul64(hash, uint64(len(t.slots)/t.ways))
	return t.slots[int(i)*t.ways:][:t.ways]
}

// put replaces an element that may go, else a random one, so that clients cannot choose which one
// they evict.
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
