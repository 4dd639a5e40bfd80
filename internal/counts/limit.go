package counts

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"github.com/stintdev/stint/internal/algo"
)

// Limit is a limit for a Memory. It must not change once in use.
type Limit struct {
	Plan   algo.Plan
	Salt   uint64        // see Salt
	number atomic.Uint32 // of Plan; 0: not looked up yet
	// quick is number if counts in a table are decided without the shard's lock, else 0: a held
	// limit needs its holds, which the lock guards.
	quick atomic.Uint32
}

// Penalty is a penalty for a Memory. It must not change once in use.
type Penalty struct {
	Plan algo.Penalty
	Salt uint64 // see Salt
	Name string // for lists of bans
}

// processSeed keeps clients from predicting the places of counts.
var processSeed = maphash.MakeSeed()

// Salt is a hash of the ID of a limit or a penalty. Equal salts share counts.
func Salt(id string) uint64 { return maphash.String(processSeed, id) }

// Tables hold numbers of plans, which are the same in all tables of a process.
var plans struct {
	sync.Mutex
	numbers map[algo.Plan]uint32
	all     atomic.Pointer[[]*algo.Plan] // by number; 0 is none
}

// mostPlans bounds the memory that ever new limits take; counts of later plans are outside the
// table.
const mostPlans = 1<<16 - 1

// noPlan is the number of a plan whose counts cannot be in a table.
const noPlan = math.MaxUint32

// mostUsedBits leaves the instant of a count at least 16 bits, 65 ms, of its word.
const mostUsedBits = 44

func (l *Limit) planNumber() uint32 {
	if n := l.number.Load(); n != 0 {
		return n
	}
	return l.findNumber()
}

func (l *Limit) findNumber() uint32 {
	n := numberOf(&l.Plan)
	l.number.Store(n)
	if !l.Plan.Held() {
		l.quick.Store(n)
	}
	return n
}

func numberOf(p *algo.Plan) uint32 {
	if p.Small() && p.UsedBits() > mostUsedBits {
		return noPlan
	}
	plans.Lock()
	defer plans.Unlock()
	if n := plans.numbers[*p]; n != 0 {
		return n
	}
	if plans.numbers == nil {
		plans.numbers = make(map[algo.Plan]uint32)
		plans.all.Store(&[]*algo.Plan{nil})
	}
	all := *plans.all.Load()
	if len(all) > mostPlans {
		return noPlan
	}
	n := uint32(len(all))
	own := *p
	all = append(all, &own) // beyond the length that readers see
	plans.numbers[own] = n
	plans.all.Store(&all)
	return n
}

func planOf(n uint32) *algo.Plan { return (*plans.all.Load())[n] }
