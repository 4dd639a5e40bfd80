package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/rules"
)

// change makes a change of the controls for c's caller. An error is a *callError.
func (a *API) change(c *call, action, reason string, e control.Edit) (control.Done, error) {
	done, err := a.Control.Change(c.Context(), control.Change{Who: c.who.Name, Action: action, Reason: reason, Edit: e})
	if err != nil {
		return done, callErrorOf(err, "")
	}
	return done, nil
}

// effect is the reason why an entry has no effect, or where it is in force. alone is the reason if it is in
// force at this instance alone, else nil.
func effect(problem string, alone *control.AloneError) adminapi.Effect {
	return adminapi.Effect{Problem: problem, Reach: reach(alone)}
}

func reach(alone *control.AloneError) adminapi.Reach { return adminapi.Reach{Pending: alone.Text()} }

func (a *API) listOverrides(*call) (int, any, error) {
	now := a.Control.Status()
	all := []adminapi.Override{}
	for _, o := range now.Controls.Overrides {
		all = append(all, adminapi.Override{Override: o, Effect: effect(cmp.Or(now.Problem(o.ID), now.Set.OverrideOverruled(&o)), nil)})
	}
	return http.StatusOK, adminapi.Overrides{Overrides: all}, nil
}

func (a *API) addOverride(c *call) (int, any, error) {
	var in adminapi.OverrideRequest
	err := c.read(&in)
	o := rules.Override{Rule: in.Rule, Key: in.Key, Tier: in.Tier, Times: in.Times, Limits: in.Limits}
	if err == nil {
		o.Key, err = a.counted(o.Rule, o.Key)
	}
	if err == nil {
		o.Note, err = c.note(&in.Term, a.Control.Now())
	}
	if err != nil {
		return 0, nil, err
	}
	done, err := a.change(c, "add override", o.Reason, control.AddOverride{Override: o})
	if err != nil {
		return 0, nil, err
	}
	a.Audit.change(c, "add override", a.overridden(&o), o.Reason, done.Replaced.Overrides, o, done.Alone)
	added := adminapi.AddedOverride{Override: adminapi.Override{Override: o, Effect: effect(a.Control.Current().OverrideOverruled(&o), done.Alone)}}
	for _, r := range done.Replaced.Overrides {
		added.Replaced = append(added.Replaced, adminapi.Override{Override: r})
	}
	return http.StatusCreated, added, nil
}

func (a *API) removeOverride(c *call) (int, any, error) {
	reason, err := c.reason()
	if err != nil {
		return 0, nil, err
	}
	done, err := a.change(c, "remove override", reason, control.RemoveOverride{ID: c.PathValue("id")})
	if err != nil {
		return 0, nil, err
	}
	gone := done.Replaced.Overrides[0]
	a.Audit.change(c, "remove override", a.overridden(&gone), reason, gone, nil, done.Alone)
	return http.StatusOK, adminapi.Override{Override: gone, Effect: effect("", done.Alone)}, nil
}

// overridden describes o for the audit log.
func (a *API) overridden(o *rules.Override) string {
	about := a.Audit.about(o.Rule, o.Key, "")
	if o.Tier != "" {
		about += ", tier " + o.Tier
	}
	if o.Times != 0 {
		return fmt.Sprintf("%s: times %d", about, o.Times)
	}
	limits := make([]string, len(o.Limits))
	for i, l := range o.Limits {
		limits[i] = fmt.Sprint(l)
	}
	return about + ": " + strings.Join(limits, ", ")
}

// list is the name of the list in the path.
func (c *call) list() (string, error) {
	name := c.PathValue("list")
	if control.Listed(new(rules.Controls), name) == nil {
		return "", callErrorOf(control.ListNotFound(name), "")
	}
	return name, nil
}

func (a *API) showList(c *call) (int, any, error) {
	list, err := c.list()
	if err != nil {
		return 0, nil, err
	}
	now := a.Control.Status()
	all := []adminapi.Listed{}
	for _, l := range *control.Listed(&now.Controls, list) {
		all = append(all, adminapi.Listed{Listed: l, Effect: effect(cmp.Or(now.Problem(l.ID), overruled(now.Set, list, &l)), nil)})
	}
	return http.StatusOK, adminapi.List{Entries: all}, nil
}

func (a *API) addListed(c *call) (int, any, error) {
	list, err := c.list()
	var in adminapi.ListRequest
	if err == nil {
		err = c.read(&in)
	}
	l := rules.Listed{Network: in.Network, Match: in.Match}
	if err == nil {
		l.Note, err = c.note(&in.Term, a.Control.Now())
	}
	if err == nil && l.Network != "" {
		l.Network, err = a.network(l.Network)
	}
	if err != nil {
		return 0, nil, err
	}
	action := "add to " + list
	done, err := a.change(c, action, l.Reason, control.AddListed{List: list, Entry: l})
	if err != nil {
		return 0, nil, err
	}
	a.Audit.change(c, action, cmp.Or(l.Network, l.Match), l.Reason, nil, l, done.Alone)
	return http.StatusCreated, adminapi.Listed{Listed: l, Effect: effect(overruled(a.Control.Current(), list, &l), done.Alone)}, nil
}

// overruled says why an entry of a list has no effect under set.
func overruled(set *rules.Set, list string, l *rules.Listed) string {
	if list == "blocklist" {
		return set.BlockOverruled(l)
	}
	return "" // nothing takes precedence over the safelist
}

func (a *API) removeListed(c *call) (int, any, error) {
	list, err := c.list()
	var reason string
	if err == nil {
		reason, err = c.reason()
	}
	if err != nil {
		return 0, nil, err
	}
	action := "take off " + list
	done, err := a.change(c, action, reason, control.RemoveListed{List: list, ID: c.PathValue("id")})
	if err != nil {
		return 0, nil, err
	}
	gone := (*control.Listed(&done.Replaced, list))[0]
	a.Audit.change(c, action, cmp.Or(gone.Network, gone.Match), reason, gone, nil, done.Alone)
	return http.StatusOK, adminapi.Listed{Listed: gone, Effect: effect("", done.Alone)}, nil
}
