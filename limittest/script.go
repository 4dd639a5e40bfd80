package limittest

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// script draws random requests, but knows the Model's state, so that interesting states are met
// often, in episodes with their own limits, penalties and keys. If a clock steps back, or a limit
// is slower, the answer about a count that a store may have dropped is undefined: the script avoids
// it (see certain).
type script struct {
	rng   *rand.Rand
	model Model
	steps int   // left
	clock int64 // the instant of the last request, µs
	high  int64 // the latest instant so far
	end   int64 // the latest instant of the episode
	verbs []string

	episode   int
	left      int // steps left in the episode
	keys      []string
	slots     []*slot
	moments   []int64 // instants at which some answer changes
	onMoment  bool    // the last instant was one of them
	unusedAt  map[countID]int64
	cleanAt   map[recordID]int64
	gone      map[recordID]bool        // that a store may have dropped before the clock jumped back
	jumping   bool                     // the clock jumps back to the next instant
	lastLimit map[countID]*stint.Limit // limit of the last charge

	holding  bool                // the episode has holds
	held     []scriptHold        // in this episode
	released scriptHold          // the last one to be released
	doubted  map[*modelHold]bool // that a store may have dropped before the clock jumped back
	ids      uint64              // identities of holds so far
}

// slot is a limit that changes its amount and burst while in use.
type slot struct {
	now     *stint.Limit
	choices []*stint.Limit
	penalty *stint.Penalty
}

type move struct {
	verb string
	req  stint.Request
	seen []seen // for each ask with a limit
	// calls are the HoldCalls, with answers once made. Asks of req have their keys and limits.
	calls []stint.HoldCall
	// running says, for a violation, whether one of its records has a running ban.
	running bool
}

// seen is what the Model sees of an ask's limit just before the move.
type seen struct {
	now       int64
	inUse     bool
	saturated bool
	msTick    bool
	stranded  bool
	fits      bool // ignoring its delay
	reforgets bool // its last violation had another ForgetAfter
	holds     bool // it asks whether a hold would fit
	inDebt    bool // more is used than fits
	// For a call: whether there is a record of its hold, a released one, and one that counts or is
	// too far ahead.
	known, released, counts, ahead bool
}

func newScript(seed uint64, steps int, verbs []string) *script {
	return &script{rng: rand.New(rand.NewPCG(seed, 1)), steps: steps, verbs: verbs}
}

func (s *script) chance(percent int) bool { return s.rng.IntN(100) < percent }

func pick[T any](s *script, of ...T) T { return of[s.rng.IntN(len(of))] }

// between is a number from lo to hi, most often near lo.
func (s *script) between(lo, hi int64) int64 {
	if hi <= lo {
		return lo
	}
	if s.chance(50) {
		hi = lo + int64(math.Pow(float64(hi-lo), s.rng.Float64()))
	}
	return lo + s.rng.Int64N(hi-lo+1)
}

// The least steps of an episode; at random, it has up to twice as many.
const episodeSteps = 60

func (s *script) begin() {
	s.episode++
	s.left = episodeSteps + s.rng.IntN(episodeSteps)
	s.clock = s.high + s.between(0, 1_000_000)
	// The time until 2112 must suffice for all episodes.
	allowance := (exact.Int64() - 1 - s.clock) / int64(s.steps/episodeSteps+4)
	if allowance < time.Hour.Microseconds() {
		panic("limittest: too many steps for one run")
	}
	s.end = s.clock + allowance
	s.keys, s.slots, s.moments = nil, nil, nil
	s.unusedAt, s.cleanAt = make(map[countID]int64), make(map[recordID]int64)
	s.gone = make(map[recordID]bool)
	s.lastLimit = make(map[countID]*stint.Limit)
	s.holding = slices.Contains(s.verbs, "hold") && s.chance(60)
	s.held, s.released, s.doubted = nil, scriptHold{}, make(map[*modelHold]bool)
	for i := range 1 + s.rng.IntN(3) {
		s.keys = append(s.keys, fmt.Sprintf("e%d:%d", s.episode, i))
	}
	for i := range 1 + s.rng.IntN(4) {
		spec := s.spec(allowance / 10)
		spec.Name = pick(s, "", "a", "b", "c")
		if limit, err := stint.NewLimit(spec); err == nil && !s.hasID(limit.ID()) {
			s.slots = append(s.slots, &slot{now: limit, choices: s.variants(limit)})
		} else if i == 0 {
			panic("limittest: no first limit") // spec returns valid ones
		}
	}
	if s.chance(75) {
		s.drawPenalties(allowance / 10)
	}
}

func (s *script) hasID(id string) bool {
	return slices.ContainsFunc(s.slots, func(x *slot) bool { return x.now.ID() == id })
}

// next draws the next move; done must be called with its outcome.
func (s *script) next() *move {
	s.steps--
	for {
		if s.left <= 0 {
			s.begin()
		}
		s.left--
		if m := s.tryMove(); m != nil {
			return m
		}
	}
}

