package rules

import (
	"slices"
	"time"

	"github.com/stintdev/stint"
)

type ruleControls struct {
	instance *Instance            // by whose time entries end; nil: by the machine's
	bans     map[string]*Ban      // by key: of several, the longest
	byKey    map[string]*override // by key: of several, the last
	// byTier are overrides of tiers that the rule names, by index in Rule.Tiers. others, in the
	// file's order, are tiers that only overrides name: they count after the rule's own.
	byTier map[int]*override
	others []otherTier
}

type otherTier struct {
	name  string
	index int // in Set.Tiers
	*override
}

// override is an Override, compiled.
type override struct {
	*Override
	// A tier's override has limits[0]. A key's has limits for no tier at 0, then for each of Rule.Tiers and
	// ruleControls.others.
	limits [][]*stint.Limit
	// before applies when this has ended; nil: none.
	before *override
}

func (a *applier) changes(r *Rule) *ruleControls {
	if r.controls == nil {
		r.controls = &ruleControls{instance: a.base.instance}
	}
	return r.controls
}

func (c *ruleControls) addOther(t otherTier) {
	i, ok := slices.BinarySearchFunc(c.others, t.index, func(t otherTier, index int) int { return t.index - index })
	if ok {
		t.before = c.others[i].override
		c.others[i] = t
		return
	}
	c.others = slices.Insert(c.others, i, t)
}

// inForce is the first of given and those before it that has not ended; nil: none.
func (c *ruleControls) inForce(given *override) *override {
	for given != nil && given.left(c.instance) <= 0 {
		given = given.before
	}
	return given
}

// banOf is the ban of a key and how long it still runs; nil: there is none.
func (c *ruleControls) banOf(key string) (*Ban, time.Duration) {
	b := c.bans[key]
	if b == nil {
		return nil, 0
	}
	left := b.left(c.instance)
	if left <= 0 {
		return nil, 0
	}
	return b, left
}

func (c *ruleControls) effectiveLimits(r *Rule, ev *evaluation, key string) (effective, error) {
	i, err := r.tierOf(ev)
	if err != nil {
		return effective{}, err
	}
	e := effective{limits: r.Limits}
	var ofTier *override
	if i >= 0 {
		e.limits, e.tier = r.Tiers[i].Limits, r.Tiers[i].Name
		ofTier = c.inForce(c.byTier[i])
	} else {
		var k int
		if k, ofTier, err = c.otherTierOf(ev); err != nil {
			return effective{}, err
		}
		if k >= 0 {
			i, e.tier = len(r.Tiers)+k, c.others[k].name
		}
	}
	e.apply(i, ofTier, c.inForce(c.byKey[key]))
	return e, nil
}

// otherTierOf finds, in others, the tier of a request that is in none of the rule's own; -1:
// none. A tier whose overrides have ended does not count, even if its condition fails.
func (c *ruleControls) otherTierOf(ev *evaluation) (int, *override, error) {
	for k, t := range c.others {
		ok, err := ev.isInTier(t.index)
		if !ok && err == nil {
			continue
		}
		if given := c.inForce(t.override); given != nil {
			return k, given, err
		}
	}
	return -1, nil, nil
}
