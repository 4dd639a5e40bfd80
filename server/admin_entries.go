package server

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/stintdev/stint/rules"
)

// overrideJSON is an override, as banJSON is a ban.
type overrideJSON struct {
	rules.Override
	Problem string `json:"problem,omitempty"`
	Pending string `json:"pending,omitempty"`
}

func (s *Server) listOverrides(*call) (int, any, error) {
	now := s.state()
	all := []overrideJSON{}
	for _, o := range now.controls.Overrides {
		all = append(all, overrideJSON{Override: o, Problem: cmp.Or(now.problem(o.ID), now.set.OverrideOverruled(&o))})
	}
	return http.StatusOK, struct {
		Overrides []overrideJSON `json:"overrides"`
	}{all}, nil
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
	var o rules.Override
	var in noteInput
	err := c.fields(append(in.fields(), textField("rule", &o.Rule), keyField(&o.Key), textField("tier", &o.Tier),
		wholeField("times", &o.Times), textsField("limits", &o.Limits))...)
	if err == nil {
		o.Key, err = s.counted(o.Rule, o.Key)
	}
	if err == nil {
		o.Note, err = in.note(c, s.clock.now())
	}
	if err != nil {
		return 0, nil, err
	}
	replaced, alone, err := commit(s, c, change[[]rules.Override]{"add override", o.Reason, overrideEdit{Override: o}})
	if err != nil {
		return 0, nil, err
	}
	s.audit(c, "add override", o.Reason, replaced, o, alone)
	return http.StatusCreated, overrideJSON{o, s.Rules().OverrideOverruled(&o), aloneText(alone)}, nil
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
	return http.StatusOK, overrideJSON{Override: gone, Pending: aloneText(alone)}, nil
}

// listedJSON is an entry of a list, as banJSON is a ban.
type listedJSON struct {
	rules.Listed
	Problem string `json:"problem,omitempty"`
	Pending string `json:"pending,omitempty"`
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
	all := []listedJSON{}
	for _, l := range *listIn(&now.controls, list) {
		all = append(all, listedJSON{Listed: l, Problem: cmp.Or(now.problem(l.ID), overruled(now.set, list, &l))})
	}
	return http.StatusOK, struct {
		Entries []listedJSON `json:"entries"`
	}{all}, nil
}

func (s *Server) addListed(c *call) (int, any, error) {
	list, err := c.list()
	var l rules.Listed
	var in noteInput
	if err == nil {
		err = c.fields(append(in.fields(), textField("network", &l.Network), textField("match", &l.Match))...)
	}
	if err == nil {
		l.Note, err = in.note(c, s.clock.now())
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
	return http.StatusCreated, listedJSON{l, overruled(s.Rules(), list, &l), aloneText(alone)}, nil
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
	return http.StatusOK, listedJSON{Listed: gone, Pending: aloneText(alone)}, nil
}
