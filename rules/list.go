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

// ListEntry is an entry of the safelist or the blocklist. The zero ListEntry is none.
type ListEntry struct {
	list   List
	place  int         // in the file, from 1
	listed *expression // what stands there; nil: it is not of the file
	added  *Listed     // nil: it is of the file
}

// String is the entry for people: its list, its place in the file or its ID, and what it
// lists; empty for the zero ListEntry.
func (e ListEntry) String() string {
	switch {
	case e.added != nil: // one of the two is empty
		return fmt.Sprintf("%s entry %q, added at run time: %s", e.list.Name(), clip(e.added.ID), clip(e.added.Network+e.added.Match))
	case e.listed != nil:
		return fmt.Sprintf("%s entry %d: %s", e.list.Name(), e.place, clip(e.listed.source))
	}
	return ""
}

// listed finds the list that decides, and the entry. The file's entries come
// first, in their order.
func (s *Set) listed(sc *scope) (List, ListEntry, error) {
	for l := Safe; l <= Blocked; l++ {
		entries := s.list(l)
		for i, e := range entries.conditions {
			if ok, err := e.isTrue(sc); err != nil {
				return Unlisted, ListEntry{}, malformed(err, "%s entry %d", l.Name(), i+1)
			} else if ok {
				return l, ListEntry{list: l, place: i + 1, listed: e}, nil
			}
		}
		if entries.isChanged() {
			if added, err := entries.find(sc, l); added != nil || err != nil {
				return l, ListEntry{list: l, added: added}, err // l is of no account with err
			}
		}
	}
	return Unlisted, ListEntry{}, nil
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
	if e, _ := l.networks.longest(sc.client, sc.set.instance); e != nil {
		return e, nil
	}
	for _, e := range l.added {
		ok, err := e.condition.isTrue(sc)
		if !ok && err == nil || e.left(sc.set.instance) <= 0 {
			continue
		}
		if err != nil {
			return nil, malformed(err, "%s entry %q", which.Name(), clip(e.ID))
		}
		return e.Listed, nil
	}
	return nil, nil
}

// with is a copy of l that can be added to.
func (l *list) with() list { return list{conditions: slices.Clip(l.conditions)} }

// Name is the list's in files: "safelist" or "blocklist"; empty for Unlisted.
func (l List) Name() string {
	switch l {
	case Safe:
		return "safelist"
	case Blocked:
		return "blocklist"
	}
	return ""
}
