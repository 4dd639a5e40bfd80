package limittest

import (
	"context"
	"math"
	"math/big"
	"sort"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// Model is the reference: a Store that is slow and obvious. It remembers every
// request that it admitted for as long as the count lives, and answers from
// that history in exact fractions, word for word by the contract. It shares no
// arithmetic with package stint. The zero Model is empty and ready; it may be
// used from many goroutines at once, and never forgets by itself.
//
// Its clock is time.Now. It implements BatchTaker, Refunder, Resetter, Violator and
// Recorder and Inspector.
type Model struct {
	mu      sync.Mutex
	counts  map[countID]*history
	records map[recordID][]violation
	specs   map[recordID]stint.PenaltySpec // under which the last violation was committed
}

// countID is what limits must have in common to share a count.
type countID struct {
	key, name string
	algorithm stint.Algorithm
	period    time.Duration
	buckets   int64
}

func countOf(a *stint.Ask) countID {
	if a.Limit == nil {
		return countID{key: a.Key} // which no limit has
	}
	s := a.Limit.Spec()
	return countID{a.Key, s.Name, s.Algorithm, s.Period, subWindows(&s)}
}

func costOf(a *stint.Ask) int64 {
	switch {
	case a.Peek, a.Limit == nil:
		return 0
	case a.Cost == 0:
		return 1
	}
	return a.Cost
}

type history struct {
	last    int64 // the instant of the last charge, µs since 1970
	charges []charge
}

type charge struct {
	at    int64 // µs
	units int64 // what is left of it, after units were refunded
	// level is, for the buckets, how many units the bucket held after this
	// charge. It is kept because levels are rounded up where a limit changes:
	// they are part of the history. under is the limit it was made under.
	level *big.Rat
	under *terms
}

// terms is a limit in the words of the contract.
type terms struct {
	algorithm stint.Algorithm
	capacity  int64    // C, or N where there is no burst
	period    int64    // P in µs
	tick      int64    // µs
	rate      *big.Rat // buckets: N/P, units per tick
	buckets   int64    // sliding window: B
	width     int64    // sliding window: W in ticks
}

// exact bounds every product: 2^52.
var exact = big.NewInt(1 << 52)

func termsOf(l *stint.Limit) *terms {
	s := l.Spec()
	m := &terms{algorithm: s.Algorithm, capacity: s.Amount, period: s.Period.Microseconds(), tick: 1, buckets: subWindows(&s)}
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

// How a charge counts at a later instant.
const (
	notAtAll = iota
	inPart   // by the share of its sub-window that the period still covers
	inFull
)

func (m *terms) share(charged, t int64) int {
	switch m.algorithm {
	case stint.FixedWindow:
		if charged/m.period == t/m.period {
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

// level is how full a bucket is at t, in whole parts of this limit's units.
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
// dropped it then, so it stays empty under every other.
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

// restated is a level of another limit, rounded up to parts of 1/q and saturated at 2^52.
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
		return (t/m.period + 1) * m.period
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
	h   *history
	now int64 // never before the last charge that counts
}

func (m *Model) look(a *stint.Ask, at int64) look {
	h := m.counts[countOf(a)]
	if h == nil || m.strands(a, at) {
		h = new(history)
	}
	return look{termsOf(a.Limit), h, max(at, h.last)}
}

// strands tells whether the clock is more than a period and a second behind a charge, which then
// counts for nothing.
func (m *Model) strands(a *stint.Ask, at int64) bool {
	h := m.counts[countOf(a)]
	return h != nil && h.last > at+max(termsOf(a.Limit).period, second)
}

func (l *look) used() *big.Rat { return l.h.used(l.terms, l.now) }

// room is what is left at most for others if n units are in use.
func (l *look) room(n int64) *big.Rat {
	return new(big.Rat).Sub(units(l.capacity), units(n))
}

// roomFor is what may be in use for a to be allowed: it leaves room for the cost and, in a leaky
// bucket, flows out within MaxDelay.
func (l *look) roomFor(a *stint.Ask) *big.Rat {
	room := l.room(costOf(a))
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
	return costOf(a) <= l.capacity && l.used().Cmp(l.roomFor(a)) <= 0
}

func (l *look) remaining() int64 {
	return max(0, floor(new(big.Rat).Sub(units(l.capacity), l.used())))
}

func (l *look) retry(a *stint.Ask) time.Duration {
	if costOf(a) > l.capacity {
		return stint.Never
	}
	return duration(l.h.fits(l.terms, l.now, l.roomFor(a)) - l.now)
}

func (l *look) reset() int64 { return l.h.fits(l.terms, l.now, units(0)) - l.now }

func (l *look) delay() time.Duration {
	return duration(ceil(new(big.Rat).Quo(l.used(), l.rate)) * l.tick)
}

// Take implements stint.Store.
func (m *Model) Take(_ context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := instant(r)
	if d, banned := m.running(r, now); banned {
		for i := range r.Asks { // when the limits would allow
			a := &r.Asks[i]
			if a.Limit == nil {
				continue
			}
			if l := m.look(a, now); !l.allows(a) {
				d.RetryAfter = max(d.RetryAfter, l.retry(a))
			}
		}
		return d, nil
	}
	each := make([]stint.Decision, len(r.Asks))
	allowed := true
	for i := range r.Asks {
		a := &r.Asks[i]
		if each[i].Allowed = true; a.Limit != nil {
			l := m.look(a, now)
			each[i].Allowed = l.allows(a)
		}
		allowed = allowed && each[i].Allowed
	}
	for i := range r.Asks {
		each[i] = m.settle(&r.Asks[i], now, allowed, each[i].Allowed)
	}
	copy(out, each)
	d := strictest(each)
	if !allowed {
		m.punish(r, each, now, &d)
	}
	return d, nil
}

// settle charges a, if the request as a whole is allowed, and answers it.
func (m *Model) settle(a *stint.Ask, now int64, allowed, fits bool) stint.Decision {
	if a.Limit == nil {
		return stint.Decision{Allowed: true, Outcome: stint.Allowed, Key: a.Key}
	}
	l := m.look(a, now)
	d := stint.Decision{Allowed: fits, Outcome: stint.Allowed, Limit: a.Limit, Key: a.Key}
	if !fits {
		d.Outcome = stint.Limited
		d.RetryAfter = l.retry(a)
	}
	if allowed && l.algorithm == stint.LeakyBucket {
		d.Delay = l.delay()
	}
	if allowed && costOf(a) > 0 {
		l.h.charge(l.terms, l.now, costOf(a))
		if m.counts == nil {
			m.counts = make(map[countID]*history)
		}
		m.counts[countOf(a)] = l.h
		if a.Penalty != nil && m.standing(recordOf(a), a.Penalty.Spec(), now) == nil {
			delete(m.records, recordOf(a)) // even if the clock comes to it again
		}
	}
	d.Remaining = l.remaining()
	d.ResetAfter = duration(l.reset())
	return d
}

// strictest is the denial with the longest wait, else the answer with the least remaining; the
// first of equals, and those without a limit last.
func strictest(each []stint.Decision) stint.Decision {
	order := make([]int, len(each))
	var delay time.Duration
	for i := range each {
		order[i] = i
		delay = max(delay, each[i].Delay)
	}
	sort.SliceStable(order, func(i, j int) bool {
		a, b := &each[order[i]], &each[order[j]]
		switch {
		case a.Limit == nil || b.Limit == nil:
			return a.Limit != nil && b.Limit == nil
		case a.Allowed != b.Allowed:
			return b.Allowed
		case a.Allowed:
			return a.Remaining < b.Remaining
		default:
			return a.RetryAfter > b.RetryAfter
		}
	})
	d := each[order[0]]
	d.Delay = delay
	return d
}

// TakeBatch implements stint.BatchTaker.
func (m *Model) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		answers[i].Decision, answers[i].Err = m.Take(ctx, &rs[i], answers[i].Each)
	}
}

// Refund implements stint.Refunder. What becomes unused by it is forgotten
// altogether, the instant of its last charge included.
func (m *Model) Refund(_ context.Context, r *stint.Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := instant(r)
	for i := range r.Asks {
		a := &r.Asks[i]
		l := m.look(a, now)
		if l.used().Sign() == 0 {
			continue
		}
		if l.h.refund(l.terms, l.now, costOf(a)); l.used().Sign() == 0 {
			delete(m.counts, countOf(a))
		}
	}
	return nil
}

// Reset implements stint.Resetter.
func (m *Model) Reset(_ context.Context, r *stint.Request) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range r.Asks {
		a := &r.Asks[i]
		if a.Limit != nil {
			delete(m.counts, countOf(a))
		}
		if a.Penalty != nil {
			delete(m.records, recordOf(a))
		}
	}
	return nil
}

func instant(r *stint.Request) int64 {
	if r.At.IsZero() {
		return time.Now().UnixMicro()
	}
	return r.At.UnixMicro()
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
