package counts

import "github.com/stintdev/stint/internal/algo"

// makeRoom makes room for a count, evicting another if necessary; see victim.
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

// sweep looks at a few counts for each new one, so that unused ones go faster than new ones come,
// and nobody waits for a walk over all. If callers give the instants, an earlier one may follow, so
// unused counts go only for room.
func (s *shard) sweep(now int64, own bool) {
	if !own {
		return
	}
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

// next returns the slot at the hand, and advances it.
func (t *table) next() slot {
	t.hand %= slotsInGroup * len(t.groups)
	s := t.groups[t.hand/slotsInGroup].slot(t.hand % slotsInGroup)
	t.hand++
	return s
}

type victim struct {
	entry *entry
	slot  slot
	word  uint64 // the slot's, from before it was locked
	shard *shard // that of the count
}

func (v *victim) found() bool { return v.entry != nil || v.slot.found() }

func (v *victim) spare() {
	if v.slot.found() {
		v.slot.word.Store(v.word)
	} else if v.entry != nil {
		v.entry.pinned = false
	}
}

func (s *shard) evict(v *victim) {
	if v.slot.found() {
		s.drop(v.slot, v.word)
	} else {
		s.remove(v.entry)
	}
}

// A full shard looks at victimsSeen counts and, if none may go, at mostSeen.
const (
	victimsSeen = 32
	mostSeen    = 128
)

// victim finds the count to evict: an unused one or, unless only unused ones may go, the least used
// that is neither exhausted nor banned. cost is the least cost; see SetLeastCost.
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

// share is the used share; 0: unused; 1: it must stay, because no request of this cost is allowed.
// The slot must be locked; word is its word from before.
func (s *shard) share(o slot, word uint64, now, cost int64) float64 {
	state, _, number := s.state(o, word)
	return share(planOf(number), &state, now, cost)
}

func (e *entry) share(now, cost int64) float64 {
	if r := e.record; r != nil {
		if r.penalty.Plan.BanLeft(&r.Record, now) > 0 {
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
