package rules

import (
	"fmt"
	"slices"

	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// List says on which list a request is.
type List uint8

const (
	Unlisted List = iota // the limits decide
	Safe                 // on the safelist: never limited
	Blocked              // on the blocklist: always refused
)

// String is "unlisted", "safe" or "blocked".
func (l List) String() string { return nameOf(listNames[:], uint8(l)) }

var listNames = [...]string{"unlisted", kind.Safe.String(), kind.Blocked.String()}

// Name is the list's name in files: "safelist" or "blocklist"; empty for Unlisted.
func (l List) Name() string {
	switch l {
	case Safe:
		return "safelist"
	case Blocked:
		return "blocklist"
	}
	return ""
}

// list is the safelist or the blocklist: the file's entries, and those added at run time.
type list struct {
	conditions []*expr.Expression // the file's
	indexed    *index             // of conditions
	networks   networkTable[*Listed]
	added      []addedCondition
}

type addedCondition struct {
	*Listed
	condition *expr.Expression
}

// ListEntry is an entry of the safelist or the blocklist. The zero ListEntry is not an entry.
type ListEntry struct {
	list   List
	place  int              // in the file, from 1
	listed *expr.Expression // the expression there; nil: not from the file
	added  *Listed          // nil: from the file
}

// String describes the entry: its list, its place in the file or its ID, and its content. It is empty for the
// zero ListEntry.
func (e ListEntry) String() string {
	switch {
	case e.added != nil: // one of the two is empty
		return fmt.Sprintf("%s entry %q, added at run time: %s", e.list.Name(), expr.Clip(e.added.ID), expr.Clip(e.added.Network+e.added.Match))
	case e.listed != nil:
		return fmt.Sprintf("%s entry %d: %s", e.list.Name(), e.place, expr.Clip(e.listed.Source))
	}
	return ""
}

// listed finds the list that decides. The file's entries come first, in their order.
func (s *Set) listed(ev *evaluation) (List, ListEntry, error) {
	for l := Safe; l <= Blocked; l++ {
		entries := s.list(l)
		all := entries.conditions
		candidates := entries.indexed.candidates(ev, &ev.candidates)
		for i := candidates.next(0, len(all)); i < len(all); i = candidates.next(i+1, len(all)) {
			e := all[i]
			if ok, err := e.True(&ev.scope); err != nil {
				return Unlisted, ListEntry{}, malformed(err, "%s entry %d", l.Name(), i+1)
			} else if ok {
				return l, ListEntry{list: l, place: i + 1, listed: e}, nil
			}
		}
		if entries.isChanged() {
			if added, err := entries.find(ev, l); added != nil || err != nil {
				return l, ListEntry{list: l, added: added}, err
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

func (l *list) isChanged() bool { return l.networks.entries != nil || len(l.added) > 0 }

// find returns the entry added at run time that decides; nil: none. which is the list l.
func (l *list) find(ev *evaluation, which List) (*Listed, error) {
	if e, _ := l.networks.longest(ev.client, ev.set.instance); e != nil {
		return e, nil
	}
	for _, e := range l.added {
		ok, err := e.condition.True(&ev.scope)
		if !ok && err == nil || e.left(ev.set.instance) <= 0 {
			continue
		}
		if err != nil {
			return nil, malformed(err, "%s entry %q", which.Name(), expr.Clip(e.ID))
		}
		return e.Listed, nil
	}
	return nil, nil
}

// index indexes the file's entries. Claims are not looked for before an entry is evaluated that needs them.
func (l *list) index() {
	conditions := make([]condition, len(l.conditions))
	for i, e := range l.conditions {
		conditions[i].is = e
	}
	l.indexed = newIndex(conditions, true)
}

func (l *list) with() list { return list{conditions: slices.Clip(l.conditions), indexed: l.indexed} }
