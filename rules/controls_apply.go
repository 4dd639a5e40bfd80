package rules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stintdev/stint"
)

// With is s with c in force. It never fails: an entry that cannot work, such as
// one for a rule that s does not have, is without effect and told as a problem.
// s is not changed; with a nil or zero c, s itself is returned. Entries that have
// ended are without effect and no problem; those that end later end by themselves.
//
// With on what With returned replaces the controls, and does not add to them.
func (s *Set) With(c *Controls) (*Set, []Problem) {
	if s.base != nil {
		s = s.base
	}
	if c == nil || c.isZero() {
		return s, nil
	}
	o := newOverlay(s)
	o.add(c.Clone())
	o.set.noteReads()
	return o.set, o.problems
}

// overlay is the making of a Set from another and Controls.
type overlay struct {
	compiler
	base, set *Set
	now       time.Time
	rules     map[string]int // the places of rules by their names
	ids       map[string]bool
	changed   map[change][]*stint.Limit
	gone      map[string]error // what is told of rules there are not
	problems  []Problem
}

func newOverlay(s *Set) *overlay {
	set := *s
	set.base = s
	set.Rules = slices.Clone(s.Rules)
	set.safelist, set.blocklist = s.safelist.with(), s.blocklist.with()
	set.headerNames = maps.Clone(s.headerNames)
	o := &overlay{
		compiler: compiler{headerNames: set.headerNames, budget: newBudget(context.Background())},
		base:     s,
		set:      &set,
		now:      s.instance.now(),
		rules:    make(map[string]int, len(s.Rules)),
		ids:      map[string]bool{},
		changed:  map[change][]*stint.Limit{},
		gone:     map[string]error{},
	}
	for i, r := range s.Rules {
		o.rules[r.Name] = i
	}
	return o
}

// add puts c, which must not change any more, into the set.
func (o *overlay) add(c *Controls) {
	if c.Enabled != nil {
		o.set.Enabled = *c.Enabled
	}
	for _, name := range slices.Sorted(maps.Keys(c.Modes)) {
		if err := o.mode(name, c.Modes[name]); err != nil {
			o.report(name, err)
		}
	}
	each(o, c.Overrides, o.override, one[*Override](MaxOverrides, "overrides"))
	o.ofOthers()
	each(o, c.Safelist, o.listed(&o.set.safelist), listedQuota("safelist"))
	each(o, c.Blocklist, o.listed(&o.set.blocklist), listedQuota("blocklist"))
	each(o, c.Bans, o.ban, one[*Ban](MaxBans, "bans"))
	if over := len(c.Lifts) - MaxLifts; over > 0 {
		o.report("lifts", fmt.Errorf("%d of them are without effect: at most %d lifts are taken: drop the oldest", over, MaxLifts))
	}
}

// quota is how many entries of a kind are taken.
type quota struct {
	most int
	what string
	// taken and over are how many came so far and beyond, and first is the ID of
	// the first of those.
	taken, over int
	first       string
}

// one is the same quota for all entries.
func one[E noted](most int, what string) func(E) *quota {
	q := &quota{most: most, what: what}
	return func(E) *quota { return q }
}

func listedQuota(name string) func(*Listed) *quota {
	networks := &quota{most: MaxListedNetworks, what: "networks on the " + name}
	matches := &quota{most: MaxListedMatches, what: "expressions on the " + name}
	return func(l *Listed) *quota {
		if l.Match != "" {
			return matches
		}
		return networks
	}
}

