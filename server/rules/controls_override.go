package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stintdev/stint"
)

// override chains overrides of the same key or tier, the latest first.
func (a *applier) override(v *Override) error {
	if (v.Key == "") == (v.Tier == "") {
		return errors.New("it needs a key or a tier, and not both")
	}
	r, place, index, err := a.target(v)
	if err != nil {
		return err
	}
	if err := v.check(r); err != nil {
		return err
	}
	given := &override{Override: v}
	if v.Key != "" {
		return a.overrideKey(r, given)
	}
	limits, err := a.overridden(r, v, v.Tier)
	if err != nil {
		return err
	}
	given.limits = [][]*stint.Limit{limits}
	c := a.changes(r)
	if place < 0 {
		c.addOther(otherTier{v.Tier, index, given})
		return nil
	}
	if c.byTier == nil {
		c.byTier = map[int]*override{}
	}
	given.before = c.byTier[place]
	c.byTier[place] = given
	return nil
}

// overrideKey makes limits for every tier that the rule names; overrideOthers adds limits for other tiers.
func (a *applier) overrideKey(r *Rule, given *override) error {
	for i := -1; i < len(r.Tiers); i++ {
		tier := ""
		if i >= 0 {
			tier = r.Tiers[i].Name
		}
		limits, err := a.overridden(r, given.Override, tier)
		if err != nil {
			return err
		}
		given.limits = append(given.limits, limits)
	}
	c := a.changes(r)
	if c.byKey == nil {
		c.byKey = map[string]*override{}
	}
	given.before = c.byKey[string(given.Key)]
	c.byKey[string(given.Key)] = given
	return nil
}

func (a *applier) overrideOthers() {
	for _, r := range a.set.Rules {
		if r.controls == nil {
			continue
		}
		for _, t := range r.controls.others {
			for _, given := range r.controls.byKey {
				for ; given != nil; given = given.before {
					limits, err := a.overridden(r, given.Override, t.name)
					if err != nil { // though the rule's own can be overridden so
						a.report(given.ID, err)
						limits = given.limits[0]
					}
					given.limits = append(given.limits, limits)
				}
			}
		}
	}
}

// target returns the indices of the override's tier in Rule.Tiers and Set.Tiers, -1 for none.
func (a *applier) target(v *Override) (r *Rule, place, index int, err error) {
	if v.Key != "" {
		r, err = a.ruleWithKey(v.Rule, v.Key)
		return r, -1, -1, err
	}
	if r, err = a.rule(v.Rule); err != nil {
		return nil, -1, -1, err
	}
	if index = slices.Index(a.base.Tiers, v.Tier); index < 0 {
		return nil, -1, -1, errors.New(unknown("tier", v.Tier, a.base.Tiers))
	}
	return r, slices.IndexFunc(r.Tiers, func(t Tier) bool { return t.index == index }), index, nil
}

// check finds errors in v that do not depend on r's limits.
func (v *Override) check(r *Rule) error {
	switch {
	case r.watches:
		return errors.New("the rule has no limits to override: it only watches responses")
	case r.Descriptor != nil && r.Descriptor.overrides != nil:
		return errors.New("the rule has no limits to override: each call says its own")
	case r.Descriptor != nil && r.Descriptor.Unlimited:
		return errors.New("the rule has no limits to override: it is unlimited")
	case v.Times != 0 && len(v.Limits) > 0:
		return errors.New("it has both times and limits: give one of them")
	case v.Times == 0 && len(v.Limits) == 0:
		return errors.New("it has neither times nor limits: give one of them")
	case v.Times != 0 && r.Descriptor != nil && r.Descriptor.Amount == 0:
		return errors.New("the rule allows nothing (requests_per_unit is 0), and times multiplies that: give limits")
	case v.Times < 0 || v.Times > maxTimes:
		return fmt.Errorf("times %d: must be from 1 to %d", v.Times, maxTimes)
	}
	return nil
}

