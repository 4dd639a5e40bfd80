package limittest

import (
	"context"
	"time"

	"github.com/stintdev/stint"
)

// misholding is a Model with a flaw in its holds.
type misholding struct {
	*flawed
	// call does a call in place of the Model, and reports whether it did.
	call func(m *Model, c *stint.HoldCall, now int64) bool
	held func(all []stint.Hold) []stint.Hold
	// reset is called after a reset.
	reset func(m *Model, r *stint.Request)
}

func (s *misholding) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	for i := range calls {
		if s.call == nil || !s.call(s.Model, &calls[i], instant(&stint.Request{At: at})) {
			s.Model.Holds(ctx, at, calls[i:i+1])
		}
	}
}

func (s *misholding) Held(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Hold, error) {
	all, err := s.Model.Held(ctx, key, limits)
	if s.held != nil {
		all = s.held(all)
	}
	return all, err
}

func (s *misholding) Reset(ctx context.Context, r *stint.Request) error {
	err := s.Model.Reset(ctx, r)
	if s.reset != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reset(s.Model, r)
	}
	return err
}

// holdsWrong is a store with a flaw of Take, and holdsCalled one of Holds.
// What they are given is called while the Model is locked.
func holdsWrong(before func(*Model, *stint.Request), after func(*Model, *stint.Request, *stint.Decision, []stint.Decision)) func() stint.Store {
	return func() stint.Store {
		f := &flawed{Model: new(Model)}
		if before != nil {
			f.before = func(m *Model, r *stint.Request) {
				m.mu.Lock()
				defer m.mu.Unlock()
				before(m, r)
			}
		}
		if after != nil {
			f.after = func(m *Model, r *stint.Request, d *stint.Decision, each []stint.Decision) {
				m.mu.Lock()
				defer m.mu.Unlock()
				after(m, r, d, each)
			}
		}
		return &misholding{flawed: f}
	}
}

func holdsCalled(call func(m *Model, c *stint.HoldCall, now int64) bool) func() stint.Store {
	return holdsUnlocked(func(m *Model, c *stint.HoldCall, now int64) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return call(m, c, now)
	})
}

// holdsUnlocked is holdsCalled for a call that locks the Model itself.
func holdsUnlocked(call func(m *Model, c *stint.HoldCall, now int64) bool) func() stint.Store {
	return func() stint.Store { return &misholding{flawed: &flawed{Model: new(Model)}, call: call} }
}

// eachHold calls f with each record of r's asks.
func eachHold(m *Model, r *stint.Request, f func(h *modelHold)) {
	for i := range r.Asks {
		for _, h := range m.holds[countOf(&r.Asks[i])] {
			f(h)
		}
	}
}

// answer fills in how the key of c stands.
func answer(m *Model, c *stint.HoldCall, now int64) {
	l := m.look(&stint.Ask{Key: c.Key, Limit: c.Limit}, now)
	c.Remaining, c.Held, c.ResetAfter = l.remaining(), l.units, duration(l.reset())
}

