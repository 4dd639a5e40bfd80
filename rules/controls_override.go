package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stintdev/stint"
)

// override puts in an override. Those of the same come one before the other.
func (o *overlay) override(v *Override) error {
	if (v.Key == "") == (v.Tier == "") {
		return errors.New("it must have a key or a tier: give one of them")
	}
	r, place, index, err := o.target(v)
	if err != nil {
		return err
	}
	if err := v.check(r); err != nil {
		return err
	}
	given := &override{Override: v}
	if v.Key != "" {
		return o.ofKey(r, given)
	}
	limits, err := o.overridden(r, v, v.Tier)
	if err != nil {
		return err
	}
	given.limits = [][]*stint.Limit{limits}
	c := o.changes(r)
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

// ofKey puts in an override of a key. It keeps the counts of every tier apart, but
// for those that are in others: these are not known yet, see ofOthers.
func (o *overlay) ofKey(r *Rule, given *override) error {
	for i := -1; i < len(r.Tiers); i++ {
		tier := ""
		if i >= 0 {
			tier = r.Tiers[i].Name
		}
		limits, err := o.overridden(r, given.Override, tier)
		if err != nil {
			return err
		}
		given.limits = append(given.limits, limits)
	}
	c := o.changes(r)
	if c.byKey == nil {
		c.byKey = map[string]*override{}
	}
	given.before = c.byKey[string(given.Key)]
	c.byKey[string(given.Key)] = given
	return nil
}

// ofOthers completes the overrides of keys by the tiers that only overrides name.
func (o *overlay) ofOthers() {
	for _, r := range o.set.Rules {
		if r.overlay == nil {
			continue
		}
		for _, t := range r.overlay.others {
			for _, given := range r.overlay.byKey {
				for ; given != nil; given = given.before {
					limits, err := o.overridden(r, given.Override, t.name)
					if err != nil { // though the rule's own can be overridden so
						o.report(given.ID, err)
						limits = given.limits[0]
					}
					given.limits = append(given.limits, limits)
				}
			}
		}
	}
}

// target finds the rule of an override, and of its tier the places in Rule.Tiers
// and Set.Tiers, -1 where there is none.
func (o *overlay) target(v *Override) (r *Rule, place, index int, err error) {
	if v.Key != "" {
		r, err = o.ruleWithKey(v.Rule, v.Key)
		return r, -1, -1, err
	}
	if r, err = o.rule(v.Rule); err != nil {
		return nil, -1, -1, err
	}
	if index = slices.Index(o.base.Tiers, v.Tier); index < 0 {
		return nil, -1, -1, errors.New(unknown("tier", v.Tier, o.base.Tiers))
	}
	return r, slices.IndexFunc(r.Tiers, func(t Tier) bool { return t.index == index }), index, nil
}

func (o *ruleOverlay) addOther(t otherTier) {
	i, ok := slices.BinarySearchFunc(o.others, t.index, func(a otherTier, index int) int { return a.index - index })
	if ok {
		t.before = o.others[i].override
		o.others[i] = t
		return
	}
	o.others = slices.Insert(o.others, i, t)
}

// check finds what is wrong with v whatever the limits of r are.
func (v *Override) check(r *Rule) error {
	switch {
	case r.watches:
		return errors.New("the rule has no limits that could be others: it only watches responses")
	case v.Times != 0 && len(v.Limits) > 0:
		return errors.New("it has both times and limits: give one of them")
	case v.Times == 0 && len(v.Limits) == 0:
		return errors.New("it has neither times nor limits: give one of them")
	case v.Times < 0 || v.Times > MaxTimes:
		return fmt.Errorf("times %d: must be from 1 to %d", v.Times, MaxTimes)
	}
	return nil
}

// change names the limits that overrides give to a tier of a rule, because many
// overrides share them.
type change struct {
	rule, tier string
	times      int64
	limits     string // line by line
}

// overridden makes the limits that an override gives to a tier of r; empty: to who
// is of none.
func (o *overlay) overridden(r *Rule, v *Override, tier string) ([]*stint.Limit, error) {
	c := change{r.Name, tier, v.Times, strings.Join(v.Limits, "\n")}
	if limits := o.changed[c]; limits != nil {
		return limits, nil
	}
	limits, err := r.granted(tier)
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
	o.changed[c] = limits
	return limits, nil
}

// granted are the limits that a tier has without overrides. One that r does not name
// has the rule's own, and counts of its own.
func (r *Rule) granted(tier string) ([]*stint.Limit, error) {
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

// replaced makes limits of r from their texts, under a name, in place of own.
func replaced(r *Rule, own []*stint.Limit, texts []string, name string) ([]*stint.Limit, error) {
	if len(texts) > MaxLimits {
		return nil, fmt.Errorf("%d limits: at most %d", len(texts), MaxLimits)
	}
	limits := make([]*stint.Limit, 0, len(texts))
	for _, text := range texts {
		l, err := limitNamed(text, name)
		if err != nil {
			return nil, err
		}
		for _, other := range limits {
			if other.ID() == l.ID() {
				return nil, fmt.Errorf("limits %q and %q count the same: they must differ in algorithm, period or buckets", other.Terms(), l.Terms())
			}
		}
		if l, err = leasedAs(l, own); err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	if r.Shape && !hasLeakyBucket(limits) {
		return nil, errors.New("the rule says shape, which holds requests for a leaky_bucket: one of the limits must be one")
	}
	return limits, nil
}

// leasedAs is l with the lease of the one of own that it shares its count with. Were
// it another, requests under l would fill the room that those under the other keep
// free for what is leased.
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
			return nil, fmt.Errorf("limit %q: the rule's, %s, has no lease, and they share a count: leave it out", l.Terms(), other.Terms())
		}
		return nil, fmt.Errorf("limit %q: the lease is %d%%, as that of the rule's, %s, which it shares a count with: leave it out", l.Terms(), lease, other.Terms())
	}
	return l, nil
}
