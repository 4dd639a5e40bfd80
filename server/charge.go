package server

import (
	"context"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules"
)

// charged are the asks of the rules that apply to in: what a request like it would take.
func (s *Server) charged(ctx context.Context, in *rules.Input, at time.Time) ([]stint.Ask, error) {
	spent := *in
	spent.Spent = true
	t := evaluation{in: &spent}
	t.find(ctx, s.set.Load(), new(rules.Matches), at, s.settings.AllowAmbiguous)
	return t.asks, t.err
}

// chargeCalls charge what asks would take, whether it fits or not. What is in flight is not
// charged: such a call only answers how the key stands. id must not be in use.
func chargeCalls(asks []stint.Ask, id stint.HoldID) []stint.HoldCall {
	calls := make([]stint.HoldCall, 0, len(asks))
	for i := range asks {
		a := &asks[i]
		if a.Limit == nil {
			continue
		}
		calls = append(calls, stint.HoldCall{Action: stint.HoldCharge, Key: a.Key, Limit: a.Limit, Cost: a.Units()})
		if a.Limit.Spec().Algorithm == stint.InFlight { // it cannot be charged
			c := &calls[len(calls)-1]
			c.Action, c.Hold, c.Cost = stint.HoldSettle, id, 0
		}
	}
	return calls
}

// hold does calls at the instant at (zero: now), and returns the first error.
func (s *Server) hold(ctx context.Context, at time.Time, calls []stint.HoldCall) error {
	if len(calls) == 0 {
		return nil
	}
	stint.Holds(ctx, s.decider.Store, at, calls)
	for i := range calls {
		if err := calls[i].Err; err != nil {
			return err
		}
	}
	return nil
}
