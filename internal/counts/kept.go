package counts

import (
	"math"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// A store that keeps its counts elsewhere, as bytes, lets a Memory decide: it puts in the counts that
// the decision needs, and takes out the new ones.

// Kept is the data of one key under one limit.
type Kept struct {
	State algo.State // zero: unused
	Holds []KeptHold // by Until, then by ID
}

// KeptHold is a record of a hold.
type KeptHold struct {
	ID         HoldID
	Units      int64
	Until, For int64 // µs
	Released   bool  // it holds nothing, and must not be made again
}

// OpenFor opens m for one decision: without a bound, and with a clock that begins at now.
func (m *Memory) OpenFor(now int64) {
	m.once.Do(func() {
		m.start, m.wall = time.Now(), now
		m.makeShards(1, math.MaxInt, math.MaxInt64)
	})
}

// Put stores k for a key and limit that have nothing in m.
func (m *Memory) Put(key string, l *Limit, k *Kept) {
	s := m.lockKey(key)
	defer s.mu.Unlock()
	print := printOf(m.hash(key), l.Salt)
	if state := &k.State; !state.IsZero() {
		s.keepApart(print, *state, noPlan, &l.Plan, l.Plan.Unused(state))
	}
	for _, h := range k.Holds {
		s.holds.put(print, &hold{id: h.ID, units: h.Units, until: h.Until, span: h.For, released: h.Released})
	}
}

// Kept returns the data of a key under a limit. Its State points into m.
func (m *Memory) Kept(key string, l *Limit) (k Kept) {
	s := m.lockKey(key)
	defer s.mu.Unlock()
	var c count
	if m.look(key, l, &c); c.found() {
		k.State = *c.state()
		c.release()
	}
	if g := s.holds.groups[c.print]; g != nil {
		for _, h := range g.order {
			k.Holds = append(k.Holds, KeptHold{h.id, h.units, h.until, h.span, h.released})
		}
	}
	return k
}

// PutRecord stores the record of a key and penalty that have none in m.
func (m *Memory) PutRecord(key string, p *Penalty, r *algo.Record) {
	s := m.lockKey(key)
	defer s.mu.Unlock()
	e := m.addRecord(s, &Ask{Key: key, Penalty: p})
	e.record.Record, e.unused = *r, r.Clean()
}
