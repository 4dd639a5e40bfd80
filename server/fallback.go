package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// errUnavailable means that the store did not decide and that a rule says to
// refuse then.
var errUnavailable = errors.New("the store did not decide, and a rule denies then")

// withoutStore puts into a what the rules' on_store_error decide: if one says
// deny, nothing is decided; those that say local are counted here; those that say
// allow pass.
func (s *Server) withoutStore(ctx context.Context, v *Verdict, g *group, a *stint.Answer) error {
	var local stint.Request
	var places []int
	for i, rule := range g.rules {
		switch rule.OnStoreError {
		case rules.Deny:
			v.counters.fellBack(rule)
			return fmt.Errorf("%w (rule %s): %w", errUnavailable, rule.Name, a.Err)
		case rules.Local:
			local.Asks = append(local.Asks, g.request.Asks[i])
			places = append(places, i)
		case rules.Allow:
			ask := &g.request.Asks[i]
			a.Each[i] = stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: ask.Limit, Key: ask.Key, Remaining: ask.Limit.Capacity()}
		}
	}
	v.charged, v.by = local, s.local
	if len(places) == 0 {
		a.Decision = stint.Strictest(a.Each)
		return nil
	}
	if s.local == nil {
		return a.Err
	}
	out := make([]stint.Decision, len(places))
	d, err := s.local.Take(context.WithoutCancel(ctx), &local, out)
	if err != nil {
		return fmt.Errorf("%w, nor can this instance: %w", a.Err, err)
	}
	for i, place := range places {
		a.Each[place] = out[i]
	}
	a.Decision = d
	return nil
}

// complaint bounds how often one failure is logged.
var complaint = stint.MustLimit("1 per 10s")

// complain logs that the store failed, unless that was said just now.
func (s *Server) complain(err error) {
	s.complainOf("the store does not decide, so on_store_error does", err)
}

// complainOf logs a failure that goes on, unless it was said just now.
func (s *Server) complainOf(what string, err error) {
	if d, _ := s.complaints.Allow(context.Background(), what, complaint); d.Allowed {
		s.log.Error(what, "error", err)
	}
}
