package algo

import (
	"math/bits"
	"time"
)

// Both buckets share one level: it falls by Rate parts per tick to 0, and a request adds its cost in
// parts. A leaky bucket also says how long a request waits to leave (Verdict.Delay).

// level is the level at the last charge, in p's parts. A level of another amount is rounded up,
// perhaps above p's capacity, up to 2^52 parts. A bucket that was empty under its own amount stays
// unused, because a store may have dropped it. If p's ticks are longer, nothing flows out in the
// rest of the charge's tick: otherwise two limits, one with shorter ticks, would let out twice as
// much.
func (p *Plan) level(s *State, now int64) int64 {
	if s.Used == 0 || s.Amount == p.Amount && s.Tick == p.Tick {
		return s.Used
	}
	rate, unit := lowest(s.Amount, p.Period/s.Tick)
	if fall(s.Used, rate, now/s.Tick-s.Last/s.Tick) == 0 {
		return 0
	}
	level := mulDivUp(s.Used, p.Unit, unit)
	if s.Tick < p.Tick && s.Last%p.Tick > 0 {
		level = min(level+p.Rate, Exact)
	}
	return level
}

// fall is the rest of a level after ticks. It compares a product of 128 bits, so it cannot
// overflow.
func fall(level, rate, ticks int64) int64 {
	if hi, fell := bits.Mul64(uint64(rate), uint64(ticks)); hi == 0 && fell < uint64(level) {
		return level - int64(fell)
	}
	return 0
}

// mulDivUp is ⌈a·b/c⌉, at most Exact.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return Exact
	}
	q, rem := bits.Div64(hi, lo, uint64(c))
	if rem > 0 {
		q++
	}
	return int64(min(q, Exact))
}

// drain is how long it takes until level parts have flowed out, in µs; at most Exact (142 years).
func (p *Plan) drain(level int64) int64 {
	if p.Rate != 1 {
		level = quotient(level+p.Rate-1, p.Rate)
	}
	return min(level*p.Tick, Exact)
}

// LevelAt is the level, in parts, at which a request waits for delay µs; at most Exact.
func (p *Plan) LevelAt(delay int64) int64 { return mulDivUp(delay/p.Tick, p.Rate, 1) }

// Raise sets the usage at v of a bucket to level, in parts. It returns how long that takes to flow
// out, µs.
func (p *Plan) Raise(s *State, v *View, level int64) (reset int64) {
	v.Used = level
	*s = p.SmallState(v.Now, level)
	return p.reset(s, v)
}

// Flow is how long units take to flow out of a bucket, µs; at most Exact ticks.
func (p *Plan) Flow(units int64) int64 { return mulDivUp(units, p.Unit, p.Rate) * p.Tick }

// WithDelay returns p for a request of cost n that accepts at most this delay: a leaky bucket then
// has a lower Full. Negative: no delay; 0: any delay, so p itself. Other plans have no delay.
func (p *Plan) WithDelay(n int64, most time.Duration) *Plan {
	if most == 0 {
		return p
	}
	q := *p
	if p.Kind != LeakyBucket || n > p.Capacity {
		return &q
	}
	// The delay is ⌈level/Rate⌉ ticks, of the level before the charge.
	ticks := max(0, most.Microseconds()) / p.Tick
	if hi, level := bits.Mul64(uint64(p.Rate), uint64(ticks)); hi == 0 && level < uint64(p.Full) {
		q.Full = min(p.Full, int64(level)+n*p.Unit)
	}
	return &q
}

// wait is the time from v until level parts have flowed out; v may be within a tick.
func (p *Plan) wait(v *View, level int64) int64 {
	if level <= 0 {
		return 0
	}
	if p.Tick == 1 {
		return p.drain(level)
	}
	return p.drain(level) - v.Now%p.Tick
}

// refundBucket lowers the level at the last charge, in that charge's parts, so that the state
// ends when the store expects.
func (p *Plan) refundBucket(s *State, now, n int64) (emptied bool) {
	_, unit := lowest(s.Amount, p.Period/s.Tick)
	if n > (s.Used-1)/unit {
		return true
	}
	s.Used -= n * unit
	v := p.Look(s, now)
	return v.Used == 0
}
