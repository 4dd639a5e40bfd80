package limittest

import (
	"math/big"

	"github.com/stintdev/stint"
)

// certain is the first instant from t on at which the answer does not depend on counts that the
// store may have dropped; not ok: it is after the episode.
func (s *script) certain(t int64, asks []stint.Ask) (certain int64, ok bool) {
	for moved := true; moved; {
		moved = false
		for i := range asks {
			a := &asks[i]
			if u, ok := s.settled(a, t); ok {
				t, moved = u, true
			}
			if a.Limit != nil && a.Limit.IsHeld() {
				if u, ok := s.doubtful(a, t); ok {
					t, moved = u, true
				}
			}
			if a.Penalty == nil {
				continue
			}
			id := recordOf(a)
			clean, known := s.cleanAt[id]
			if known && (max(t, s.high) >= clean || s.gone[id]) && t < clean && s.model.standing(id, a.Penalty.Spec(), t) != nil {
				t, moved = clean, true
			}
		}
	}
	return t, t <= s.end
}

// settled is until when, after t, a store may have dropped the charges to a; not ok: never.
func (s *script) settled(a *stint.Ask, t int64) (u int64, ok bool) {
	if a.Limit == nil {
		return 0, false
	}
	at, known := s.unusedAt[countOf(a)]
	if !known || max(t, s.high) < at || s.model.strands(a, t) {
		return 0, false
	}
	u = s.model.unusedFrom(a)
	return u, t < u
}

// endless reports whether a bucket, with n more units, would take 2^52 µs or longer to drain, for
// which the contract defines no answer.
func (l *look) endless(n int64) bool {
	return l.rate != nil && l.endlessDebt(min(n, l.capacity))
}

// endlessDebt is endless for a bucket that is charged whether n units fit or not.
func (l *look) endlessDebt(n int64) bool {
	level := l.used()
	level.Add(level, units(n))
	return tooLarge(l.tick, ceilInt(level.Quo(level, l.rate)))
}

// saturated reports whether a bucket's level cannot be expressed under its limit.
func (l *look) saturated() bool {
	if l.rate == nil || len(l.h.charges) == 0 {
		return false
	}
	level := l.h.carried(l.terms)
	return level.Cmp(new(big.Rat).SetFrac(exact, l.rate.Denom())) == 0
}

// unusedFrom is the instant from which a's count is as if unused.
func (m *Model) unusedFrom(a *stint.Ask) int64 {
	h := m.counts[countOf(a)]
	if h == nil {
		return 0
	}
	if m := termsOf(a.Limit); m.rate == nil {
		return h.fits(m, h.last, units(0))
	}
	if len(h.charges) == 0 {
		return 0
	}
	return h.dry()
}

// cleanFrom is the instant from which a has no record any more.
func (m *Model) cleanFrom(a *stint.Ask) int64 {
	vs := m.records[recordOf(a)]
	if len(vs) == 0 {
		return 0
	}
	v := vs[len(vs)-1]
	return max(v.at, v.until) + v.forget
}

// reforgets reports whether a's last violation was under another ForgetAfter.
func (m *Model) reforgets(a *stint.Ask) bool {
	if a.Penalty == nil || len(m.records[recordOf(a)]) == 0 {
		return false
	}
	vs, p := m.records[recordOf(a)], a.Penalty.Spec()
	return vs[len(vs)-1].forget != forget(&p)
}