var holdFlaws = []flaw{
	{"charges a settlement again", holdsCalled(func(m *Model, c *stint.HoldCall, now int64) bool {
		a := stint.Ask{Key: c.Key, Limit: c.Limit}
		if h := m.holds[countOf(&a)][c.Hold]; c.Action != stint.HoldSettle || h.counts(now) {
			return false
		}
		c.Charged = m.chargeAnyway(&a, now, c.Cost)
		answer(m, c, now)
		return true
	}), []string{"HoldVectors", "Holds", "Twins", "HeldBudgetIsKept", "LinearizableHolds"}},
	{"looks for a hold first and settles it later", holdsUnlocked(func(m *Model, c *stint.HoldCall, now int64) bool {
		a := stint.Ask{Key: c.Key, Limit: c.Limit}
		m.mu.Lock()
		found := m.holds[countOf(&a)][c.Hold].counts(now)
		m.mu.Unlock()
		if c.Action != stint.HoldSettle || !found {
			return false
		}
		time.Sleep(time.Millisecond) // so that others come between
		m.mu.Lock()
		defer m.mu.Unlock()
		c.Found = true
		delete(m.holds[countOf(&a)], c.Hold)
		c.Charged = m.chargeAnyway(&a, now, c.Cost)
		answer(m, c, now)
		return true
	}), []string{"LinearizableHolds"}},
	{"charges no more than was held", holdsCalled(func(_ *Model, c *stint.HoldCall, _ int64) bool {
		if c.Action == stint.HoldSettle {
			c.Cost = min(c.Cost, c.Units)
		}
		return false
	}), []string{"HoldVectors", "Holds", "Twins"}},
	{"charges no debt", holdsCalled(func(m *Model, c *stint.HoldCall, now int64) bool {
		l := m.look(&stint.Ask{Key: c.Key, Limit: c.Limit}, now)
		c.Cost = min(c.Cost, max(0, floor(l.room(0).Sub(l.room(0), l.used()))))
		return false
	}), []string{"HoldVectors", "Holds", "Twins", "LinearizableHolds"}},
	{"makes a released hold again", holdsCalled(func(m *Model, c *stint.HoldCall, _ int64) bool {
		if id := countOf(&stint.Ask{Key: c.Key, Limit: c.Limit}); c.Again && m.holds[id][c.Hold] != nil && m.holds[id][c.Hold].released {
			delete(m.holds[id], c.Hold)
		}
		return false
	}), []string{"Holds", "Twins"}},
	{"makes no lost hold again", holdsCalled(func(_ *Model, c *stint.HoldCall, _ int64) bool {
		c.Again = false
		return false
	}), []string{"Holds", "Twins"}},
	{"keeps holds a microsecond too long", holdsWrong(nil, func(m *Model, r *stint.Request, d *stint.Decision, _ []stint.Decision) {
		if d.Allowed && r.Hold != (stint.HoldID{}) {
			for i := range r.Asks {
				if h := m.holds[countOf(&r.Asks[i])][r.Hold]; h != nil {
					h.until++
				}
			}
		}
	}), []string{"Holds", "Twins"}},
	{"waits for holds that lie ahead of a clock", holdsWrong(func(m *Model, r *stint.Request) {
		eachHold(m, r, func(h *modelHold) { h.until = min(h.until, instant(r)+2*h.span) })
	}, nil), []string{"Holds", "Twins"}},
	{"holds what it refuses", holdsWrong(nil, func(m *Model, r *stint.Request, d *stint.Decision, each []stint.Decision) {
		for i := range r.Asks {
			if a := &r.Asks[i]; d.Outcome == stint.Limited && makesRecord(r, a) && each[i].Allowed {
				m.hold(r, a, instant(r))
			}
		}
	}), []string{"Holds", "Twins", "LinearizableHolds"}},
	{"counts a refusal by what is held as a violation", holdsWrong(nil, func(m *Model, r *stint.Request, d *stint.Decision, each []stint.Decision) {
		for i := range r.Asks {
			if a := &r.Asks[i]; a.Penalty != nil && d.Outcome == stint.Limited && each[i].Busy {
				m.violate(recordOf(a), a.Penalty.Spec(), instant(r))
			}
		}
	}), []string{"Twins"}},
	{"holds any number", holdsWrong(func(m *Model, r *stint.Request) {
		for i := range r.Asks {
			if holds := m.holds[countOf(&r.Asks[i])]; len(holds) == mostHolds {
				delete(holds, numbered(0))
			}
		}
	}, nil), []string{"ManyHolds"}},
	{"ends holds by a reset", func() stint.Store {
		return &misholding{flawed: &flawed{Model: new(Model)}, reset: func(m *Model, r *stint.Request) {
			for i := range r.Asks {
				delete(m.holds, countOf(&r.Asks[i]))
			}
		}}
	}, []string{"Holds", "Twins"}},
	{"lists half of the holds", func() stint.Store {
		return &misholding{flawed: &flawed{Model: new(Model)}, held: func(all []stint.Hold) []stint.Hold { return all[len(all)/2:] }}
	}, []string{"HoldClock"}},
	{"lets a hold run out too soon", holdsWrong(func(_ *Model, r *stint.Request) {
		if r.At.IsZero() {
			r.HoldFor = time.Millisecond
		}
	}, nil), []string{"HoldClock"}},
}
