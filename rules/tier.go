package rules

import (
	"fmt"

	"github.com/stintdev/stint"
)

const (
	// MaxTiers is how many tiers a file may have.
	MaxTiers = 64
	// MaxTimes is by how much a tier or an override may multiply a limit.
	MaxTimes = 1_000_000
)

// Tier is what a rule grants to the requests of one tier, in place of its limits.
type Tier struct {
	// Name is one of Set.Tiers.
	Name string
	// Limits are like Rule.Limits, under the name RULE@TIER, so that a tier has
	// counts of its own: what the others of the same key use leaves it alone.
	Limits []*stint.Limit

	index int // in Set.Tiers
}

// isIn reports whether the request is of the i-th tier of the file. The condition
// is evaluated once for all rules, when the first of them needs it.
func (s *scope) isIn(i int) (bool, error) {
	bit := uint64(1) << i // i is less than MaxTiers
	if s.tiersKnown&bit == 0 {
		ok, err := s.set.tiers[i].isTrue(s)
		if err != nil {
			return false, malformed(err, "tier %q", s.set.Tiers[i])
		}
		s.tiersKnown |= bit
		if ok {
			s.tiersTrue |= bit
		}
	}
	return s.tiersTrue&bit != 0, nil
}

// grant is the limits that a request faces under a rule, and why it is those.
type grant struct {
	limits   []*stint.Limit
	tier     string    // empty: none
	override *Override // nil: none
}

// grantIn finds the limits for a request with this key.
func (r *Rule) grantIn(sc *scope, key string) (grant, error) {
	if r.overlay != nil {
		return r.overlay.grantIn(r, sc, key)
	}
	i, err := r.tierIn(sc)
	if i < 0 || err != nil {
		return grant{limits: r.Limits}, err
	}
	return grant{limits: r.Tiers[i].Limits, tier: r.Tiers[i].Name}, nil
}

// tierIn is the place in Tiers of the first that the request is of; -1: of none.
func (r *Rule) tierIn(sc *scope) (int, error) {
	for i := range r.Tiers {
		if ok, err := sc.isIn(r.Tiers[i].index); ok || err != nil {
			return i, err
		}
	}
	return -1, nil
}

// countedAs is the name of the limits that a rule has for a tier; of no tier, it is
// the rule's. No rule's name has an @ in it.
func countedAs(rule, tier string) string {
	if tier == "" {
		return rule
	}
	return rule + "@" + tier
}

// renamed are limits with another name, and so with other counts.
func renamed(limits []*stint.Limit, name string) ([]*stint.Limit, error) {
	others := make([]*stint.Limit, 0, len(limits))
	for _, l := range limits {
		other, err := l.Named(name)
		if err != nil {
			return nil, err
		}
		others = append(others, other)
	}
	return others, nil
}

// multiply makes each of limits allow times as much. Only the numbers change, so
// the IDs stay.
func multiply(limits []*stint.Limit, times int64) ([]*stint.Limit, error) {
	more := make([]*stint.Limit, 0, len(limits))
	for _, l := range limits {
		s := l.Spec()
		for _, field := range []struct {
			name  string
			value *int64
		}{{"amount", &s.Amount}, {"burst", &s.Burst}} {
			if *field.value > tooMuch/times {
				return nil, fmt.Errorf("limit %q times %d: %s %d × %d: too large for exact arithmetic (must be below 2^52)",
					l.Terms(), times, field.name, *field.value, times)
			}
			*field.value *= times
		}
		m, err := stint.NewLimit(s)
		if err != nil {
			return nil, fmt.Errorf("limit %q times %d: %w", l.Terms(), times, unprefixed(err))
		}
		more = append(more, m)
	}
	return more, nil
}

// tooMuch is the bound that stint.NewLimit has for every number.
const tooMuch = 1 << 52
