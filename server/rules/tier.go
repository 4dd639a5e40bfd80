package rules

import (
	"fmt"
	"slices"

	"github.com/stintdev/stint"
)

const (
	// maxTiers is how many tiers a file may have.
	maxTiers = 64
	// maxTimes is by how much a tier or an override may multiply a limit.
	maxTimes = 1_000_000
)

// Tier is the limits of a rule for the requests of one tier, in place of its own.
type Tier struct {
	// Name is one of Set.Tiers.
	Name string
	// Limits are like Rule.Limits, under the name RULE@TIER, so that a tier has
	// counts of its own.
	Limits []*stint.Limit

	index int // in Set.Tiers
}

type effective struct {
	limits   []*stint.Limit
	tier     string    // empty: none
	override *Override // nil: none
}

func (r *Rule) effectiveLimits(ev *evaluation, key string) (effective, error) {
	if r.controls != nil {
		return r.controls.effectiveLimits(r, ev, key)
	}
	i, err := r.tierOf(ev)
	if i < 0 || err != nil {
		return effective{limits: r.Limits}, err
	}
	return effective{limits: r.Tiers[i].Limits, tier: r.Tiers[i].Name}, nil
}

// tierOf is the index of the request's first tier in Tiers; -1: none.
func (r *Rule) tierOf(ev *evaluation) (int, error) {
	for i := range r.Tiers {
		if ok, err := ev.isInTier(r.Tiers[i].index); ok || err != nil {
			return i, err
		}
	}
	return -1, nil
}

// EffectiveLimits returns the limits that a key of a tier faces under r, and the override that gives them, or
// nil. tier is a name; empty: no tier. If an override ends during the call, the answer is with or without it.
func (r *Rule) EffectiveLimits(key Key, tier string) (limits []*stint.Limit, by *Override) {
	i := slices.IndexFunc(r.Tiers, func(t Tier) bool { return t.Name == tier })
	e := effective{limits: r.Limits}
	if i >= 0 {
		e.limits = r.Tiers[i].Limits
	}
	if c := r.controls; c != nil {
		ofTier := c.inForce(c.byTier[i])
		for k, t := range c.others {
			if i < 0 && t.name == tier {
				if ofTier = c.inForce(t.override); ofTier != nil {
					i = len(r.Tiers) + k
				}
			}
		}
		e.apply(i, ofTier, c.inForce(c.byKey[string(key)]))
	}
	return e.limits, e.override
}

// apply applies overrides of the i-th tier (see override.limits) and of the key, which goes first.
func (e *effective) apply(i int, ofTier, ofKey *override) {
	switch {
	case ofKey != nil:
		e.override, e.limits = ofKey.Override, ofKey.limits[i+1]
	case ofTier != nil:
		e.override, e.limits = ofTier.Override, ofTier.limits[0]
	}
}

// CountedTiers returns the tiers with counts of their own under r: those that r names, and those to which
// overrides give limits now.
func (r *Rule) CountedTiers() []string {
	var names []string
	for _, t := range r.Tiers {
		names = append(names, t.Name)
	}
	if r.controls != nil {
		for _, t := range r.controls.others {
			if r.controls.inForce(t.override) != nil {
				names = append(names, t.name)
			}
		}
	}
	return names
}

// AllLimits returns all limits that requests with this key may have faced under r, once for each ID: those of
// the rule, of its tiers and of overrides. Limits that calls of Envoy's service send are known since the
// first call.
func (r *Rule) AllLimits(key Key) []*stint.Limit {
	all := slices.Clone(r.Limits)
	add := func(limits []*stint.Limit) {
		for _, l := range limits {
			if !slices.ContainsFunc(all, func(other *stint.Limit) bool { return other.ID() == l.ID() }) {
				all = append(all, l)
			}
		}
	}
	for _, t := range r.Tiers {
		add(t.Limits)
	}
	if r.Descriptor != nil && r.Descriptor.overrides != nil {
		add(r.Descriptor.overrides.all())
	}
	if r.controls == nil {
		return all
	}
	overrides := []*override{r.controls.byKey[string(key)]}
	for _, o := range r.controls.byTier {
		overrides = append(overrides, o)
	}
	for _, t := range r.controls.others {
		overrides = append(overrides, t.override)
	}
	for _, o := range overrides {
		for ; o != nil; o = o.before {
			for _, limits := range o.limits {
				add(limits)
			}
		}
	}
	return all
}

// countedAs names the limits of a rule for a tier; for an empty tier, the rule's own. No rule's name has an
// @.
func countedAs(rule, tier string) string {
	if tier == "" {
		return rule
	}
	return rule + "@" + tier
}

func renamed(limits []*stint.Limit, name string) ([]*stint.Limit, error) {
	others := make([]*stint.Limit, 0, len(limits))
	for _, l := range limits {
		other, err := rename(l, name)
		if err != nil {
			return nil, err
		}
		others = append(others, other)
	}
	return others, nil
}

func rename(l *stint.Limit, name string) (*stint.Limit, error) {
	s := l.Spec()
	s.Name = name
	return stint.NewLimit(s)
}

// multiply multiplies amount, burst and debt. The IDs stay.
func multiply(limits []*stint.Limit, times int64) ([]*stint.Limit, error) {
	more := make([]*stint.Limit, 0, len(limits))
	for _, l := range limits {
		if l.IsUnlimited() {
			more = append(more, l)
			continue
		}
		s := l.Spec()
		for _, field := range []struct {
			name  string
			value *int64
		}{{"amount", &s.Amount}, {"burst", &s.Burst}, {"debt", &s.Debt}} {
			if *field.value > tooMuch/times {
				return nil, fmt.Errorf("limit %q times %d: %s %d × %d: too large for exact arithmetic (must be below 2^52)",
					l.Terms(), times, field.name, *field.value, times)
			}
			if *field.value > 0 { // stint.NoDebt stays
				*field.value *= times
			}
		}
		m, err := stint.NewLimit(s)
		if err != nil {
			return nil, fmt.Errorf("limit %q times %d: %w", l.Terms(), times, unprefixed(err))
		}
		more = append(more, m)
	}
	return more, nil
}

// tooMuch is stint.NewLimit's bound for every number.
const tooMuch = 1 << 52
