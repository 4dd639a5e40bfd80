package counts

import (
	"cmp"

	"github.com/stintdev/stint/internal/algo"
)

// Another store's answers about held units are kept in records: one for each hold that was made
// through this Memory's owner, by its identity, and one without an identity for the rest, which lasts
// as long as a hold without renewal. Records leave when an answer no longer counts them, because
// another instance has settled them, or by age, or when room is needed.

// youngHold is how old, in µs, a record must be to leave because an answer does not count it: one
// answer may overtake another.
const youngHold = 1_000_000

// learnHeld makes the record of a hold that the other store made for a, unless by is nil, and
// learns from a's Verdict how many units are held there. The shard must be locked.
func (s *shard) learnHeld(a *Ask, print uint64, by *Holding, now int64, own bool) {
	span := a.Limit.Plan.Hold
	if by != nil && a.Cost > 0 && s.holds.hasRoomToLearn(now, own) {
		s.learnHold(print, by.ID, a.Cost, cmp.Or(by.For, span), now)
	}
	s.learnRest(print, a.Verdict.Held, span, now, own)
}

func (s *shard) learnHold(print uint64, id HoldID, units, span, now int64) {
	s.holds.put(print, &hold{id: id, units: units, until: now + span, span: span, learned: true})
}

// learnRest keeps the units held in the other store besides the holds known by identity.
func (s *shard) learnRest(print uint64, held, span, now int64, own bool) {
	var was *hold
	rest := held
	if g := s.holds.group(print, now, own); g != nil {
		was = s.holds.records[holdKey{print: print}]
		known := g.learned
		if was != nil {
			known -= was.units
		}
		rest -= s.holds.dropEnded(g, known, held, now)
	}
	switch {
	case rest <= 0:
		s.holds.take(print, HoldID{})
	case was != nil || s.holds.hasRoomToLearn(now, own):
		s.learnHold(print, HoldID{}, rest, span, now)
	}
}

// dropEnded drops holds of g that must have ended, because the other store holds fewer units than
// the known holds have: those that expire first. It returns the units that are still known.
func (s *holds) dropEnded(g *holdGroup, known, held, now int64) int64 {
	for i := 0; known > held && i < min(len(g.order), mostSeen); {
		h := g.order[i]
		if !h.learned || h.id == (HoldID{}) {
			i++
			continue
		}
		if h.until-h.span > now-youngHold {
			break
		}
		known -= h.units
		s.forget(g, h)
	}
	return known
}

// LearnHold makes m's counts agree with another store's answer in c.
func (m *Memory) LearnHold(c *HoldCall, at int64) {
	s := m.lockKey(c.Key)
	defer s.mu.Unlock()
	now, own := m.at(at), at == OwnClock
	a := Ask{Key: c.Key, Limit: c.Limit, Verdict: c.Verdict}
	p := &c.Limit.Plan
	if p.Kind != algo.InFlight {
		m.learnCount(&a, c.Charged, now, own)
	}
	if !p.Held() {
		return
	}
	print := printOf(m.hash(c.Key), c.Limit.Salt)
	switch {
	case c.Action == Renew && (c.Found || c.Again && !c.Released):
		if s.holds.hasRoomToLearn(now, own) {
			s.learnHold(print, c.ID, c.Units, cmp.Or(c.For, p.Hold), now)
		}
	case c.Action != Charge:
		s.holds.take(print, c.ID)
	}
	s.learnRest(print, c.Verdict.Held, p.Hold, now, own)
}
