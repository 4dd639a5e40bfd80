package limittest

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/stintdev/stint"
)

// scriptHold is an ask that held units in this episode, whether its record still exists or not.
type scriptHold struct {
	id    stint.HoldID
	key   string
	limit *stint.Limit
	units int64
	span  time.Duration
}

// keepsRunOut is how long, in µs, a store must keep an expired record, because clocks step back.
const keepsRunOut = second

// holdSpec makes a limit held, or one of requests in flight.
func (s *script) holdSpec(spec *stint.Spec) {
	if s.chance(20) {
		*spec = stint.Spec{Algorithm: stint.InFlight, Amount: s.between(1, 20)}
	}
	if spec.Algorithm != stint.LeakyBucket && s.chance(75) {
		spec.Hold = s.holdTime(spec.Period)
		spec.Retry = pick(s, 0, 0, time.Microsecond, 250*time.Millisecond)
	}
	if spec.Algorithm != stint.InFlight {
		spec.Debt = pick(s, 0, 0, stint.NoDebt, 1, s.between(1, 2*spec.Amount))
	}
}

func (s *script) holdTime(period time.Duration) time.Duration {
	return min(max(time.Millisecond, pick(s, period/3, period, 3*period, 30*time.Second).Truncate(time.Microsecond)), time.Hour)
}

// newHold returns an unused identity.
func (s *script) newHold() (id stint.HoldID) {
	s.ids++
	binary.BigEndian.PutUint32(id[:], uint32(s.clock/second))
	binary.BigEndian.PutUint64(id[4:], s.ids)
	return id
}

// holdInstant is near an instant at which a hold begins or ceases to count.
func (s *script) holdInstant() int64 {
	x := pick(s, s.held...)
	h := s.model.holds[countOf(&stint.Ask{Key: x.key, Limit: x.limit})][x.id]
	if h == nil {
		return s.clock
	}
	return pick(s, h.until, h.until, h.until-2*h.span) + pick[int64](s, -1, 0, 1)
}

// drawCalls draws some operations on holds of this episode, and some on unknown holds.
func (s *script) drawCalls() (calls []stint.HoldCall) {
	for range pick(s, 1, 1, 1, 2, 3, 4) {
		var x scriptHold
		switch {
		case s.released.limit != nil && s.chance(15):
			x = s.released
		case len(s.held) > 0 && s.chance(85):
			x = s.held[len(s.held)-1-int(s.between(0, int64(len(s.held)-1)))]
		default:
			x = scriptHold{s.newHold(), pick(s, s.keys...), pick(s, s.slots...).now, s.between(1, 5), time.Second}
		}
		c := stint.HoldCall{Key: x.key, Limit: x.limit, Hold: x.id, Units: x.units, For: x.span}
		if c.For == x.limit.Spec().Hold && s.chance(50) {
			c.For = 0 // means the same
		}
		switch n := s.rng.IntN(100); {
		case n < 40:
			c.Action = stint.HoldSettle
		case n < 68:
			c.Action, c.Again = stint.HoldRenew, s.chance(50)
		case n < 84:
			c.Action, s.released = stint.HoldRelease, x
		default:
			c.Action = stint.HoldCharge
		}
		inFlight := x.limit.Spec().Algorithm == stint.InFlight
		if !x.limit.IsHeld() && !inFlight {
			c.Action = stint.HoldCharge
		} else if inFlight && c.Action == stint.HoldCharge {
			c.Action = stint.HoldSettle
		}
		if c.Action == stint.HoldSettle || c.Action == stint.HoldCharge {
			c.Cost = s.trueCost(x.units, x.limit.Capacity())
		}
		calls = append(calls, c)
	}
	return calls
}

// trueCost is often the held units.
func (s *script) trueCost(held, capacity int64) int64 {
	return pick(s, 0, held, held, s.between(0, held), held+s.between(1, max(1, held)), s.between(0, capacity), s.between(0, 3*capacity), 1<<62)
}

// calls is a move that settles, renews, releases and charges.
func (s *script) calls(m *move, at int64) *move {
	m.verb, m.calls = "hold", s.drawCalls()
	var asks []stint.Ask
	for i := range m.calls {
		asks = append(asks, stint.Ask{Key: m.calls[i].Key, Limit: m.calls[i].Limit})
	}
	at, ok := s.certain(at, asks)
	if !ok {
		return nil
	}
	charged := make(map[countID]int64)
	for i := range m.calls {
		c, a := &m.calls[i], &asks[i]
		h := s.model.holds[countOf(a)][c.Hold]
		if c.Action == stint.HoldRenew && h != nil && h.released && (c.Again && at >= h.until || s.doubted[h] || s.high >= h.until+keepsRunOut) {
			return nil // how long it is known is undefined
		}
		l := s.model.look(a, at)
		charged[countOf(a)] += min(c.Cost, most(a.Limit))
		if l.rate != nil && l.endlessDebt(charged[countOf(a)]) {
			return nil
		}
		m.seen = append(m.seen, seen{
			now: l.now, inUse: l.used().Sign() > 0, known: h != nil && !h.released, released: h != nil && h.released,
			counts: h.counts(at), ahead: h != nil && !h.released && h.until > at+2*h.span,
		})
	}
	s.to(at)
	m.req = stint.Request{Asks: asks, At: time.UnixMicro(at)}
	return m
}