// limitsKey identifies limits that many overrides share.
type limitsKey struct {
	rule, tier string
	times      int64
	limits     string // line by line
}

// overridden returns the limits that an override gives to a tier of r; empty: to requests without a tier.
func (a *applier) overridden(r *Rule, v *Override, tier string) ([]*stint.Limit, error) {
	k := limitsKey{r.Name, tier, v.Times, strings.Join(v.Limits, "\n")}
	if limits := a.limits[k]; limits != nil {
		return limits, nil
	}
	limits, err := r.ownLimits(tier)
	if err == nil {
		if v.Times > 0 {
			limits, err = multiply(limits, v.Times)
		} else {
			limits, err = replaced(r, limits, v.Limits, countedAs(r.Name, tier))
		}
	}
	if err != nil {
		if v.Tier == "" && tier != "" {
			err = fmt.Errorf("tier %s: %w", tier, err)
		}
		return nil, err
	}
	a.limits[k] = limits
	return limits, nil
}

// ownLimits are the limits of a tier without overrides. A tier that r does not name has the
// rule's limits, with counts of its own.
func (r *Rule) ownLimits(tier string) ([]*stint.Limit, error) {
	if tier == "" {
		return r.Limits, nil
	}
	for i := range r.Tiers {
		if r.Tiers[i].Name == tier {
			return r.Tiers[i].Limits, nil
		}
	}
	return renamed(r.Limits, countedAs(r.Name, tier))
}

func replaced(r *Rule, own []*stint.Limit, texts []string, name string) ([]*stint.Limit, error) {
	if len(texts) > maxLimits {
		return nil, fmt.Errorf("%d limits: at most %d", len(texts), maxLimits)
	}
	limits := make([]*stint.Limit, 0, len(texts))
	for _, text := range texts {
		l, err := limitNamed(text, name)
		if err != nil {
			return nil, err
		}
		for _, other := range limits {
			if other.ID() == l.ID() {
				return nil, fmt.Errorf("limits %q and %q count the same: they must differ in algorithm, period, calendar or buckets", other.Terms(), l.Terms())
			}
		}
		if l, err = leasedAs(l, own); err != nil {
			return nil, err
		}
		if l, err = r.heldAs(l, own); err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	if r.Shape && !hasLeakyBucket(limits) {
		return nil, errors.New("shape needs a leaky_bucket: one of the rule's limits must be one")
	}
	return limits, nil
}

// leasedAs is l with the lease of the limit in own that shares its count: with another lease, requests under
// l would use up units that are kept for leases.
func leasedAs(l *stint.Limit, own []*stint.Limit) (*stint.Limit, error) {
	for _, other := range own {
		s, lease := l.Spec(), other.Spec().Lease
		switch {
		case other.ID() != l.ID() || s.Lease == lease:
			continue
		case s.Lease == 0:
			s.Lease = lease
			return stint.NewLimit(s)
		case lease == 0:
			return nil, fmt.Errorf("limit %q: the rule's %s has no lease, and both share a count: leave the lease out", l.Terms(), other.Terms())
		}
		return nil, fmt.Errorf("limit %q: its lease must be %d%%, like the rule's %s, because both share a count: leave it out", l.Terms(), lease, other.Terms())
	}
	return l, nil
}

// heldAs is l, held if the limit in own that shares its count is held: a limit that is not held ignores held
// units.
func (r *Rule) heldAs(l *stint.Limit, own []*stint.Limit) (*stint.Limit, error) {
	for _, other := range own {
		s, of := l.Spec(), other.Spec()
		switch {
		case other.ID() != l.ID() || l.IsHeld() && other.IsHeld():
			continue
		case l.IsHeld():
			return nil, fmt.Errorf("limit %q: the rule's %s is not held, and both share a count: leave hold out", l.Terms(), other.Terms())
		case other.IsHeld():
			s.Hold, s.Retry = of.Hold, of.Retry
			held, err := stint.NewLimit(s)
			if err != nil {
				return nil, err
			}
			l = held
		}
	}
	return r.indebted(l)
}
