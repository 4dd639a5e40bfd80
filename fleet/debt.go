package fleet

import (
	"slices"

	"github.com/stintdev/stint/internal/algo"
)

// spent has the units of a key that an instance spent without the Store and that are still in use.
// Logs and sliding windows of many sub-windows are counted in spells, so that space is bounded.
// Inexact results are too low, never too high.
type spent struct {
	// last is the instant of units, µs since 1970. For a bucket it may lie ahead: until then, units
	// that the Store has counted flow out. For other algorithms it is the start of the newest
	// spell.
	last  int64
	units int64   // of a bucket, parts of a unit; else units of the newest spell
	older []spell // oldest first; not of buckets and fixed windows
}

type spell struct{ start, units int64 }

// periodSpells is about how many spells a period has.
const periodSpells = 16

// spellAt is the start, in µs, of the spell of p at an instant.
func spellAt(p *algo.Plan, now int64) int64 {
	var width int64
	switch p.Kind {
	case algo.SlidingLog:
		width = max(1, p.Period/periodSpells)
	case algo.SlidingWindow:
		width = p.Width * p.Tick * ((p.Buckets + periodSpells - 1) / periodSpells)
	default:
		return p.Window(now).Start
	}
	return now / width * width
}

// add adds units that were spent at now. If s is empty, dry is when the units that the Store has
// counted of a bucket have flowed out.
func (s *spent) add(p *algo.Plan, units, now, dry, live int64) {
	if p.IsBucket() {
		if s.drain(p, now, live); s.units == 0 {
			s.last = max(now, dry) / p.Tick * p.Tick
		}
		s.units = min(s.units+min(units, mostUsed(p))*p.Unit, p.Most)
		return
	}
	start := spellAt(p, now)
	switch {
	case s.units == 0:
		s.last = start
	case start != s.last:
		s.older = slices.DeleteFunc(s.older, func(c spell) bool { return c.inUse(p, now) == 0 })
		if c := (spell{s.last, s.units}); c.inUse(p, now) > 0 {
			if len(s.older) == cap(s.older) {
				s.older = slices.Grow(s.older, spellsMore(cap(s.older)))
			}
			s.older = append(s.older, c)
		}
		s.last, s.units = start, 0
	}
	s.units = min(s.units+min(units, p.Most), p.Most)
}

// growth is how many more spells an add at now may need.
func (s *spent) growth(p *algo.Plan, now int64) int {
	if p.IsBucket() || p.Kind == algo.FixedWindow || s.units == 0 || len(s.older) < cap(s.older) || spellAt(p, now) == s.last {
		return 0
	}
	return spellsMore(cap(s.older))
}

func spellsMore(n int) int { return max(2, n/2) }

// mostUsed is how many units can be in use, including all allowed debt.
func mostUsed(p *algo.Plan) int64 { return p.Most / p.Unit }

// runsDry is how long after a charge of cost a bucket's other units have flowed out, in µs; at most
// two ticks too short. reset is when all of them have. For other algorithms it is 0.
func runsDry(p *algo.Plan, reset, cost int64) int64 {
	if !p.IsBucket() {
		return 0
	}
	return max(0, reset-((cost*p.Unit+p.Rate-1)/p.Rate+1)*p.Tick)
}

// drain removes the units of a bucket that have flowed out by now, at a 1/live share of the rate.
func (s *spent) drain(p *algo.Plan, now, live int64) {
	ticks := (now - s.last) / p.Tick / live
	if ticks <= 0 {
		return
	}
	s.units = p.LookSmall(0, s.units, ticks*p.Tick).Used
	s.last += ticks * p.Tick * live
}

// inUse is how many units of s are in use at now, rounded up: a bucket that had counted them would
// have that many fewer remaining.
func (s *spent) inUse(p *algo.Plan, now, live int64) int64 {
	if p.IsBucket() {
		s.drain(p, now, live)
		return (s.units + p.Unit - 1) / p.Unit
	}
	units := spell{s.last, s.units}.inUse(p, now)
	for _, c := range s.older {
		units += c.inUse(p, now)
	}
	return min(units, p.Most)
}

// inUse counts a spell as if all of it had been spent when it began.
func (c spell) inUse(p *algo.Plan, now int64) int64 {
	switch p.Kind {
	case algo.FixedWindow:
		if p.Window(now).Start == c.start {
			return c.units
		}
		return 0
	case algo.SlidingLog:
		if now-c.start < p.Period {
			return c.units
		}
		return 0
	}
	tick := now / p.Tick
	behind := tick/p.Width - c.start/p.Tick/p.Width // sub-windows
	switch {
	case behind < p.Buckets:
		return c.units
	case behind > p.Buckets:
		return 0
	}
	// N·W is exact, see algo.Plan, and so is this.
	return c.units * (p.Width - tick%p.Width) / p.Width
}

// take takes units back, the newest first, and reports whether none are left.
func (s *spent) take(p *algo.Plan, units int64) (none bool) {
	if p.IsBucket() {
		s.units = max(0, s.units-min(units, mostUsed(p))*p.Unit)
		return s.units == 0
	}
	for {
		n := min(units, s.units)
		s.units -= n
		units -= n
		k := len(s.older) - 1
		if s.units > 0 || k < 0 {
			return s.units == 0
		}
		s.last, s.units = s.older[k].start, s.older[k].units
		s.older = s.older[:k]
	}
}

// restate converts s to a plan of the same algorithm and period.
func (s *spent) restate(from, to *algo.Plan) {
	if from.Unit != to.Unit {
		s.units = min(s.units/from.Unit, mostUsed(to)) * to.Unit
	}
}

func (s *spent) join(p *algo.Plan, later spent, live int64) {
	if p.IsBucket() {
		s.drain(p, later.last, live)
		s.last = max(s.last, later.last)
		s.units = min(s.units+later.units, p.Most)
		return
	}
	for _, c := range later.older {
		s.add(p, c.units, c.start, 0, live)
	}
	if later.units > 0 {
		s.add(p, later.units, later.last, 0, live)
	}
}
