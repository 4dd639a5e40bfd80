package limittest

import (
	"cmp"
	"context"
	"time"

	"github.com/stintdev/stint"
)

// A Model keeps every record of a hold until it is settled or released, however long ago it
// expired: whether it counts depends only on the instant.

// modelHold is a record of a hold.
type modelHold struct {
	units    int64
	until    int64 // µs
	span     int64 // how long it lasts without renewal, µs
	released bool  // holds nothing, and cannot be made again
}

// counts reports whether h counts at t.
func (h *modelHold) counts(t int64) bool {
	return h != nil && !h.released && t < h.until && h.until <= t+2*h.span
}

// mostHolds is the most records under one key and limit.
const mostHolds = 4096

// held has the holds that count at an instant.
type held struct {
	units   int64 // at most exact
	left    int64 // until the last of them expires, µs
	records int
}

func (m *Model) heldAt(id countID, at int64) (all held) {
	for _, h := range m.holds[id] {
		if h.counts(at) {
			all.units = min(all.units+h.units, exact.Int64())
			all.left = max(all.left, h.until-at)
			all.records++
		}
	}
	return all
}

func (m *Model) putHold(id countID, hold stint.HoldID, h *modelHold) {
	if m.holds == nil {
		m.holds = make(map[countID]map[stint.HoldID]*modelHold)
	}
	if m.holds[id] == nil {
		m.holds[id] = make(map[stint.HoldID]*modelHold)
	}
	m.holds[id][hold] = h
}

// makesRecord reports whether a holds units if r is allowed.
func makesRecord(r *stint.Request, a *stint.Ask) bool {
	return r.Hold != stint.HoldID{} && a.Limit != nil && a.Limit.IsHeld() && costOf(a) > 0
}

// charges reports whether a is charged if r is allowed.
func charges(r *stint.Request, a *stint.Ask) bool {
	return costOf(a) > 0 && !makesRecord(r, a) && a.Limit.Spec().Algorithm != stint.InFlight
}

// hold makes the record of a, which is allowed.
func (m *Model) hold(r *stint.Request, a *stint.Ask, now int64) {
	span := cmp.Or(r.HoldFor, holdTime(a.Limit)).Microseconds()
	m.putHold(countOf(a), r.Hold, &modelHold{units: costOf(a), until: now + span, span: span})
}

func holdTime(l *stint.Limit) time.Duration {
	s := l.Spec()
	if s.Hold == 0 && s.Algorithm == stint.InFlight {
		return 30 * time.Second
	}
	return s.Hold
}

// lookFor is look for an ask of r, which may hold.
func (m *Model) lookFor(r *stint.Request, a *stint.Ask, at int64) look {
	l := m.look(a, at)
	l.asks = costOf(a)
	if a.Limit.Spec().Algorithm == stint.InFlight || a.Limit.IsHeld() && r.Hold != (stint.HoldID{}) {
		l.asks = max(1, l.asks) // it asks whether a hold would be allowed
		l.holds = true
	}
	return l
}

// isFull reports whether there is no room for another record.
func (l *look) isFull() bool { return l.holds && l.records >= mostHolds }

// most is how many units may be in use after a settlement or a charge under l.
func most(l *stint.Limit) int64 {
	if isExtreme(l) {
		return 0
	}
	s, m := l.Spec(), termsOf(l)
	debt := s.Debt
	if debt < 0 {
		debt = 0
	}
	parts := int64(1)
	switch s.Algorithm {
	case stint.TokenBucket, stint.LeakyBucket:
		if s.Debt == 0 {
			debt = m.capacity
		}
		parts = m.rate.Denom().Int64()
	case stint.SlidingWindow:
		parts = m.width
	}
	exactly := (exact.Int64() - 1) / parts
	if m.rate == nil && s.Debt == 0 {
		return exactly
	}
	return min(exactly, m.capacity+debt)
}

// Holds implements stint.Holder.
func (m *Model) Holds(_ context.Context, at time.Time, calls []stint.HoldCall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := instant(&stint.Request{At: at})
	for i := range calls {
		m.call(&calls[i], now)
	}
}

func (m *Model) call(c *stint.HoldCall, now int64) {
	a := &stint.Ask{Key: c.Key, Limit: c.Limit}
	id := countOf(a)
	h := m.holds[id][c.Hold]
	span := cmp.Or(c.For, holdTime(c.Limit)).Microseconds()
	c.Found, c.Released, c.Charged, c.Err = h.counts(now), false, 0, nil
	switch c.Action {
	case stint.HoldSettle:
		if c.Found {
			delete(m.holds[id], c.Hold)
			c.Charged = m.chargeAnyway(a, now, c.Cost)
		}
	case stint.HoldRenew:
		switch all := m.heldAt(id, now); {
		case c.Found:
			h.until, h.span = now+span, span
		case h != nil && h.released && now < h.until:
			c.Released = true
		case c.Again && c.Units > 0 && all.records < mostHolds && all.units+c.Units < exact.Int64():
			m.putHold(id, c.Hold, &modelHold{units: c.Units, until: now + span, span: span})
		}
	case stint.HoldRelease:
		m.putHold(id, c.Hold, &modelHold{released: true, until: now + 2*span, span: span})
	case stint.HoldCharge:
		c.Found = true
		c.Charged = m.chargeAnyway(a, now, c.Cost)
	}
	l := m.look(a, now)
	c.Remaining, c.Held, c.ResetAfter = l.remaining(), l.units, duration(l.reset())
}

// chargeAnyway charges n units whether they fit or not, except units above the debt.
func (m *Model) chargeAnyway(a *stint.Ask, now, n int64) int64 {
	if a.Limit.Spec().Algorithm == stint.InFlight {
		return 0
	}
	l := m.look(a, now)
	room := units(most(a.Limit))
	room.Sub(room, l.used())
	if n = max(0, min(n, floor(room))); n > 0 {
		m.charge(a, &l, n)
	}
	return n
}

// Held implements stint.Holder.
func (m *Model) Held(_ context.Context, key string, limits []*stint.Limit) ([]stint.Hold, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().UnixMicro()
	var all []stint.Hold
	for _, l := range limits {
		for id, h := range m.holds[countOf(&stint.Ask{Key: key, Limit: l})] {
			if h.counts(now) {
				all = append(all, stint.Hold{ID: id, Limit: l, Units: h.units, Left: duration(h.until - now), For: duration(h.span)})
			}
		}
	}
	return all, nil
}
