package rules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/spelling"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// With returns s with c in force, and does not change s. With a nil or zero c it returns s itself. It never
// fails: an entry that cannot work, such as one for a rule that s does not have, has no effect and is
// reported as a problem. Ended entries have no effect and are not a problem; others end by themselves.
//
// If s came from With, c replaces its controls.
func (s *Set) With(c *Controls) (*Set, []Problem) {
	if s.base != nil {
		s = s.base
	}
	if c == nil || c.isZero() {
		return s, nil
	}
	a := newApplier(s)
	a.add(c.Clone())
	a.set.noteUses()
	if len(c.Modes) > 0 {
		a.set.indexRules()
	}
	for _, limits := range a.limits {
		a.set.holds = a.set.holds || slices.ContainsFunc(limits, (*stint.Limit).IsHeld)
	}
	return a.set, a.problems
}

type applier struct {
	compiler  *expr.Compiler
	base, set *Set // the set without Controls, and the copy
	now       time.Time
	ids       map[string]bool
	limits    map[limitsKey][]*stint.Limit // that overrides give
	unknown   map[string]error             // for names that no rule has
	problems  []Problem
}

func newApplier(s *Set) *applier {
	set := *s
	set.base = s
	set.Rules = slices.Clone(s.Rules)
	set.safelist, set.blocklist = s.safelist.with(), s.blocklist.with()
	set.headerNames = maps.Clone(s.headerNames)
	compiler := expr.NewCompiler(context.Background())
	compiler.NAT64 = s.NAT64
	a := &applier{
		compiler: compiler,
		base:     s,
		set:      &set,
		now:      s.instance.now(),
		ids:      map[string]bool{},
		limits:   map[limitsKey][]*stint.Limit{},
		unknown:  map[string]error{},
	}
	return a
}

// add applies c, which must not change any more.
func (a *applier) add(c *Controls) {
	if c.Enabled != nil {
		a.set.Enabled = *c.Enabled
	}
	for _, name := range slices.Sorted(maps.Keys(c.Modes)) {
		if err := a.mode(name, c.Modes[name]); err != nil {
			a.report(name, err)
		}
	}
	each(a, c.Overrides, a.override, oneQuota[*Override](MaxOverrides, "overrides"))
	a.overrideOthers()
	each(a, c.Safelist, a.listed(&a.set.safelist), listedQuota("safelist"))
	each(a, c.Blocklist, a.listed(&a.set.blocklist), listedQuota("blocklist"))
	each(a, c.Bans, a.ban, oneQuota[*Ban](MaxBans, "bans"))
	each(a, c.Silences, a.silence, oneQuota[*Silence](MaxSilences, "silences"))
	if over := len(c.Lifts) - MaxLifts; over > 0 {
		a.report("lifts", fmt.Errorf("%s without effect: at most %d are allowed; remove the oldest", spelling.Several(over, "lift"), MaxLifts))
	}
}

type quota struct {
	most int
	what string
	// How many were applied, how many did not fit, and the ID of the first that did not.
	taken, over int
	first       string
}

func oneQuota[E entry](most int, what string) func(E) *quota {
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

// each calls add with entries that have not ended, fit and have an ID of their own, and reports the others.
func each[T any, E interface {
	*T
	entry
}](a *applier, entries []T, add func(E) error, quotaOf func(E) *quota) {
	var full []*quota
	for i := range entries {
		e := E(&entries[i])
		n := e.note()
		if n.endedAt(a.now) {
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
		err := a.claim(n.ID)
		if err == nil {
			err = add(e)
		}
		if err != nil {
			a.report(n.ID, err)
		}
	}
	for _, q := range full {
		a.report(q.first, fmt.Errorf("%s without effect: at most %d %s are allowed; remove some", spelling.Several(q.over, "entry"), q.most, q.what))
	}
}

func (a *applier) claim(id string) error {
	if id == "" {
		return errors.New("the entry has no id: give it one that no other entry has")
	}
	if a.ids[id] {
		return errors.New("an entry before it has the same id: give it another")
	}
	a.ids[id] = true
	return nil
}

func (a *applier) report(id string, err error) {
	a.problems = append(a.problems, Problem{ID: id, Text: err.Error()})
}

func (a *applier) mode(name string, m Mode) error {
	r, err := a.rule(name)
	if err != nil {
		return err
	}
	if _, err := m.MarshalText(); err != nil {
		return err
	}
	r.Mode = m
	return nil
}

// rule returns the rule of this name as a copy that can be changed.
func (a *applier) rule(name string) (*Rule, error) {
	i := a.base.place(name)
	if i < 0 {
		return nil, a.noRule(name)
	}
	if a.set.Rules[i] == a.base.Rules[i] {
		r := *a.base.Rules[i]
		a.set.Rules[i] = &r
	}
	return a.set.Rules[i], nil
}

// noRule is made once for each name: looking for the nearest name takes time.
func (a *applier) noRule(name string) error {
	if a.unknown[name] == nil {
		names := make([]string, len(a.base.Rules))
		for i, r := range a.base.Rules {
			names[i] = r.Name
		}
		a.unknown[name] = errors.New(unknown("rule", name, names))
	}
	return a.unknown[name]
}

func (a *applier) listed(to *list) func(*Listed) error {
	return func(e *Listed) error {
		switch {
		case e.Network != "" && e.Match != "":
			return errors.New("it has both a network and a match: make two entries of it")
		case e.Network != "":
			p, err := a.base.ParseNetwork(e.Network)
			if err == nil {
				to.networks.add(p, e)
			}
			return err
		case e.Match == "":
			return errors.New("it has neither a network nor a match: give one of them")
		}
		condition, err := a.expression(e.Match)
		if err == nil {
			to.added = append(to.added, addedCondition{e, condition})
		}
		return err
	}
}

func (a *applier) expression(source string) (*expr.Expression, error) {
	e, problems := a.compiler.Compile(source, expr.Condition)
	if len(problems) > 0 {
		return nil, fmt.Errorf("match, at character %d: %s", problems[0].Offset+1, problems[0].Text)
	}
	if i := a.base.instance; i != nil {
		for _, use := range e.Outside {
			if text := i.lacks(use); text != "" {
				return nil, fmt.Errorf("match, at character %d: %s", use.Offset+1, text)
			}
		}
	}
	return e, nil
}

func (a *applier) ban(b *Ban) error {
	switch {
	case b.Network != "" && (b.Rule != "" || b.Key != ""):
		return errors.New("it has both a network and a rule or key: ban a network, or a key under a rule")
	case b.Network != "":
		p, err := a.base.ParseNetwork(b.Network)
		if err == nil {
			a.set.bans.add(p, b)
		}
		return err
	case b.Rule == "":
		return errors.New("it has neither a rule nor a network: give a network, or a key and its rule")
	}
	r, err := a.ruleWithKey(b.Rule, b.Key)
	if err != nil {
		return err
	}
	bans := &a.changes(r).bans
	if *bans == nil {
		*bans = map[string]*Ban{}
	}
	if old := (*bans)[string(b.Key)]; old == nil || b.outlasts(&old.Note) {
		(*bans)[string(b.Key)] = b
	}
	return nil
}

// silence only checks s: the sender of messages reads silences from the Controls, not from the Set.
func (a *applier) silence(s *Silence) error {
	if s.Alert == "" || slices.ContainsFunc(a.base.Alerts, func(alert Alert) bool { return alert.Name == s.Alert }) {
		return nil
	}
	names := make([]string, len(a.base.Alerts))
	for i := range names {
		names[i] = a.base.Alerts[i].Name
	}
	return errors.New(unknown("alert", s.Alert, names))
}
