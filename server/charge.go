package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/server/rules"
)

// charge is a check that charges units spent already, whether they fit or not.
type charge struct {
	in    *rules.Input
	rules []*rules.Rule // of calls
	calls []stint.HoldCall
	err   error
}

// find finds the rules that apply, and makes their calls. An in-flight limit is not charged: its call only
// reads the key's state. id must not be in use.
func (c *charge) find(ctx context.Context, set *served, at time.Time, allowed rules.Ambiguity, id stint.HoldID) {
	t := evaluation{in: c.in}
	if t.find(ctx, set, new(rules.Matches), at, allowed); t.err != nil {
		c.err = t.err
		return
	}
	for i := range t.asks {
		a := &t.asks[i]
		if a.Limit == nil {
			continue
		}
		call := stint.HoldCall{Action: stint.HoldCharge, Key: a.Key, Limit: a.Limit, Cost: a.Units()}
		if a.Limit.Spec().Algorithm == stint.InFlight {
			call.Action, call.Hold, call.Units, call.Cost = stint.HoldSettle, id, 1, 0
		}
		c.calls, c.rules = append(c.calls, call), append(c.rules, t.Rules[i])
	}
}

// answer is the answer to c, without rules in shadow mode unless they are wanted.
func (c *charge) answer(shadows bool) (endJSON, error) {
	if c.err != nil {
		return endJSON{}, c.err
	}
	j, err := answerOf(chargedOutcome, c.calls, func(i int) bool { return !shadows && isShadow(c.rules[i]) })
	j.Outcome = chargedOutcome // also if no rule applies
	return j, err
}

const chargedOutcome = "charged"

// chargeAll charges.
func (s *Server) chargeAll(ctx context.Context, all []charge) {
	if len(all) == 0 {
		return
	}
	set := s.set.Load()
	var calls []stint.HoldCall
	for i := range all {
		c := &all[i]
		c.find(ctx, set, time.Time{}, s.settings.AllowAmbiguous, stint.NewHoldID())
		s.sampled.ambiguity(c.err)
		calls = append(calls, c.calls...)
	}
	ctx, cancel := outliving(ctx)
	defer cancel()
	inStore{s}.hold(ctx, time.Time{}, calls)
	for i := range all {
		n := copy(all[i].calls, calls)
		calls = calls[n:]
		all[i].dropUnanswered()
	}
}

// dropUnanswered drops calls that only read an in-flight limit, if the store did not answer. They charge
// nothing, and their errors would hide that the others did charge: the client would charge again.
func (c *charge) dropUnanswered() {
	n := 0
	for i := range c.calls {
		if c.calls[i].Action == stint.HoldSettle && c.calls[i].Err != nil {
			continue
		}
		c.calls[n], c.rules[n] = c.calls[i], c.rules[i]
		n++
	}
	c.calls, c.rules = c.calls[:n], c.rules[:n]
}

// answerCharge answers a check request of one charge.
func (s *Server) answerCharge(w http.ResponseWriter, r *http.Request, c *charge, shadows bool) {
	j, err := c.answer(shadows)
	if err != nil {
		if s.notCharged(err); errors.Is(err, stint.ErrRequest) {
			s.malformed(r)
		}
		refuseCharge(w, r, err)
		return
	}
	sendJSON(w, j)
}

// appendCharge appends the element of a list for c.
func (s *Server) appendCharge(b []byte, r *http.Request, c *charge, shadows bool) []byte {
	j, err := c.answer(shadows)
	if err != nil {
		if s.notCharged(err); errors.Is(err, stint.ErrRequest) {
			s.metrics.badRequests.Inc()
		}
		return append(b, element(r, err, refuseCharge)...)
	}
	j.Status = http.StatusOK
	return append(b, marshal(j)...)
}

func (s *Server) notCharged(err error) {
	if !errors.Is(err, stint.ErrRequest) {
		s.sampled.storeFailure(err)
	}
}

// refuseCharge answers with a problem: the charge was not made because of err.
func refuseCharge(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, stint.ErrRequest):
		httplimit.Problem(w, r, http.StatusBadRequest, err.Error())
	case errors.Is(err, fleet.ErrNotCharged):
		refuseForNow(w, r, "The store does not answer right now, and nothing was charged.")
	default:
		refuseForNow(w, r, "The store does not answer right now. It may have charged some of it.")
	}
}
