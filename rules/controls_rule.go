package rules

import (
	"time"

	"github.com/stintdev/stint"
)

// ruleOverlay is what was changed of a rule at run time, beside its mode.
type ruleOverlay struct {
	instance *Instance            // by whose time entries end; nil: by the machine's
	bans     map[string]*Ban      // by key: of several, the longest
	byKey    map[string]*override // by key: of several, the last
	// byTier are the overrides of the tiers that the rule names, by their places
	// in Rule.Tiers, and others those of further ones, in the file's order: they
	// are looked at after those of the rule.
	byTier map[int]*override
	others []otherTier
}

// otherTier is a tier that only an override of a rule names.
type otherTier struct {
	name  string
	index int // in Set.Tiers
	*override
}

// override is an Override, compiled.
type override struct {
	*Override
	// limits of a tier are in limits[0]. Those of a key are, at place+1, in place
	// of those that the rule has at a place: −1 is its own, then come Rule.Tiers,
	// then ruleOverlay.others.
	limits [][]*stint.Limit
	// before counts when this has ended; nil: none.
	before *override
}

// inForce is the first of given and those before it that has not ended; nil: none.
func (o *ruleOverlay) inForce(given *override) *override {
	for given != nil && given.left(o.instance) <= 0 {
		given = given.before
	}
	return given
}

// changes is the overlay of r, which is the set's own copy.
func (o *overlay) changes(r *Rule) *ruleOverlay {
	if r.overlay == nil {
		r.overlay = &ruleOverlay{instance: o.base.instance}
	}
	return r.overlay
}

// banOf is the ban of a key and how long it still runs; nil: there is none.
func (o *ruleOverlay) banOf(key string) (*Ban, time.Duration) {
	b := o.bans[key]
	if b == nil {
		return nil, 0
	}
	left := b.left(o.instance)
	if left <= 0 {
		return nil, 0
	}
	return b, left
}

// banned notes a ban that hit, of r or, where that is nil, of a network.
func (m *Matches) banned(r *Rule, b *Ban, left time.Duration) {
	if m.Ban == nil || left > m.BanLeft {
		m.Ban, m.BanRule, m.BanLeft = b, r, left
	}
}

// grantIn is Rule.grantIn with what was changed.
func (o *ruleOverlay) grantIn(r *Rule, sc *scope, key string) (grant, error) {
	i, err := r.tierIn(sc)
	if err != nil {
		return grant{}, err
	}
	g := grant{limits: r.Limits}
	var given *override
	if i >= 0 {
		g.limits, g.tier = r.Tiers[i].Limits, r.Tiers[i].Name
		given = o.inForce(o.byTier[i])
	} else {
		var k int
		if k, given, err = o.other(sc); err != nil {
			return grant{}, err
		}
		if k >= 0 {
			i, g.tier = len(r.Tiers)+k, o.others[k].name
		}
	}
	g.apply(i, given, o.inForce(o.byKey[key]))
	return g, nil
}

// other finds, in others, the tier of a request that is of none that the rule
// names; -1: of none. A tier whose overrides have ended is no more, not even with a
// condition that fails.
func (o *ruleOverlay) other(sc *scope) (int, *override, error) {
	for k, t := range o.others {
		ok, err := sc.isIn(t.index)
		if !ok && err == nil {
			continue
		}
		if given := o.inForce(t.override); given != nil {
			return k, given, err
		}
	}
	return -1, nil, nil
}
