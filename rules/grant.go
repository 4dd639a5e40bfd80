package rules

import (
	"slices"

	"github.com/stintdev/stint"
)

// Grant is what a key of a tier faces under r: the limits, and the override that
// gives them, if one does. tier is the name of the tier that the key's requests are
// of; empty: of none. Where an override ends meanwhile, the answer is of one of the
// two sides.
func (r *Rule) Grant(key Key, tier string) (limits []*stint.Limit, by *Override) {
	i := slices.IndexFunc(r.Tiers, func(t Tier) bool { return t.Name == tier })
	g := grant{limits: r.Limits}
	if i >= 0 {
		g.limits = r.Tiers[i].Limits
	}
	if o := r.overlay; o != nil {
		given := o.inForce(o.byTier[i])
		for k, t := range o.others {
			if given == nil && i < 0 && t.name == tier {
				if given = o.inForce(t.override); given != nil {
					i = len(r.Tiers) + k
				}
			}
		}
		g.apply(i, given, o.inForce(o.byKey[string(key)]))
	}
	return g.limits, g.override
}

// Counted are the tiers that have counts of their own under r: those that it names,
// and then those to which overrides give limits now.
func (r *Rule) Counted() []string {
	var names []string
	for _, t := range r.Tiers {
		names = append(names, t.Name)
	}
	if r.overlay != nil {
		for _, t := range r.overlay.others {
			if r.overlay.inForce(t.override) != nil {
				names = append(names, t.name)
			}
		}
	}
	return names
}

// apply puts into g what overrides of the tier at a place, as override.limits counts
// them, and of the key give.
func (g *grant) apply(place int, ofTier, ofKey *override) {
	switch {
	case ofKey != nil:
		g.override, g.limits = ofKey.Override, ofKey.limits[place+1]
	case ofTier != nil:
		g.override, g.limits = ofTier.Override, ofTier.limits[0]
	}
}

// EveryLimit has, once for each ID, all limits that requests with this key may have
// faced under r: those of the rule, of its tiers and of overrides.
func (r *Rule) EveryLimit(key Key) []*stint.Limit {
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
	if r.overlay == nil {
		return all
	}
	overrides := []*override{r.overlay.byKey[string(key)]}
	for _, o := range r.overlay.byTier {
		overrides = append(overrides, o)
	}
	for _, t := range r.overlay.others {
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
