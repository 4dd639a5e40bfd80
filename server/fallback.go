package server

import (
	"context"
	"time"

	"github.com/stintdev/stint"
)

// newFallback decides by store as long as that answers, and tells of it.
func (s *Server) newFallback(store stint.Store) *stint.Fallback {
	b := s.settings.Breaker
	b.Changed = func(to stint.BreakerState, why error) {
		s.metrics.turned(to)
		if to == stint.Open {
			s.log.Error("the store is not asked until it answers again; on_store_error decides", "error", why)
			return
		}
		s.log.Info("breaker", "state", to.String())
	}
	return &stint.Fallback{
		Store:     store,
		Local:     &stint.Memory{MaxKeys: int(s.settings.MaxKeys)},
		Deadline:  s.settings.DecisionTimeout,
		Breaker:   b,
		Instances: int(s.settings.Instances),
		Called: func(took time.Duration, err error) {
			s.metrics.called(took, err)
			if err != nil {
				s.complain(err)
			}
		},
	}
}

// chargedBy is what of g was taken by whoever decided.
func chargedBy(g *group, a *stint.Answer) stint.Request {
	if a.By.Counted() {
		return g.request
	}
	var local stint.Request
	for i := range g.request.Asks {
		if a.Each[i].By == stint.ByLocal {
			local.Asks = append(local.Asks, g.request.Asks[i])
		}
	}
	return local
}

// giveBack returns what v charged to whoever counts it.
func (s *Server) giveBack(v *Verdict) func(context.Context) error {
	charged := v.charged
	if len(charged.Asks) == 0 {
		return func(context.Context) error { return nil }
	}
	if v.By.Counted() {
		return func(ctx context.Context) error { return s.decider.GiveBackAll(ctx, &charged) }
	}
	return func(context.Context) error { return s.fallback.GiveBackLocal(&charged) }
}

// withoutRoom decides where a store in memory is full, for those rules that allow
// then; it is no case for another memory beside it.
func withoutRoom(g *group, a *stint.Answer) {
	for _, r := range g.rules {
		if r.OnStoreError != stint.OnErrorAllow {
			return
		}
	}
	for i := range g.request.Asks {
		ask := &g.request.Asks[i]
		a.Each[i] = stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: ask.Limit, Key: ask.Key, Remaining: ask.Limit.Capacity(), By: stint.ByPolicy}
	}
	a.Decision, a.Err = stint.Strictest(a.Each), nil
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
