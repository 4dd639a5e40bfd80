package algo

import (
	"fmt"
	"time"
)

// Holds are records beside a State: the units that a request holds count while it runs, and its
// final cost is charged when it ends. The View of a held limit has Held, HeldFor and Crowded.

// MostHolds is the most records under one key and limit.
const MostHolds = 4096

// Held reports whether requests can hold units under p.
func (p *Plan) Held() bool { return p.Hold > 0 }

// SetDebt sets how many units above the capacity settlements and charges may use: 0, the default of
// the algorithm; -1, none. Most never exceeds exact arithmetic.
func (p *Plan) SetDebt(debt int64) error {
	exact := int64(Exact-1) / p.Unit
	if p.Kind == SlidingWindow {
		exact = (Exact - 1) / p.Width
	}
	most := exact
	switch {
	case debt < -1 || debt >= Exact:
		return fmt.Errorf("debt %d: must be a number of units below 2^52", debt)
	case debt != 0 && p.Kind == InFlight:
		return fmt.Errorf("debt %d: in_flight is never charged, so it has no debt", debt)
	case debt > 0:
		most = min(exact, p.Capacity+debt)
	case debt < 0:
		most = p.Capacity
	case p.IsBucket():
		most = min(exact, 2*p.Capacity)
	case p.Kind == InFlight:
		most = 0
	}
	p.Most = most * p.Unit
	return nil
}

// Room is how many whole units can be charged at v whether they fit or not.
func (p *Plan) Room(v *View) int64 { return max(0, p.Most-v.Used) / p.Unit }

// Charge charges as many of n units as Room says, and returns how many. v is what Look gave for s.
func (p *Plan) Charge(s *State, v *View, n int64) int64 {
	n = min(n, p.Room(v))
	if n > 0 {
		p.charge(s, v, n)
	}
	return n
}

// Standing is the verdict about s at v without a request.
func (p *Plan) Standing(s *State, v *View) (d Verdict) {
	p.standing(s, v, &d)
	return d
}

func checkInFlight(period time.Duration, burst, buckets int64) error {
	switch {
	case period != 0:
		return fmt.Errorf("period %s: in_flight limits what is held at once, and has no period", period)
	case burst != 0:
		return fmt.Errorf("burst %d: only token_bucket and leaky_bucket have a burst", burst)
	case buckets != 0:
		return fmt.Errorf("buckets %d: only sliding_window has sub-windows", buckets)
	}
	return nil
}
