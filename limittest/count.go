package limittest

import (
	"cmp"
	"math"
	"math/big"
	"sort"
	"time"

	"github.com/stintdev/stint"
)

type history struct {
	last    int64 // the instant of the last charge, µs since 1970
	charges []charge
}

type charge struct {
	at    int64 // µs
	units int64 // the rest of it, after refunds
	// level is a bucket's level after this charge, under its limit: levels are rounded up when a
	// limit changes, so they are part of the history.
	level *big.Rat
	under *terms
}

// terms has a limit's numbers, named as in the contract.
type terms struct {
	algorithm stint.Algorithm
	capacity  int64 // C, or N without a burst
	period    int64 // P in µs; of the calendar, about how long a window is
	calendar  *calendar
	tick      int64    // µs
	rate      *big.Rat // buckets: N/P, units per tick
	buckets   int64    // sliding window: B
	width     int64    // sliding window: W in ticks
}

// exact bounds every product: 2^52.
var exact = big.NewInt(1 << 52)

func termsOf(l *stint.Limit) *terms {
	s := l.Spec()
	if isExtreme(l) { // of no units, or unlimited
		s = stint.Spec{Algorithm: stint.FixedWindow, Amount: s.Amount, Period: time.Second}
	}
	m := &terms{algorithm: s.Algorithm, capacity: s.Amount, period: s.Period.Microseconds(), tick: 1, buckets: subWindows(&s)}
	if s.Calendar.Unit != 0 {
		c := calendarOf(s.Calendar)
		m.calendar, m.period = &c, c.length()
	}
	switch s.Algorithm {
	case stint.TokenBucket, stint.LeakyBucket:
		if s.Burst > 0 {
			m.capacity = s.Burst
		}
		m.capacity -= m.capacity * int64(s.Lease) / 100
		m.rate = big.NewRat(s.Amount, m.period)
		if tooLarge(m.capacity, m.rate.Denom()) {
			m.tick = 1000
			m.rate = big.NewRat(s.Amount, m.period/1000)
		}
	case stint.SlidingWindow:
		m.width = m.period / m.buckets
		if tooLarge(s.Amount, big.NewInt(m.width)) {
			m.tick = 1000
			m.width /= 1000
		}
	}
	return m
}

func tooLarge(a int64, b *big.Int) bool {
	return new(big.Int).Mul(big.NewInt(a), b).Cmp(exact) >= 0
}

func subWindows(s *stint.Spec) int64 {
	if s.Algorithm == stint.SlidingWindow && s.Buckets == 0 {
		return 10
	}
	return int64(s.Buckets)
}

// used is how many units count at t, which is not before the last charge.
func (h *history) used(m *terms, t int64) *big.Rat {
	if m.rate != nil {
		return h.level(m, t)
	}
	var full, part int64
	for _, c := range h.charges {
		switch m.share(c.at, t) {
		case inFull:
			full += c.units
		case inPart:
			part += c.units
		}
	}
	if part > 0 {
		off := t / m.tick % m.width
		full += ceil(new(big.Rat).Mul(units(part), big.NewRat(m.width-off, m.width)))
	}
	return units(full)
}

// window is that of a fixed window at t.
func (m *terms) window(t int64) (start, end int64) {
	if m.calendar != nil {
		return m.calendar.window(t)
	}
	return t / m.period * m.period, (t/m.period + 1) * m.period
}

// The ways in which a charge counts at a later instant.
const (
	notAtAll = iota
	inPart   // in proportion to the part of its sub-window within the period
	inFull
)

func (m *terms) share(charged, t int64) int {
	switch m.algorithm {
	case stint.FixedWindow:
		from, end := m.window(t)
		if from <= charged && charged < end {
			return inFull
		}
	case stint.SlidingLog:
		if charged > t-m.period {
			return inFull
		}
	case stint.SlidingWindow:
		age := t/m.tick/m.width - charged/m.tick/m.width
		if age < m.buckets {
			return inFull
		}
		if age == m.buckets {
			return inPart
		}
	}
	return notAtAll
}

// level is the level of a bucket at t, in whole parts of this limit's units.
func (h *history) level(m *terms, t int64) *big.Rat {
	if len(h.charges) == 0 {
		return units(0)
	}
	if t >= h.dry() {
		return units(0)
	}
	level := h.carried(m)
	ticks := t/m.tick - h.last/m.tick
	level.Sub(level, new(big.Rat).Mul(m.rate, units(ticks)))
	if level.Sign() < 0 {
		return units(0)
	}
	return level
}

// dry is the instant from which a bucket is empty under its last charge's limit. A store may have
// dropped it then, so it stays empty under every other limit.
func (h *history) dry() int64 {
	c := &h.charges[len(h.charges)-1]
	under := c.under
	level := under.restated(c.level)
	return (h.last/under.tick + ceil(level.Quo(level, under.rate))) * under.tick
}

// carried is the level after the last charge. Under a limit with longer ticks, nothing flows out
// before the next of those begins.
func (h *history) carried(m *terms) *big.Rat {
	c := &h.charges[len(h.charges)-1]
	level := m.restated(c.level)
	if c.under.tick < m.tick && h.last%m.tick > 0 {
		level = m.restated(level.Add(level, m.rate))
	}
	return level
}

