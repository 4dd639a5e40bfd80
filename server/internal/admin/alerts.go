package admin

import (
	"net/http"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/rules"
)

func (a *API) listAlerts(*call) (int, any, error) {
	return http.StatusOK, a.Alerts.List(), nil
}

func (a *API) testAlerts(c *call) (int, any, error) {
	a.Audit.change(c, "test alerts", "every webhook", "", nil, nil, nil)
	return http.StatusOK, adminapi.AlertTest{Webhooks: a.Alerts.Test(c.Context(), c.who.Name)}, nil
}

func shownSilence(s *rules.Silence, e adminapi.Effect) adminapi.Silence {
	return adminapi.Silence{ID: s.ID, Alert: s.Alert, Until: s.Until, Author: s.Author, Reason: s.Reason, Effect: e}
}

func (a *API) listSilences(*call) (int, any, error) {
	now := a.Control.Status()
	all := []adminapi.Silence{}
	for _, s := range now.Controls.Silences {
		all = append(all, shownSilence(&s, effect(now.Problem(s.ID), nil)))
	}
	return http.StatusOK, adminapi.Silences{Silences: all}, nil
}

func (a *API) addSilence(c *call) (int, any, error) {
	var in adminapi.SilenceRequest
	err := c.read(&in)
	s := rules.Silence{Alert: in.Alert}
	if err == nil {
		s.Note, err = c.note(&in.Term, a.Control.Now())
	}
	if err == nil && s.Until.IsZero() {
		err = impossible("for", "a silence must have an end: give for, such as 2h, or until")
	}
	if err != nil {
		return 0, nil, err
	}
	done, err := a.change(c, "silence", s.Reason, control.AddSilence{Silence: s})
	if err != nil {
		return 0, nil, err
	}
	a.Audit.change(c, "silence", silenced(&s), s.Reason, done.Replaced.Silences, s, done.Alone)
	return http.StatusCreated, shownSilence(&s, effect("", done.Alone)), nil
}

func (a *API) removeSilence(c *call) (int, any, error) {
	reason, err := c.reason()
	if err != nil {
		return 0, nil, err
	}
	done, err := a.change(c, "remove silence", reason, control.RemoveSilence{ID: c.PathValue("id")})
	if err != nil {
		return 0, nil, err
	}
	gone := done.Replaced.Silences[0]
	a.Audit.change(c, "remove silence", silenced(&gone), reason, gone, nil, done.Alone)
	return http.StatusOK, shownSilence(&gone, effect("", done.Alone)), nil
}

// silenced describes s for the audit log.
func silenced(s *rules.Silence) string {
	if s.Alert == "" {
		return "all alerts"
	}
	return "alert " + s.Alert
}
