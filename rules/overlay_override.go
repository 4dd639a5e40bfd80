package rules

import (
	"errors"
	"fmt"
	"slices"

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
	limits, err := o.overridden(r, v, place)
	if err != nil {
		return err
	}
	c := r.changes()
	given := &override{Override: v, limits: limits}
	switch {
	case v.Key != "":
		if c.byKey == nil {
			c.byKey = map[string]*override{}
		}
		given.before = c.byKey[string(v.Key)]
		c.byKey[string(v.Key)] = given
	case place >= 0:
		if c.byTier == nil {
			c.byTier = map[int]*override{}
		}
		given.before = c.byTier[place]
		c.byTier[place] = given
	default:
		c.addOther(otherTier{v.Tier, index, given})
	}
	return nil
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

// overridden makes the limits of an override, as override.limits has them. place
// is that of its tier in r.Tiers; -1: it has none there.
func (o *overlay) overridden(r *Rule, v *Override, place int) ([][]*stint.Limit, error) {
	switch {
	case r.Watches:
		return nil, errors.New("the rule has no limits that could be others: it only watches responses")
	case v.Times != 0 && len(v.Limits) > 0:
		return nil, errors.New("it has both times and limits: give one of them")
	case len(v.Limits) > 0:
		limits, err := limitsOf(r, v.Limits)
		return [][]*stint.Limit{limits}, err
	case v.Times == 0:
		return nil, errors.New("it has neither times nor limits: give one of them")
	case v.Times < 0 || v.Times > MaxTimes:
		return nil, fmt.Errorf("times %d: must be from 1 to %d", v.Times, MaxTimes)
	case place >= 0:
		limits, err := o.times(r, place, v.Times)
		return [][]*stint.Limit{limits}, err
	}
	all := make([][]*stint.Limit, 0, len(r.Tiers)+1)
	for i := -1; i < len(r.Tiers); i++ {
		limits, err := o.times(r, i, v.Times)
		if err != nil {
			return nil, err
		}
		all = append(all, limits)
		if v.Tier != "" {
			break // it takes effect only where none of the rule's tiers does
		}
	}
	return all, nil
}

// growth names limits that are multiplied, because many overrides share them.
type growth struct {
	rule  string
	place int
	times int64
}

// times multiplies the limits of a tier of r, or its own where place is -1.
func (o *overlay) times(r *Rule, place int, times int64) ([]*stint.Limit, error) {
	g := growth{r.Name, place, times}
	if limits := o.grown[g]; limits != nil {
		return limits, nil
	}
	own, whose := r.Limits, ""
	if place >= 0 {
		own, whose = r.Tiers[place].Limits, "tier "+r.Tiers[place].Name+": "
	}
	limits, err := multiply(own, times)
	if err != nil {
		return nil, fmt.Errorf("%s%w", whose, err)
	}
	o.grown[g] = limits
	return limits, nil
}

// limitsOf makes the limits of a rule from their texts.
func limitsOf(r *Rule, texts []string) ([]*stint.Limit, error) {
	if len(texts) > MaxLimits {
		return nil, fmt.Errorf("%d limits: at most %d", len(texts), MaxLimits)
	}
	limits := make([]*stint.Limit, 0, len(texts))
	for _, text := range texts {
		l, err := stint.ParseLimit(text)
		if err != nil {
			return nil, err
		}
		if l, err = l.Named(r.Name); err != nil {
			return nil, err
		}
		for _, other := range limits {
			if other.ID() == l.ID() {
				return nil, fmt.Errorf("limits %q and %q count the same: they must differ in algorithm, period or buckets", other, l)
			}
		}
		limits = append(limits, l)
	}
	if r.Shape && !hasLeakyBucket(limits) {
		return nil, errors.New("the rule says shape, which holds requests for a leaky_bucket: one of the limits must be one")
	}
	return limits, nil
}
