package counts

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/stintdev/stint/internal/algo"
)

// HoldID identifies the holds of a request.
type HoldID [12]byte

// Holding makes a request hold units under held limits.
type Holding struct {
	ID  HoldID // not zero
	For int64  // how long the holds last without renewal, µs; 0: as each limit says
}

// holds are the holds of a shard. A record is in two places: by its identity, and in its group (one
// key under one limit) by the instant at which it expires. The shard must be locked.
type holds struct {
	records map[holdKey]*hold
	groups  map[uint64]*holdGroup // by print
	all     []*holdGroup          // the same, in no order
	hand    int                   // index in all for the next search for expired records
	room    *holdRoom
}

// holdRoom counts the records of all shards of a Memory. Records that another store also has give
// way to those that are made here.
type holdRoom struct {
	most    int64 // the most records
	total   atomic.Int64
	learned atomic.Int64 // of total
	shards  []shard
	hand    atomic.Uint64 // index in shards for the next record to give way
}

type holdKey struct {
	print uint64
	id    HoldID
}

// hold is one record. It counts at t if t < until ≤ t + 2*span, unless it was released.
type hold struct {
	id       HoldID
	released bool // a tombstone that holds nothing
	learned  bool // another store also has it; see LearnHold
	units    int64
	until    int64
	span     int64
}

func (h *hold) counts(now int64) bool {
	return !h.released && now < h.until && h.until <= now+2*h.span
}

type holdGroup struct {
	print   uint64
	place   int     // in holds.all
	order   []*hold // by until, then by identity
	sum     int64   // units of all records, whether they count or not; wraps
	learned int64   // units of the learned records
	// released is the number of tombstones.
	released int
	// since is an upper bound of the instants from which the records count; see hold.
	since int64
}

// BytesOfAHold bounds the memory of a record, with its places in maps and lists.
const BytesOfAHold = 240

// keepRunOut is how long an expired record is kept, in µs, if callers give the instants: their
// clocks may step back, and then it counts again.
const keepRunOut = 1_000_000

// standing returns what counts in g, which may be nil, at an instant: units, at most Exact, for how
// much longer, and records.
func (g *holdGroup) standing(now int64) (units, left int64, n int) {
	if g == nil || len(g.order) == 0 {
		return 0, 0, 0
	}
	if now >= g.since && now < g.order[0].until && 0 <= g.sum && g.sum <= algo.Exact { // all count
		for i := len(g.order) - 1; i >= 0; i-- {
			if h := g.order[i]; !h.released {
				return g.sum, h.until - now, len(g.order) - g.released
			}
		}
		return 0, 0, 0
	}
	g.since = 0
	for _, h := range g.order {
		g.since = max(g.since, h.until-2*h.span)
		if h.counts(now) {
			units, left, n = min(units+h.units, algo.Exact), h.until-now, n+1
		}
	}
	return units, left, n
}

func (h *hold) compare(o *hold) int {
	if c := cmp.Compare(h.until, o.until); c != 0 {
		return c
	}
	return slices.Compare(h.id[:], o.id[:])
}

func (g *holdGroup) insert(h *hold) {
	g.sum += h.units
	g.since = max(g.since, h.until-2*h.span)
	if h.released {
		g.released++
	}
	if h.learned {
		g.learned += h.units
	}
	if n := len(g.order); n == 0 || g.order[n-1].compare(h) < 0 { // as most do
		g.order = append(g.order, h)
		return
	}
	i, _ := slices.BinarySearchFunc(g.order, h, (*hold).compare)
	g.order = slices.Insert(g.order, i, h)
}

func (g *holdGroup) remove(h *hold) {
	g.sum -= h.units
	if h.released {
		g.released--
	}
	if h.learned {
		g.learned -= h.units
	}
	i, _ := slices.BinarySearchFunc(g.order, h, (*hold).compare)
	if i < len(g.order)/2 { // old ones end first: move the fewer
		copy(g.order[1:i+1], g.order[:i])
		g.order[0] = nil
		g.order = g.order[1:]
		return
	}
	g.order = slices.Delete(g.order, i, i+1)
}

// group returns the holds of a count; nil: none. It drops expired ones.
func (s *holds) group(print uint64, now int64, own bool) *holdGroup {
	g := s.groups[print]
	if g == nil || !s.prune(g, now, own) {
		return nil
	}
	return g
}

// prune drops expired records, and reports whether any are left.
func (s *holds) prune(g *holdGroup, now int64, own bool) bool {
	if !own {
		now -= keepRunOut
	}
	for len(g.order) > 0 && g.order[0].until <= now {
		s.forget(g, g.order[0])
	}
	if len(g.order) == 0 {
		s.drop(g)
		return false
	}
	return true
}

// drop forgets a group without records.
func (s *holds) drop(g *holdGroup) {
	delete(s.groups, g.print)
	last := len(s.all) - 1
	s.all[g.place] = s.all[last]
	s.all[g.place].place = g.place
	s.all[last] = nil
	s.all = s.all[:last]
}

// sweep drops the expired records of n groups, so that they go faster than new holds come.
func (s *holds) sweep(n int, now int64, own bool) {
	for range min(n, len(s.all)) {
		s.hand %= len(s.all)
		if s.prune(s.all[s.hand], now, own) {
			s.hand++
		} else if len(s.all) == 0 {
			return
		}
	}
}

// hasRoom reports whether n more records made here fit, one of them into s.
func (s *holds) hasRoom(n, now int64, own bool) bool {
	if s.isFree(n, now, own) {
		return true
	}
	r := s.room
	if r.total.Load()-r.learned.Load()+n > r.most {
		return false
	}
	r.makeFree(s, n) // if nothing is free now, there are a few too many
	return true
}