// each calls add with every entry that has not ended, is within its quota and has
// an ID of its own, and reports what is wrong with the others.
func each[T any, E interface {
	*T
	noted
}](o *overlay, entries []T, add func(E) error, quotaOf func(E) *quota) {
	var full []*quota
	for i := range entries {
		e := E(&entries[i])
		n := e.note()
		if n.endedAt(o.now) {
			continue
		}
		if q := quotaOf(e); q.taken == q.most {
			if q.over++; q.over == 1 {
				q.first, full = n.ID, append(full, q)
			}
			continue
		} else {
			q.taken++
		}
		err := o.claim(n.ID)
		if err == nil {
			err = add(e)
		}
		if err != nil {
			o.report(n.ID, err)
		}
	}
	for _, q := range full {
		o.report(q.first, fmt.Errorf("it is one of %d that are without effect: at most %d %s are taken: remove some", q.over, q.most, q.what))
	}
}

func (o *overlay) claim(id string) error {
	if id == "" {
		return errors.New("the entry has no id: give it one that no other entry has")
	}
	if o.ids[id] {
		return errors.New("an entry before it has the same id: give it another")
	}
	o.ids[id] = true
	return nil
}

func (o *overlay) report(id string, err error) {
	o.problems = append(o.problems, Problem{ID: id, Text: err.Error()})
}

func (o *overlay) mode(name string, m Mode) error {
	r, err := o.rule(name)
	if err != nil {
		return err
	}
	if _, err := m.MarshalText(); err != nil {
		return err
	}
	r.Mode = m
	return nil
}

// rule is the set's rule of this name, as a copy that can be changed.
func (o *overlay) rule(name string) (*Rule, error) {
	i, ok := o.rules[name]
	if !ok {
		return nil, o.noRule(name)
	}
	if o.set.Rules[i] == o.base.Rules[i] {
		r := *o.base.Rules[i]
		o.set.Rules[i] = &r
	}
	return o.set.Rules[i], nil
}

// noRule says so once for all the entries of a rule that is gone from the file:
// looking for the nearest name takes time.
func (o *overlay) noRule(name string) error {
	if o.gone[name] == nil {
		names := make([]string, len(o.base.Rules))
		for i, r := range o.base.Rules {
			names[i] = r.Name
		}
		o.gone[name] = errors.New(unknown("rule", name, names))
	}
	return o.gone[name]
}

func (o *overlay) listed(to *list) func(*Listed) error {
	return func(e *Listed) error {
		switch {
		case e.Network != "" && e.Match != "":
			return errors.New("it has both a network and a match: make two entries of it")
		case e.Network != "":
			p, err := ParseNetwork(e.Network)
			if err == nil {
				to.networks.add(p, e)
			}
			return err
		case e.Match == "":
			return errors.New("it has neither a network nor a match: give one of them")
		}
		condition, err := o.expression(e.Match)
		if err == nil {
			to.added = append(to.added, addedCondition{e, condition})
		}
		return err
	}
}

func (o *overlay) expression(source string) (*expression, error) {
	e, problems := o.check(source, condition)
	if len(problems) == 0 {
		if i := o.base.instance; i != nil {
			for _, use := range e.secrets {
				if !i.Secrets.has(use.name) {
					return nil, fmt.Errorf("match, at character %d: %s", use.offset+1, i.Secrets.noSecret(use.name))
				}
			}
		}
		return e, nil
	}
	return nil, fmt.Errorf("match, at character %d: %s", problems[0].offset+1, problems[0].text)
}

func (o *overlay) ban(b *Ban) error {
	switch {
	case b.Network != "" && (b.Rule != "" || b.Key != ""):
		return errors.New("it has a network beside a rule or key: a ban is of a network, or of a key under a rule")
	case b.Network != "":
		p, err := ParseNetwork(b.Network)
		if err == nil {
			o.set.bans.add(p, b)
		}
		return err
	case b.Rule == "":
		return errors.New("it has neither a rule nor a network: give a network, or a key and its rule")
	}
	r, err := o.ruleWithKey(b.Rule, b.Key)
	if err != nil {
		return err
	}
	bans := &o.changes(r).bans
	if *bans == nil {
		*bans = map[string]*Ban{}
	}
	if old := (*bans)[string(b.Key)]; old == nil || b.outlasts(&old.Note) {
		(*bans)[string(b.Key)] = b
	}
	return nil
}
