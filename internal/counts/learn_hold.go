package counts

import (
	"cmp"

	"github.com/stintdev/stint/internal/algo"
)

// What another store says of what is held is kept in records: one for each hold that was made
// through this Memory's owner, by its identity, and one without an identity for the rest, which lasts
// as long as a hold that nobody renews.

// learnHeld makes the record of a hold that the other store made for a, unless by is nil, and
// learns from a's Verdict how many units are held there. The shard is locked.
func (s *shard) learnHeld(a *Ask, print uint64, by *Holding, now int64, own bool) {
	span := a.Limit.Plan.Hold
	if by != nil && a.Cost > 0 && s.holds.hasRoom(1, now, own) {
		s.learnHold(print, by.ID, a.Cost, cmp.Or(by.For, span), now)
	}
	s.learnRest(print, a.Verdict.Held, span, now, own)
}

func (s *shard) learnHold(print uint64, id HoldID, units, span, now int64) {
	s.holds.put(print, &hold{id: id, units: units, until: now + span, span: span, learned: true})
}

// learnRest keeps what is held of the other store beside the holds that are known by identity.
func (s *shard) learnRest(print uint64, held, span, now int64, own bool) {
	rest := held
	if g := s.holds.group(print, now, own); g != nil {
		rest -= g.learned
	}
	was := s.holds.records[holdKey{print: print}]
	if was != nil {
		rest += was.units
	}
	switch {
	case rest <= 0:
		s.holds.take(print, HoldID{})
	case was != nil || s.holds.hasRoom(1, now, own):
		s.learnHold(print, HoldID{}, rest, span, now)
	}
}

// LearnHold makes m's counts agree with another store's answer to c, which c holds.
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
		if s.holds.hasRoom(1, now, own) {
			s.learnHold(print, c.ID, c.Units, cmp.Or(c.For, p.Hold), now)
		}
	case c.Action != Charge:
		s.holds.take(print, c.ID)
	}
	s.learnRest(print, c.Verdict.Held, p.Hold, now, own)
}