// tryMove returns nil if no answer would be certain.
func (s *script) tryMove() *move {
	if x := pick(s, s.slots...); s.chance(16) {
		x.now = pick(s, x.choices...)
	}
	if x := pick(s, s.slots...); x.penalty != nil && s.chance(8) {
		s.changeForget(x.penalty)
	}
	m := &move{verb: "take"}
	switch {
	case s.chance(8) && slices.Contains(s.verbs, "refund"):
		m.verb = "refund"
	case s.chance(2) && slices.Contains(s.verbs, "reset"):
		m.verb = "reset"
	case s.chance(8) && slices.Contains(s.verbs, "violate"):
		m.verb = "violate"
	}
	at := s.instant()
	if s.holding && s.chance(30) {
		return s.calls(m, at)
	}
	asks := s.drawAsks()
	if m.verb == "violate" {
		return s.violate(m, at, slices.DeleteFunc(asks, func(a stint.Ask) bool { return a.Penalty == nil }))
	}
	for i := range asks {
		if a := &asks[i]; m.verb == "take" && a.Penalty != nil && s.chance(15) {
			a.Limit, a.MaxDelay = nil, 0
		}
	}
	if m.verb != "reset" {
		var ok bool
		if at, ok = s.certain(at, asks); !ok {
			return nil
		}
	}
	if m.verb == "take" && s.holding && s.chance(60) {
		m.req.Hold = s.newHold()
		if s.chance(15) {
			m.req.HoldFor = s.holdTime(periodOf(pick(s, s.slots...).now))
		}
	}
	for i := range asks {
		a := &asks[i]
		if a.Limit == nil {
			m.seen = append(m.seen, seen{now: at})
			continue
		}
		l := s.model.lookFor(&m.req, a, at)
		n := s.cost(l.capacity, l.remaining())
		if m.verb == "refund" && len(l.h.charges) > 0 && s.chance(80) {
			n = s.refund(&l)
		}
		if stint.Internal(friend.Of{}).SetUnits(a, n); n == 1 && s.chance(50) {
			a.Cost = 0 // which says the same
		}
		if l.endless(n) {
			return nil
		}
		m.seen = append(m.seen, seen{
			now: l.now, inUse: l.used().Sign() > 0, saturated: l.saturated(), msTick: l.tick == 1000,
			stranded:  s.model.strands(a, at),
			fits:      n <= l.capacity && l.used().Cmp(l.room(n)) <= 0,
			reforgets: s.model.reforgets(a), holds: l.holds, inDebt: l.used().Cmp(units(l.capacity)) > 0,
		})
	}
	if m.verb == "reset" && asks[0].Penalty != nil && s.chance(50) {
		asks[0].Limit = nil // lifts a ban and nothing else
		asks, m.seen = asks[:1], nil
	}
	s.to(at)
	// Fractions of a µs do not count.
	m.req.Asks, m.req.At = asks, time.UnixMicro(at).Add(time.Duration(s.rng.IntN(1000)))
	return m
}

func (s *script) violate(m *move, at int64, asks []stint.Ask) *move {
	if len(asks) == 0 {
		return nil
	}
	at, ok := s.certain(at, asks)
	if !ok {
		return nil
	}
	for i := range asks {
		asks[i].Cost = pick[int64](s, 0, 0, 1, 2, 3, 10)
	}
	if s.chance(30) {
		for i := range asks {
			asks[i].Limit = nil // it must not be looked at
		}
	}
	s.to(at)
	m.req = stint.Request{Asks: asks, At: time.UnixMicro(at)}
	_, m.running = s.model.running(&m.req, at)
	return m
}

// to moves the clock. If it jumps back, counts that a store may have dropped stay in doubt.
func (s *script) to(at int64) {
	if s.jumping && at < s.high {
		for id, unused := range s.unusedAt {
			if unused <= s.high {
				s.unusedAt[id] = 0
			}
		}
		for id, clean := range s.cleanAt {
			if clean <= s.high {
				s.gone[id] = true
			}
		}
		for _, holds := range s.model.holds {
			for _, h := range holds {
				if h.until+keepsRunOut <= s.high {
					s.doubted[h] = true
				}
			}
		}
		s.high = at
	}
	s.clock, s.high = at, max(s.high, at)
}

func (s *script) drawAsks() []stint.Ask {
	var asks []stint.Ask
	for range pick(s, 1, 1, 1, 2, 2, 3, 4) {
		x := pick(s, s.slots...)
		a := stint.Ask{Key: s.keys[s.rng.IntN(len(s.keys))], Limit: x.now, Penalty: x.penalty}
		if s.chance(50) {
			a.Key = s.keys[0]
		}
		if x.now.Spec().Algorithm == stint.LeakyBucket && s.chance(30) {
			m := termsOf(x.now)
			longest, _ := new(big.Rat).Quo(units(m.capacity), m.rate).Float64() // in ticks
			longest = min(longest*float64(m.tick), 1e15)
			a.MaxDelay = pick(s, -1, 1, 999, 1500, micros(s.between(1, int64(longest)+1)), micros(s.between(1, int64(longest)+1)))
		}
		if s.chance(5) {
			a.Penalty = pick(s, s.slots...).penalty
		}
		if !slices.ContainsFunc(asks, func(b stint.Ask) bool { return b.Key == a.Key && b.Limit == a.Limit }) {
			asks = append(asks, a)
		}
	}
	return asks
}

