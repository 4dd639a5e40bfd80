package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/control"
)

// change makes a change of the controls for c's caller. An error is a *callError.
func (s *Server) change(c *call, action, reason string, e control.Edit) (control.Done, error) {
	done, err := s.control.Change(c.Context(), control.Change{Who: c.who.Name, Action: action, Reason: reason, Edit: e})
	if err != nil {
		return done, callErrorOf(err, "")
	}
	return done, nil
}

// callErrorOf is the answer to a call whose change failed with err. field is what it
// depends on, where that is one; else empty.
func callErrorOf(err error, field string) error {
	var refused *control.RefusedError
	var conflict *control.ConflictError
	switch {
	case errors.As(err, &conflict):
		e := &callError{status: http.StatusConflict, newest: new(int64), detail: conflict.Error()}
		if conflict.Newest != nil {
			e.newest = &conflict.Newest.Number
		}
		return e
	case !errors.As(err, &refused):
		return unavailable(err)
	case refused.Reason == control.NotFound:
		return notFound("%s", refused.Text)
	case refused.Reason == control.Invalid:
		return impossible(field, "%s", refused.Text)
	case refused.Reason == control.Rivals:
		return &callError{status: http.StatusConflict, detail: refused.Text}
	}
	return &callError{status: http.StatusServiceUnavailable, detail: refused.Text}
}

// effect says why an entry has no effect, or where it is in force: alone is why that is
// this instance alone, nil if it is not.
func effect(problem string, alone *control.AloneError) adminapi.Effect {
	return adminapi.Effect{Problem: problem, Reach: reach(alone)}
}

func reach(alone *control.AloneError) adminapi.Reach { return adminapi.Reach{Pending: alone.Text()} }

// note is that of an entry which c's caller makes now, by the time of the fleet.
func (c *call) note(n *adminapi.Term, now time.Time) (rules.Note, error) {
	now = now.UTC()
	note := rules.Note{ID: control.NewID(), Reason: n.Reason, Author: c.who.Name, At: now}
	switch {
	case n.For != "" && n.Until != "":
		return note, impossible("for", "for and until cannot both be given")
	case n.For != "":
		d, err := stint.ParsePeriod(n.For)
		if err == nil && d <= 0 {
			err = errors.New("must be more than 0")
		}
		if err != nil {
			return note, impossible("for", "%s", err)
		}
		note.Until = now.Add(d)
	case n.Until != "":
		until, err := time.Parse(time.RFC3339, n.Until)
		if err != nil {
			return note, impossible("until", "%.60q: want a time such as 2030-01-31T15:04:05Z", n.Until)
		}
		if !until.After(now) {
			return note, impossible("until", "%s is past", n.Until)
		}
		if note.Until = until.UTC(); note.Until.Year() > 9999 {
			return note, impossible("until", "%s is after the year 9999", n.Until)
		}
	}
	return note, nil
}
