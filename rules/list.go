package rules

import (
	"fmt"
	"slices"
)

// list is the safelist or the blocklist: what the file says, and what was added
// while everything runs.
type list struct {
	conditions []*expression // the file's
	networks   byNetwork[*Listed]
	added      []addedCondition
}

// addedCondition is an expression on a list that was added at run time.
type addedCondition struct {
	*Listed
	condition *expression
}

// listEntry tells which entry of a list a request is on.
type listEntry struct {
	place int     // in the file, from 1; 0: it is not of the file
	added *Listed // nil: it is of the file
}

// listed finds the list that decides, and the entry. The file's entries come
// first, in their order.
func (s *Set) listed(sc *scope) (List, listEntry, error) {
	for l := Safe; l <= Blocked; l++ {
		entries := s.list(l)
		for i, e := range entries.conditions {
			if ok, err := e.isTrue(sc); err != nil {
				return Unlisted, listEntry{}, malformed(err, "%s entry %d", l.name(), i+1)
			} else if ok {
				return l, listEntry{place: i + 1}, nil
			}
		}
		if entries.isChanged() {
			if added, err := entries.find(sc, l); added != nil || err != nil {
				return l, listEntry{added: added}, err // l is of no account with err
			}
		}
	}
	return Unlisted, listEntry{}, nil
}

func (s *Set) list(l List) *list {
	if l == Safe {
		return &s.safelist
	}
	return &s.blocklist
}

// isChanged reports whether anything was added at run time.
func (l *list) isChanged() bool { return l.networks.entries != nil || len(l.added) > 0 }

// find is the entry added at run time that decides; nil: none. which says which
// list it is.
func (l *list) find(sc *scope, which List) (*Listed, error) {
	if e, _ := l.networks.longest(sc.client); e != nil {
		return e, nil
	}
	for _, e := range l.added {
		ok, err := e.condition.isTrue(sc)
		if !ok && err == nil || e.left() <= 0 {
			continue
		}
		if err != nil {
			return nil, malformed(err, "%s entry %q", which.name(), clip(e.ID))
		}
		return e.Listed, nil
	}
	return nil, nil
}

// with is a copy of l that can be added to.
func (l *list) with() list { return list{conditions: slices.Clip(l.conditions)} }

// describe is the entry e of l for people.
func (l *list) describe(which List, e listEntry) string {
	if e.added == nil {
		return fmt.Sprintf("%s entry %d: %s", which.name(), e.place, clip(l.conditions[e.place-1].source))
	}
	// One of the two is empty.
	return fmt.Sprintf("%s entry %q, added at run time: %s", which.name(), clip(e.added.ID), clip(e.added.Network+e.added.Match))
}

// name is the list's in files.
func (l List) name() string {
	if l == Safe {
		return "safelist"
	}
	return "blocklist"
}
