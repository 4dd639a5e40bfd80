package limittest

import (
	"math"
	"time"

	"github.com/stintdev/stint"
)

// spec draws a valid limit, with a period of at most longest µs.
func (s *script) spec(longest int64) stint.Spec {
	algorithm := stint.Algorithm(s.rng.IntN(5))
	for {
		spec := s.trySpec(algorithm)
		if algorithm == stint.FixedWindow && s.chance(40) {
			spec.Period, spec.Calendar = 0, s.calendar(longest)
		}
		if s.holding {
			s.holdSpec(&spec)
		}
		if l, err := stint.NewLimit(spec); err == nil && periodOf(l).Microseconds() <= max(longest, 24*3600*second) {
			return spec
		}
	}
}

func (s *script) trySpec(a stint.Algorithm) stint.Spec {
	spec := stint.Spec{Algorithm: a}
	bucket := spec.Algorithm == stint.TokenBucket || spec.Algorithm == stint.LeakyBucket
	switch n := s.rng.IntN(100); {
	case n < 12 && bucket: // a level that another amount cannot express
		spec.Amount, spec.Period, spec.Burst = 1_000_000, time.Second, 1<<51
		return spec
	case n < 15: // tiny
		spec.Amount = s.between(1, 5)
		spec.Period = pick(s, 1*time.Millisecond, 2*time.Millisecond, 7*time.Millisecond, 1001*time.Microsecond)
	case n < 55: // ordinary
		spec.Amount = s.between(1, 200)
		spec.Period = pick(s, time.Second, 1500*time.Millisecond, 10*time.Second, time.Minute, time.Hour)
	case n < 70: // odd
		spec.Amount = s.between(1, 1_000_000)
		spec.Period = micros(s.between(1000, 10_000_000))
	case n < 90: // too large for ticks of 1 µs
		spec.Amount = s.between(500_000, 100_000_000)
		spec.Period = pick(s, time.Hour, 3*time.Hour, 24*time.Hour, 7*24*time.Hour)
	default: // as large as possible
		spec.Amount = s.between(1<<40, 1<<52-1)
		spec.Period = pick(s, time.Millisecond, time.Second, time.Minute)
		if bucket {
			spec.Amount = spec.Period.Microseconds() * s.between(1, 1<<16)
		}
		if bucket && s.chance(30) { // 2^52 parts of 1 µs are just too many
			spec.Amount, spec.Period, spec.Burst = 1000, 1024*time.Millisecond, 1<<42-int64(s.rng.IntN(2))
			return spec
		}
	}
	if bucket && s.chance(50) {
		spec.Burst = pick(s, 1, s.between(1, 20), s.between(1, spec.Amount), 3*spec.Amount)
	}
	if spec.Algorithm == stint.SlidingWindow {
		spec.Buckets = pick(s, 0, 0, 1, 1, 2, 3, 7, 10, 60)
		if s.chance(1) {
			spec.Buckets = 1000
		}
		if n := spec.Buckets; n > 0 && s.chance(50) { // make it fit
			spec.Period = spec.Period / (time.Duration(n) * time.Millisecond) * (time.Duration(n) * time.Millisecond)
		}
	}
	return spec
}

// variants are what l may be changed to while in use; l is one of them.
func (s *script) variants(l *stint.Limit) []*stint.Limit {
	all := []*stint.Limit{l}
	for range 3 {
		spec := l.Spec()
		spec.Amount = pick(s, spec.Amount, spec.Amount+1, spec.Amount-1, 2*spec.Amount, spec.Amount/2, s.between(1, 2*spec.Amount))
		if spec.Algorithm == stint.TokenBucket || spec.Algorithm == stint.LeakyBucket {
			spec.Burst = pick(s, spec.Burst, 0, 1, s.between(1, 1+2*l.Capacity()), 1<<51)
		}
		if l.Capacity() == 1<<51 {
			spec.Amount, spec.Burst = 999_983, s.between(1, 1000)
		}
		if spec.Algorithm == stint.SlidingWindow && spec.Buckets == 0 {
			spec.Buckets = pick(s, 0, 10) // the same
		}
		if s.holding && s.chance(50) {
			inFlight := spec.Algorithm == stint.InFlight
			spec.Hold = pick(s, spec.Hold, s.holdTime(periodOf(l)), 0)
			if spec.Hold == 0 && !inFlight {
				spec.Retry = 0
			}
			if !inFlight {
				spec.Debt = pick(s, spec.Debt, 0, stint.NoDebt, s.between(1, 2*spec.Amount))
			}
		}
		if v, err := stint.NewLimit(spec); err == nil && v.Capacity() > 0 { // 0 has its own count
			all = append(all, v)
		}
	}
	return all
}

// changeForget changes ForgetAfter of a penalty wherever it is in use.
func (s *script) changeForget(p *stint.Penalty) {
	spec := p.Spec()
	old := micros(forget(&spec))
	spec.ForgetAfter = max(time.Millisecond, pick(s, 5*old, 2*old, old/2, old/5).Truncate(time.Microsecond))
	changed, err := stint.NewPenalty(spec)
	if err != nil || spec.ForgetAfter > micros(s.end-s.clock) {
		return
	}
	for _, x := range s.slots {
		if x.penalty == p {
			x.penalty = changed
		}
	}
}

// drawPenalties gives some limits a penalty, which several may share. No two bans have the same
// length: which one is named would be undefined.
func (s *script) drawPenalties(longest int64) {
	var penalties []*stint.Penalty
	var period time.Duration
	for _, x := range s.slots {
		period = max(period, periodOf(x.now))
	}
	for i, name := range []string{"", "p"} {
		base := min(pick(s, period, period, periodOf(pick(s, s.slots...).now)), micros(longest/20))
		spec := stint.PenaltySpec{
			Name:        name,
			WarnAfter:   pick[int64](s, 0, 1, 1, 2),
			BanAfter:    pick[int64](s, 0, 1, 1, 2, 2, 3),
			ForgetAfter: max(time.Millisecond, pick(s, 0, base, 5*base, 20*base, 20*base)),
		}
		if spec.BanAfter > 0 {
			spec.BanFor = max(time.Millisecond, pick(s, base/3, base, 3*base).Truncate(time.Microsecond)) + micros(int64(i))
			spec.Growth = pick[int64](s, 0, 2, 2, 3, 3, 1000, math.MaxInt32)
			spec.MaxBan = pick(s, mostBan, mostBan, spec.BanFor, 2*spec.BanFor, 10*spec.BanFor)
			if spec.MaxBan == mostBan && i == 0 {
				spec.MaxBan = 0 // the same
			} else if spec.MaxBan == mostBan {
				spec.MaxBan -= time.Microsecond
			}
		}
		if p, err := stint.NewPenalty(spec); err == nil {
			penalties = append(penalties, p)
		}
	}
	for _, x := range s.slots {
		if len(penalties) > 0 && s.chance(80) {
			x.penalty = pick(s, penalties...)
		}
	}
}
