package counts

import (
	"cmp"

	"github.com/stintdev/stint/internal/algo"
)

// HoldAction is what a HoldCall does. The numbers are those of stint.HoldAction.
type HoldAction uint8

// The actions, see stint.HoldAction.
const (
	Settle HoldAction = iota
	Renew
	Release
	Charge
)

// HoldCall is an operation on a hold, and its answer; see stint.HoldCall.
type HoldCall struct {
	Action HoldAction
	Key    string
	Limit  *Limit
	ID     HoldID
	Units  int64
	For    int64 // µs; 0: as the limit says
	Cost   int64
	Again  bool

	Found    bool
	Released bool
	Charged  int64
	Verdict  algo.Verdict
}

// Hold does c, whose answer must be zero. After ErrFull nothing has changed.
func (m *Memory) Hold(c *HoldCall, at int64) error {
	s := m.lockKey(c.Key)
	defer s.mu.Unlock()
	now, own := m.at(at), at == OwnClock
	var n step
	m.look(c.Key, c.Limit, &n.count)
	n.view = c.Limit.Plan.Look(n.state(), now)
	s.holds.group(n.print, now, own)
	if !m.act(&n, c, now, own) {
		n.release()
		return ErrFull
	}
	if c.Limit.Plan.Held() {
		n.lookGroup(now, own)
	}
	c.Verdict = c.Limit.Plan.Standing(n.state(), &n.view)
	switch unused := n.view.Now + c.Verdict.Reset; {
	case c.Charged == 0:
		n.release()
	case !n.count.charged(c.Limit, unused):
		n.add(c.Limit, unused)
	}
	return nil
}

// act does c, and reports whether there was room. Of the count it changes only the state.
func (m *Memory) act(n *step, c *HoldCall, now int64, own bool) bool {
	h := &n.shard.holds
	record := h.find(n.print, c.ID, now)
	c.Found = record != nil
	span := cmp.Or(c.For, c.Limit.Plan.Hold)
	switch c.Action {
	case Charge:
		c.Found = true
		return m.charge(n, c, now, own)
	case Settle:
		if !c.Found {
			return true
		}
		if !m.charge(n, c, now, own) {
			return false
		}
		h.take(n.print, c.ID)
	case Release:
		if !c.Found && !h.hasRoom(1, now, own) {
			return false
		}
		h.put(n.print, &hold{id: c.ID, released: true, until: now + 2*span, span: span})
	case Renew:
		switch {
		case c.Found:
			h.put(n.print, &hold{id: c.ID, units: record.units, until: now + span, span: span, learned: record.learned})
		case h.isReleased(n.print, c.ID, now):
			c.Released = true
		case c.Again && c.Units > 0 && n.mayReturn(c, now, own):
			if !h.hasRoom(1, now, own) {
				return false
			}
			h.put(n.print, &hold{id: c.ID, units: c.Units, until: now + span, span: span})
		}
	}
	return true
}

// mayReturn reports whether a lost record may be made again.
func (n *step) mayReturn(c *HoldCall, now int64, own bool) bool {
	if old := n.shard.holds.records[holdKey{n.print, c.ID}]; old != nil && old.released {
		return false
	}
	n.lookGroup(now, own)
	return !n.crowded && n.view.Held <= algo.Exact-1-c.Units
}

// charge charges c's cost, whether it fits or not.
func (m *Memory) charge(n *step, c *HoldCall, now int64, own bool) bool {
	p := &c.Limit.Plan
	cost := min(c.Cost, p.Room(&n.view))
	if cost == 0 {
		return true
	}
	if !n.found() {
		if n.shard.sweep(now, own); !n.shard.makeRoom(now, m.least.Load(), false) {
			return false
		}
	}
	n.prepare(c.Limit, &n.view)
	c.Charged = p.Charge(n.state(), &n.view, cost)
	return true
}

// HeldUnits is one hold of a key under a limit.
type HeldUnits struct {
	ID        HoldID
	Limit     int // index in the limits asked about
	Units     int64
	Left, For int64 // µs
}

// HeldBy returns the holds of key that count under some limits, in no order.
func (m *Memory) HeldBy(key string, limits []*Limit) []HeldUnits {
	s := m.lockKey(key)
	defer s.mu.Unlock()
	now, hash := m.Now(), m.hash(key)
	var all []HeldUnits
	for i, l := range limits {
		g := s.holds.group(printOf(hash, l.Salt), now, true)
		if g == nil {
			continue
		}
		for _, h := range g.order {
			if h.counts(now) {
				all = append(all, HeldUnits{h.id, i, h.units, h.until - now, h.span})
			}
		}
	}
	return all
}