// restated converts a level of another limit, rounded up to parts of 1/q and saturated at 2^52.
func (m *terms) restated(level *big.Rat) *big.Rat {
	q := m.rate.Denom()
	parts := ceilInt(new(big.Rat).Mul(level, new(big.Rat).SetInt(q)))
	if parts.Cmp(exact) > 0 {
		parts = exact
	}
	return new(big.Rat).SetFrac(parts, q)
}

// fits is the first instant from t on at which no more than room units are used.
func (h *history) fits(m *terms, t int64, room *big.Rat) int64 {
	if h.used(m, t).Cmp(room) <= 0 {
		return t
	}
	switch m.algorithm {
	case stint.FixedWindow:
		_, end := m.window(t)
		return end
	case stint.SlidingLog:
		for _, c := range h.charges {
			if out := c.at + m.period; out > t && h.used(m, out).Cmp(room) <= 0 {
				return out
			}
		}
	case stint.SlidingWindow:
		for i := t / m.tick / m.width; ; i++ {
			first := max(i*m.width, t/m.tick)
			n := int((i+1)*m.width - first)
			if h.used(m, ((i+1)*m.width-1)*m.tick).Cmp(room) > 0 {
				continue // not even at its end
			}
			k := sort.Search(n, func(k int) bool { return h.used(m, (first+int64(k))*m.tick).Cmp(room) <= 0 })
			return (first + int64(k)) * m.tick
		}
	default:
		excess := new(big.Rat).Sub(h.level(m, t), room)
		return (t/m.tick + ceil(excess.Quo(excess, m.rate))) * m.tick
	}
	panic("limittest: what was admitted never leaves")
}

func (h *history) charge(m *terms, t, n int64) {
	c := charge{at: t, units: n}
	if m.rate != nil {
		c.level = h.level(m, t)
		c.level.Add(c.level, units(n))
		c.under = m
	}
	h.charges = append(h.charges, c)
	h.last = t
}

func (h *history) refund(m *terms, t, n int64) {
	if m.rate != nil && n > 0 && len(h.charges) > 0 {
		c := &h.charges[len(h.charges)-1]
		c.level.Sub(c.level, units(n))
		return
	}
	for i := len(h.charges) - 1; i >= 0 && n > 0; i-- {
		if c := &h.charges[i]; m.share(c.at, t) != notAtAll {
			k := min(n, c.units)
			c.units -= k
			n -= k
		}
	}
}

type look struct {
	*terms
	held
	h   *history
	now int64 // never before the last charge that counts
	// asks is how many units are asked for: the cost, or 1 to ask whether a hold would be allowed,
	// if holds is set.
	asks  int64
	holds bool
}

func (l *look) used() *big.Rat { return l.h.used(l.terms, l.now) }

// room is the most that may be in use besides n units.
func (l *look) room(n int64) *big.Rat {
	return new(big.Rat).Sub(units(l.capacity), units(n))
}

// roomFor is how much may be in use if a is to be allowed: it leaves room for the cost and, in a
// leaky bucket, flows out within MaxDelay.
func (l *look) roomFor(a *stint.Ask) *big.Rat {
	room := l.room(l.asks)
	if l.algorithm != stint.LeakyBucket || a.MaxDelay == 0 {
		return room
	}
	ticks := max(0, a.MaxDelay.Microseconds()) / l.tick
	if flows := new(big.Rat).Mul(l.rate, units(ticks)); flows.Cmp(room) < 0 {
		return flows
	}
	return room
}

func (l *look) allows(a *stint.Ask) bool {
	if l.asks > l.capacity || l.isFull() {
		return false
	}
	return new(big.Rat).Add(l.used(), units(l.units)).Cmp(l.roomFor(a)) <= 0
}

func (l *look) remaining() int64 {
	return max(0, floor(new(big.Rat).Sub(units(l.capacity), l.used()))-l.units)
}

// retry is the wait of a refusal. busy: holds refuse, and the wait is a hint.
func (l *look) retry(a *stint.Ask) (wait time.Duration, busy bool) {
	if l.asks > l.capacity {
		return stint.Never, false
	}
	if l.used().Cmp(l.roomFor(a)) <= 0 {
		return cmp.Or(a.Limit.Spec().Retry, time.Second), true
	}
	return duration(l.h.fits(l.terms, l.now, l.roomFor(a)) - l.now), false
}

func (l *look) reset() int64 { return max(l.h.fits(l.terms, l.now, units(0))-l.now, l.left) }

func (l *look) delay() time.Duration {
	return duration(ceil(new(big.Rat).Quo(l.used(), l.rate)) * l.tick)
}

func duration(us int64) time.Duration {
	if us > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}

func units(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func floor(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }

func ceil(r *big.Rat) int64 { return ceilInt(r).Int64() }

func ceilInt(r *big.Rat) *big.Int {
	n := new(big.Int).Div(new(big.Int).Neg(r.Num()), r.Denom())
	return n.Neg(n)
}