// cost often just fits, or just does not.
func (s *script) cost(capacity, remaining int64) int64 {
	switch n := s.rng.IntN(100); {
	case n < 35:
		return 1
	case n < 43:
		return 0
	case n < 60:
		return remaining
	case n < 68:
		return remaining + 1
	case n < 73:
		return capacity
	case n < 78:
		return capacity + 1 + int64(s.rng.IntN(2))
	case n < 80:
		return pick[int64](s, math.MaxInt64, 1<<62, 1<<53, 1<<52, 1<<32)
	default:
		return s.between(1, max(1, remaining/2))
	}
}

// refund is often the last charge, or just the units in use.
func (s *script) refund(l *look) int64 {
	used, last := ceil(l.used()), l.h.charges[len(l.h.charges)-1].units
	return max(0, pick(s, 0, 0, last, last, used-1, used, used+1, s.between(1, used)))
}

// instant is the same, a bit later, at a border, far ahead, or earlier than the last.
func (s *script) instant() int64 {
	m := termsOf(pick(s, s.slots...).now)
	m.period = max(m.period, 1000) // in_flight has none
	t := s.clock
	s.onMoment, s.jumping = false, false
	if len(s.held) > 0 && s.chance(8) {
		t = s.holdInstant()
		if t < 0 || t > s.end {
			return s.clock
		}
		return t
	}
	switch n := s.rng.IntN(100); {
	case n < 30:
	case n < 38:
		t += s.between(1, 1000)
	case n < 54:
		t += s.between(1, m.period/int64(1+s.rng.IntN(20)))
	case n < 58:
		t += s.rng.Int64N(2 * m.period)
	case n < 82 && len(s.moments) > 0:
		t = pick(s, s.moments...) + pick[int64](s, -1000, -1, -1, 0, 0, 0, 1)
		s.onMoment = true
	case n < 88:
		border := pick(s, m.period, max(1, m.width)*m.tick, 1000)
		next := (t/border + 1) * border
		if m.calendar != nil && border == m.period {
			_, next = m.window(t)
		}
		t = next + pick[int64](s, -1, 0, 1)
	case n < 94:
		t -= s.between(1, pick(s, 1000, m.period, 2*m.period))
	case n < 96:
		t += int64(1+s.rng.IntN(4)) * m.period
	case n < 98:
		t -= pick(s, max(m.period, second)+pick[int64](s, 0, 1, 1, 2), s.between(m.period, 10*m.period), 3_600_000_000, 365*24*3_600_000_000)
		s.jumping = true
	}
	if t < 0 || t > s.end {
		return s.clock
	}
	return t
}

func (s *script) done(m *move, d *stint.Decision, each []stint.Decision) {
	if m.verb == "hold" {
		s.noteCalls(m)
		return
	}
	s.noteHolds(m, d)
	for i := range m.req.Asks {
		a := &m.req.Asks[i]
		if a.Limit != nil {
			s.noteCount(a, d.Allowed && charges(&m.req, a))
		}
		if a.Penalty != nil {
			id, clean := recordOf(a), s.model.cleanFrom(a)
			if clean != s.cleanAt[id] {
				delete(s.gone, id)
			}
			s.cleanAt[id] = clean
			if s.chance(30) {
				s.note(clean)
			}
		}
		if m.verb == "take" && d.Limit != nil {
			now := m.seen[i].now
			s.note(now+each[i].RetryAfter.Microseconds(), now+each[i].ResetAfter.Microseconds())
		}
	}
	if d.BanLeft > 0 {
		s.note(s.clock + d.BanLeft.Microseconds())
	}
}

func (s *script) noteCount(a *stint.Ask, charged bool) {
	id := countOf(a)
	if s.model.counts[id] == nil {
		delete(s.unusedAt, id)
		return
	}
	at, known := s.unusedAt[id]
	if u := s.model.unusedFrom(a); charged || !known || u < at {
		s.unusedAt[id] = u
	}
	if charged {
		s.lastLimit[id] = a.Limit
	}
}

func (s *script) note(moments ...int64) {
	for _, t := range moments {
		if t > s.clock && t <= s.end && !slices.Contains(s.moments, t) {
			s.moments = append(s.moments, t)
		}
	}
	s.moments = slices.DeleteFunc(s.moments, func(t int64) bool { return t < s.clock-1 })
	if n := len(s.moments); n > 8 {
		s.moments = s.moments[n-8:]
	}
}
