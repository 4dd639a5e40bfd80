package algo

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Exact bounds every product of the twins: Lua's doubles hold integers exactly to 2^53, and a sum of
// two such products must be exact.
const Exact = 1 << 52

// maxPeriod keeps an instant and two periods exact, µs.
const maxPeriod = Exact / 2

// DefaultBuckets is the default number of sub-windows, MaxBuckets the largest: each costs a byte or
// more in every key's state.
const (
	DefaultBuckets = 10
	MaxBuckets     = 1000
)

// Plan is a limit prepared for arithmetic, in whole ticks of Tick µs: products stay below Exact.
type Plan struct {
	Kind     Kind
	Amount   int64 // N: units per period
	Capacity int64 // C: units that fit at once; N unless a bucket says otherwise
	Period   int64 // P in µs; for a calendar, longer than any window
	Buckets  int64 // sliding window: sub-windows in a period; else 0
	Tick     int64 // µs in a tick: 1 or 1000
	Rate     int64 // buckets: r, parts that come back per tick
	Unit     int64 // parts in a unit: q for the buckets, 1 otherwise
	Full     int64 // Capacity in parts
	Width    int64 // sliding window: W, ticks in a sub-window
	Hold     int64 // µs that a hold lasts without renewal; 0: the limit is not held
	Busy     int64 // µs, the hint if holds refuse
	Most     int64 // S in parts: the most usage after settlements and charges; see Room
	bits     uint8 // of Full
	// Calendar has the windows of a fixed window with a calendar; else it is nil.
	Calendar *Calendar
	around   *[4]int64 // set by Around
}

// IsBucket reports whether p is of a token or leaky bucket; all their units are alike.
func (p *Plan) IsBucket() bool { return p.Kind == TokenBucket || p.Kind == LeakyBucket }

// NewPlan checks a limit and computes its numbers. burst and buckets are 0 if not given.
func NewPlan(kind Kind, amount int64, period time.Duration, burst, buckets int64) (Plan, error) {
	p, err := newPlan(kind, amount, period, burst, buckets)
	p.bits = uint8(bits.Len64(uint64(p.Full)))
	return p, err
}

func newPlan(kind Kind, amount int64, period time.Duration, burst, buckets int64) (Plan, error) {
	p := Plan{Kind: kind, Amount: amount, Capacity: amount, Period: period.Microseconds(), Tick: 1, Unit: 1, Full: amount}
	bucket := kind == TokenBucket || kind == LeakyBucket
	switch {
	case kind > InFlight:
		return Plan{}, fmt.Errorf("unknown algorithm %d", kind)
	case amount < 1:
		return Plan{}, fmt.Errorf("amount %d: must be at least 1", amount)
	case amount >= Exact:
		return Plan{}, fmt.Errorf("amount %d: too large for exact arithmetic (must be below 2^52)", amount)
	case kind == InFlight:
		return p, checkInFlight(period, burst, buckets)
	case period < time.Millisecond:
		return Plan{}, fmt.Errorf("period %s: must be at least 1ms", period)
	case p.Period > maxPeriod:
		return Plan{}, fmt.Errorf("period %s: too large for exact arithmetic (must be at most 71 years)", period)
	case period%time.Microsecond != 0:
		return Plan{}, fmt.Errorf("period %s: must be a whole number of microseconds", period)
	case burst < 0:
		return Plan{}, fmt.Errorf("burst %d: must be at least 1", burst)
	case burst > 0 && !bucket:
		return Plan{}, fmt.Errorf("burst %d: only token_bucket and leaky_bucket have a burst", burst)
	case burst >= Exact:
		return Plan{}, fmt.Errorf("burst %d: too large for exact arithmetic (must be below 2^52)", burst)
	case buckets < 0 || buckets > MaxBuckets:
		return Plan{}, fmt.Errorf("buckets %d: must be from 1 to %d", buckets, MaxBuckets)
	case buckets > 0 && kind != SlidingWindow:
		return Plan{}, fmt.Errorf("buckets %d: only sliding_window has sub-windows", buckets)
	}
	if bucket {
		if burst > 0 {
			p.Capacity = burst
		}
		return p.fitBucket()
	}
	if kind == SlidingWindow {
		p.Buckets = buckets
		if buckets == 0 {
			p.Buckets = DefaultBuckets
		}
		return p.fitWindow()
	}
	return p, nil
}

// NewCalendarPlan is NewPlan for a fixed window of a calendar.
func NewCalendarPlan(amount int64, c *Calendar, burst, buckets int64) (Plan, error) {
	p, err := NewPlan(FixedWindow, amount, Duration(c.longest()), burst, buckets)
	p.Calendar = c
	return p, err
}

func (p Plan) fitBucket() (Plan, error) {
	for _, tick := range []int64{1, 1000} {
		if p.Period%tick != 0 {
			break
		}
		p.Rate, p.Unit = lowest(p.Amount, p.Period/tick)
		if p.Capacity <= (Exact-1)/p.Unit {
			p.Tick, p.Full = tick, p.Capacity*p.Unit
			return p, nil
		}
	}
	return Plan{}, fmt.Errorf("amount %d per %s with burst %d: too large for exact arithmetic "+
		"(burst × period / gcd(amount, period) must be below 2^52 microseconds, or whole milliseconds)",
		p.Amount, time.Duration(p.Period)*time.Microsecond, p.Capacity)
}

func (p Plan) fitWindow() (Plan, error) {
	if p.Period%p.Buckets != 0 {
		return Plan{}, fmt.Errorf("buckets %d: do not divide the period %s into whole microseconds",
			p.Buckets, time.Duration(p.Period)*time.Microsecond)
	}
	width := p.Period / p.Buckets
	for _, tick := range []int64{1, 1000} {
		if width%tick != 0 {
			break
		}
		if p.Amount <= (Exact-1)/(width/tick) {
			p.Tick, p.Width = tick, width/tick
			return p, nil
		}
	}
	return Plan{}, fmt.Errorf("amount %d per %s in %d sub-windows: too large for exact arithmetic "+
		"(amount × sub-window must be below 2^52 microseconds, or whole milliseconds)",
		p.Amount, time.Duration(p.Period)*time.Microsecond, p.Buckets)
}

func lowest(a, b int64) (int64, int64) {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x, b / x
}

// Duration turns µs into a time.Duration. Never, and more than 292 years, become the longest.
func Duration(us int64) time.Duration {
	if uint64(us) > math.MaxInt64/1000 {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}