// doubtful is until when, after t, it is uncertain whether a hold of a's key counts; not ok: it is
// certain.
func (s *script) doubtful(a *stint.Ask, t int64) (until int64, ok bool) {
	for _, h := range s.model.holds[countOf(a)] {
		if h.counts(t) && (s.doubted[h] || s.high >= h.until+keepsRunOut) {
			until, ok = max(until, h.until), true
		}
	}
	return until, ok
}

// noteHolds remembers the holds of m's asks.
func (s *script) noteHolds(m *move, d *stint.Decision) {
	if !d.Allowed {
		return
	}
	for i := range m.req.Asks {
		if a := &m.req.Asks[i]; makesRecord(&m.req, a) {
			h := s.model.holds[countOf(a)][m.req.Hold]
			s.held = append(s.held, scriptHold{m.req.Hold, a.Key, a.Limit, h.units, micros(h.span)})
			s.note(h.until)
		}
	}
}

// noteCalls remembers the effects of calls.
func (s *script) noteCalls(m *move) {
	for i := range m.calls {
		c, a := &m.calls[i], &m.req.Asks[i]
		s.noteCount(a, c.Charged > 0)
		s.note(m.seen[i].now + c.ResetAfter.Microseconds())
	}
}

// The sights of holds.
const (
	holding      sight = "units held"
	busy         sight = "refused by what is held"
	plainBusy    sight = "refused by what is held, and would hold nothing"
	heldPeek     sight = "asked whether a hold would fit"
	settledHold  sight = "hold settled"
	unsettled    sight = "settled again, or after it ran out"
	aheadHold    sight = "hold that does not count since the clock stepped back"
	chargedPart  sight = "charged less than it did cost"
	inDebt       sight = "refused in debt"
	renewedHold  sight = "hold renewed"
	madeAgain    sight = "lost hold made again"
	notAgain     sight = "released hold not made again"
	releasedHold sight = "hold released"
	postPaid     sight = "charged without a hold"
)

var holdSights = []sight{holding, busy, plainBusy, heldPeek, settledHold, unsettled, aheadHold, chargedPart, inDebt,
	renewedHold, madeAgain, notAgain, releasedHold, postPaid}

func (y *tally) countHolds(m *move, a *stint.Ask, l *seen, d, own *stint.Decision) {
	for what, seen := range map[sight]bool{
		holding:   d.Allowed && makesRecord(&m.req, a),
		busy:      own.Busy && l.holds,
		plainBusy: own.Busy && !l.holds,
		heldPeek:  l.holds && !makesRecord(&m.req, a),
		inDebt:    !own.Allowed && l.inDebt,
	} {
		if seen {
			y.see(what, a)
		}
	}
}

func (y *tally) countCalls(m *move) {
	for i := range m.calls {
		c, l := &m.calls[i], &m.seen[i]
		settles, renews := c.Action == stint.HoldSettle, c.Action == stint.HoldRenew
		for what, seen := range map[sight]bool{
			settledHold:  settles && c.Found,
			unsettled:    settles && !c.Found && l.known,
			aheadHold:    l.ahead,
			chargedPart:  c.Found && c.Charged < c.Cost && (settles || c.Action == stint.HoldCharge),
			renewedHold:  renews && c.Found,
			madeAgain:    renews && !c.Found && c.Again && !l.counts && !l.released,
			notAgain:     renews && c.Again && l.released,
			releasedHold: c.Action == stint.HoldRelease && c.Found,
			postPaid:     c.Action == stint.HoldCharge,
		} {
			if seen {
				y.see(what, &m.req.Asks[i])
			}
		}
	}
}

// canHold reports whether a sight of holds, or of in_flight, is possible.
func canHold(what sight, a stint.Algorithm, verbs []string) bool {
	if !slices.Contains(verbs, "hold") {
		return false
	}
	switch what {
	case postPaid, inDebt, chargedPart:
		return a != stint.InFlight
	case plainBusy: // under in_flight it is decided like a hold
		return a != stint.LeakyBucket && a != stint.InFlight
	case allowed, denied, never, partial, running:
		return true
	}
	return a != stint.LeakyBucket && slices.Contains(holdSights, what)
}
