package stint

import (
	"slices"
	"strings"
)

// add adds an unused entry; there must be room. The key is copied, for it may be a
// piece of something large.
func (s *shard) add(k entryKey) *entry {
	k.key = strings.Clone(k.key)
	e := &entry{entryKey: k, place: len(s.all)}
	s.index[k] = e
	s.all = append(s.all, e)
	return e
}

// sweep looks at two entries for each one that comes in, so that what is unused
// goes sooner than it comes, and no request ever waits for a walk over all.
func (s *shard) sweep(now int64) {
	for range min(2, len(s.all)) {
		s.hand %= len(s.all)
		if e := s.all[s.hand]; !e.pinned && e.unused <= now {
			s.remove(e)
			if len(s.all) == 0 {
				return
			}
		} else {
			s.hand++
		}
	}
}

// victimsSeen bounds the work of a request that finds the shard full.
const victimsSeen = 128

// victim is the entry to give way: an unused one, else, unless only that will do,
// the one with the smallest share used of those that are neither exhausted nor
// banned. cost is the smallest that is asked; see Memory.least.
func (s *shard) victim(now, cost int64, unused bool) *entry {
	var best *entry
	least := 1.0
	for range min(victimsSeen, len(s.all)) {
		s.hand %= len(s.all)
		e := s.all[s.hand]
		s.hand++
		if e.pinned {
			continue
		}
		if e.unused <= now {
			return e
		}
		if share := e.share(now, cost); share < least && !unused {
			best, least = e, share
		}
	}
	return best
}

// share is how much of what it may use an entry has used, from 0 to 1; 1 where it
// must not be forgotten, as where no request of such a cost is allowed any more.
func (e *entry) share(now, cost int64) float64 {
	if e.penalty != nil {
		p := &e.penalty.plan
		if p.BanLeft(&e.record, now) > 0 {
			return 1
		}
		return 0.99 // violations count for more than most
	}
	p := &e.limit.plan
	v := p.Look(&e.state, now)
	if !p.Fits(&v, max(1, min(cost, p.Capacity))) {
		return 1
	}
	return float64(v.Used) / float64(p.Full)
}

// remove forgets e; nil is nothing to forget.
func (s *shard) remove(e *entry) {
	if e == nil {
		return
	}
	delete(s.index, e.entryKey)
	last := len(s.all) - 1
	s.all[e.place] = s.all[last]
	s.all[e.place].place = e.place
	s.all[last] = nil
	s.all = slices.Delete(s.all, last, last+1)
}