// hasRoomToLearn reports whether one more learned record fits into s.
func (s *holds) hasRoomToLearn(now int64, own bool) bool {
	return s.isFree(1, now, own) || s.room.makeFree(s, 1)
}

func (s *holds) isFree(n, now int64, own bool) bool {
	if own { // else an earlier instant may follow
		s.sweep(2, now, own)
	}
	if s.room.total.Load()+n <= s.room.most {
		return true
	}
	s.sweep(mostSeen, now, own)
	return s.room.total.Load()+n <= s.room.most
}

// makeFree drops learned records until n more fit, and reports whether they do. s must be locked.
// It skips other shards that are locked.
func (r *holdRoom) makeFree(s *holds, n int64) bool {
	for r.total.Load()+n > r.most {
		if !s.dropLearned() && !r.dropElsewhere() {
			return false
		}
	}
	return true
}

func (r *holdRoom) dropElsewhere() (dropped bool) {
	for range r.shards {
		s := &r.shards[r.hand.Add(1)%uint64(len(r.shards))]
		if !s.mu.TryLock() {
			continue
		}
		dropped = s.holds.dropLearned()
		s.mu.Unlock()
		if dropped {
			return true
		}
	}
	return false
}

// dropLearned drops the learned record that expires first, among some groups if there are many. It
// reports whether there was one.
func (s *holds) dropLearned() bool {
	var of *holdGroup
	var first *hold
	for seen := 0; seen < len(s.all) && (first == nil || seen < victimsSeen); seen++ {
		s.hand %= len(s.all)
		g := s.all[s.hand]
		s.hand++
		if h := g.firstLearned(); h != nil && (first == nil || h.until < first.until) {
			of, first = g, h
		}
	}
	if first == nil {
		return false
	}
	if s.forget(of, first); len(of.order) == 0 {
		s.drop(of)
	}
	return true
}

func (g *holdGroup) firstLearned() *hold {
	if g.learned > 0 {
		for _, h := range g.order {
			if h.learned {
				return h
			}
		}
	}
	return nil
}

// find returns the record of an identity, if it counts; else nil.
func (s *holds) find(print uint64, id HoldID, now int64) *hold {
	if h := s.records[holdKey{print, id}]; h != nil && h.counts(now) {
		return h
	}
	return nil
}

// isReleased reports whether the record of an identity was released and may not come back yet.
func (s *holds) isReleased(print uint64, id HoldID, now int64) bool {
	h := s.records[holdKey{print, id}]
	return h != nil && h.released && now < h.until
}

// put adds a record, replacing any with the same identity.
func (s *holds) put(print uint64, h *hold) {
	s.take(print, h.id)
	if s.groups == nil {
		s.records, s.groups = make(map[holdKey]*hold), make(map[uint64]*holdGroup)
	}
	g := s.groups[print]
	if g == nil {
		g = &holdGroup{print: print, place: len(s.all)}
		s.groups[print] = g
		s.all = append(s.all, g)
	}
	s.records[holdKey{print, h.id}] = h
	s.room.total.Add(1)
	if h.learned {
		s.room.learned.Add(1)
	}
	g.insert(h)
}

// take removes the record of an identity, if there is one.
func (s *holds) take(print uint64, id HoldID) {
	h := s.records[holdKey{print, id}]
	if h == nil {
		return
	}
	g := s.groups[print]
	if s.forget(g, h); len(g.order) == 0 {
		s.drop(g)
	}
}

func (s *holds) forget(g *holdGroup, h *hold) {
	delete(s.records, holdKey{g.print, h.id})
	s.room.total.Add(-1)
	if h.learned {
		s.room.learned.Add(-1)
	}
	g.remove(h)
}

// lookHeld puts held units into the view of an ask under a held limit, and makes the ask hold
// units, or peek, instead of being charged.
func (s *step) lookHeld(a *Ask, by *Holding, now int64, own bool) {
	s.lookGroup(now, own)
	inFlight := a.Limit.Plan.Kind == algo.InFlight
	if by == nil && !inFlight {
		return
	}
	s.take, s.asked = 0, max(1, a.Cost)
	if by != nil {
		s.hold = a.Cost
	}
	s.view.Crowded = s.crowded
}

// lookGroup puts held units into a step's view.
func (s *step) lookGroup(now int64, own bool) {
	var n int
	g := s.shard.holds.group(s.print, now, own)
	s.view.Held, s.view.HeldFor, n = g.standing(now)
	s.crowded = n >= algo.MostHolds
}

// makeHold makes the record of an allowed ask.
func (s *step) makeHold(p *algo.Plan, by *Holding, now int64, own bool) {
	span := cmp.Or(by.For, p.Hold)
	s.shard.holds.put(s.print, &hold{id: by.ID, units: s.hold, until: now + span, span: span})
	s.lookGroup(now, own)
}

// placeHolds reports whether there is room for all new records.
func placeHolds(steps []step, now int64, own bool) bool {
	n := int64(0)
	for i := range steps {
		if steps[i].hold > 0 {
			if n++; !steps[i].shard.holds.hasRoom(n, now, own) {
				return false
			}
		}
	}
	return true
}

// holdAll makes the records of an allowed request.
func holdAll(asks []Ask, steps []step, by *Holding, now int64, own bool) {
	for i := range steps {
		if s := &steps[i]; s.hold > 0 {
			s.makeHold(&asks[i].Limit.Plan, by, now, own)
		}
	}
}
