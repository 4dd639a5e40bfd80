package server

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/adminapi"
)

func (s *Server) listOverrides(*call) (int, any, error) {
	now := s.state()
	all := []adminapi.Override{}
	for _, o := range now.controls.Overrides {
		all = append(all, adminapi.Override{Override: o, Effect: effect(cmp.Or(now.problem(o.ID), now.set.OverrideOverruled(&o)), nil)})
	}
	return http.StatusOK, adminapi.Overrides{Overrides: all}, nil
}

// effect says why an entry has no effect, or where it is in force: alone is why that is
// this instance alone, nil if it is not.
func effect(problem string, alone error) adminapi.Effect {
	return adminapi.Effect{Problem: problem, Reach: reach(alone)}
}

// problem is why an entry is without effect; empty: it is not.
func (s *state) problem(id string) string {
	if s.why == nil { // there may be thousands, of thousands of entries
		s.why = make(map[string]string, len(s.problems))
		for _, p := range slices.Backward(s.problems) { // the first of an ID counts
			s.why[p.ID] = p.Text
		}
	}
	return s.why[id]
}

func (s *Server) addOverride(c *call) (int, any, error) {
	var in adminapi.OverrideRequest
	err := c.read(&in)
	o := rules.Override{Rule: in.Rule, Key: in.Key, Tier: in.Tier, Times: in.Times, Limits: in.Limits}
	if err == nil {
		o.Key, err = s.counted(o.Rule, o.Key)
	}
	if err == nil {
		o.Note, err = c.note(&in.Term, s.clock.now())
	}
	if err != nil {
		return 0, nil, err
	}
	replaced, alone, err := commit(s, c, change[[]rules.Override]{"add override", o.Reason, overrideEdit{Override: o}})
	if err != nil {
		return 0, nil, err
	}
	s.audit(c, "add override", o.Reason, replaced, o, alone)
	return http.StatusCreated, adminapi.Override{Override: o, Effect: effect(s.Rules().OverrideOverruled(&o), alone)}, nil
}

func (s *Server) removeOverride(c *call) (int, any, error) {
	reason, err := c.reason()
	if err != nil {
		return 0, nil, err
	}
	id := c.PathValue("id")
	gone, alone, err := commit(s, c, change[rules.Override]{"remove override", reason, unoverrideEdit{ID: id}})
	if err != nil {
		return 0, nil, err
	}
	s.audit(c, "remove override", reason, gone, nil, alone)
	return http.StatusOK, adminapi.Override{Override: gone, Effect: effect("", alone)}, nil
}

// list is the name of the list that the path names.
func (c *call) list() (string, error) {
	name := c.PathValue("list")
	return name, knownList(name)
}

func (s *Server) showList(c *call) (int, any, error) {
	list, err := c.list()
	if err != nil {
		return 0, nil, err
	}
	now := s.state()
	all := []adminapi.Listed{}
	for _, l := range *listIn(&now.controls, list) {
		all = append(all, adminapi.Listed{Listed: l, Effect: effect(cmp.Or(now.problem(l.ID), overruled(now.set, list, &l)), nil)})
	}
	return http.StatusOK, adminapi.List{Entries: all}, nil
}

func (s *Server) addListed(c *call) (int, any, error) {
	list, err := c.list()
	var in adminapi.ListRequest
	if err == nil {
		err = c.read(&in)
	}
	l := rules.Listed{Network: in.Network, Match: in.Match}
	if err == nil {
		l.Note, err = c.note(&in.Term, s.clock.now())
	}
	if err != nil {
		return 0, nil, err
	}
	action := "add to " + list
	_, alone, err := commit(s, c, change[any]{action, l.Reason, listEdit{List: list, Entry: l}})
	if err != nil {
		return 0, nil, err
	}
	s.audit(c, action, l.Reason, nil, l, alone)
	return http.StatusCreated, adminapi.Listed{Listed: l, Effect: effect(overruled(s.Rules(), list, &l), alone)}, nil
}

// overruled says why an entry of a list is without effect under set.
func overruled(set *rules.Set, list string, l *rules.Listed) string {
	if list == "blocklist" {
		return set.BlockOverruled(l)
	}
	return "" // nothing goes before the safelist
}

func (s *Server) removeListed(c *call) (int, any, error) {
	list, err := c.list()
	var reason string
	if err == nil {
		reason, err = c.reason()
	}
	if err != nil {
		return 0, nil, err
	}
	action := "take off " + list
	gone, alone, err := commit(s, c, change[rules.Listed]{action, reason, unlistEdit{List: list, ID: c.PathValue("id")}})
	if err != nil {
		return 0, nil, err
	}
	s.audit(c, action, reason, gone, nil, alone)
	return http.StatusOK, adminapi.Listed{Listed: gone, Effect: effect("", alone)}, nil
}
