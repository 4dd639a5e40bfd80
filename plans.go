package stint

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"github.com/stintdev/stint/internal/algo"
)

// A Memory's table tells the plans of its counts apart by small numbers, which are
// the same in all Memories of a process.
var plans struct {
	sync.Mutex
	numbers map[algo.Plan]uint32
	all     atomic.Pointer[[]*algo.Plan] // by number; 0 is none
}

// mostPlans bounds what a program that makes ever new limits leaves behind. Counts
// under plans that came later are kept outside the table, and take more room.
const mostPlans = 1<<16 - 1

// noPlan is the number of a plan whose counts are not for a table.
const noPlan = math.MaxUint32

// mostUsedBits leaves the instant of a count at least 16 bits, 65 ms, of its word.
const mostUsedBits = 44

// number is that of l's plan, or noPlan.
func (l *Limit) number() uint32 {
	if n := l.planNumber.Load(); n != 0 {
		return n
	}
	return l.findNumber()
}

func (l *Limit) findNumber() uint32 {
	n := planNumber(&l.plan)
	l.planNumber.Store(n)
	return n
}

func planNumber(p *algo.Plan) uint32 {
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

// planOf is the plan of a number.
func planOf(n uint32) *algo.Plan { return (*plans.all.Load())[n] }

// processSeed makes the counts of a process fall where no client can foretell.
var processSeed = maphash.MakeSeed()

func saltOf(id string) uint64 { return maphash.String(processSeed, id) }
