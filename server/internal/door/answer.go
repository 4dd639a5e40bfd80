package door

import (
	"context"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/places"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/rules"
)

// Answer converts a decision to the middleware's type.
func (d *Door) Answer(t *decide.Request) httplimit.Answer {
	a := httplimit.Answer{
		Decision:  t.Decision,
		Blocked:   t.Kind == kind.Blocked,
		Unlimited: t.Allowed && t.Limit == nil,
	}
	a.Message, a.Cause, a.ID = t.Message, t.Cause(), t.ID
	if a.Blocked || a.Unlimited {
		return a
	}
	if !t.Allowed {
		a.Format = formatOf(t, d.Rules())
	}
	a.Each, a.Units = t.Enforced(), t.Units()
	a.Delay = 0
	delaying, last := 0, 0
	for i := range t.Each {
		if wait := t.Each[i].Delay; wait > 0 && t.Allowed && t.Rules[i].Shape && t.Rules[i].Mode == rules.Enforce {
			a.Delay = max(a.Delay, wait)
			delaying, last = delaying+1, i
		}
	}
	if a.Delay > 0 {
		a.Shape = true
		if delaying == 1 { // with several queues, a turn in one would be too early for another
			httplimit.Internal(friend.Of{}).SetQueue(&a, places.QueueOf(t.Ask(last)))
		}
		a.Refund = func(ctx context.Context) {
			d.Decider.Undo(ctx, t, "a request ended while it was delayed, and its units could not be refunded")
		}
	}
	return a
}

// formatOf is the format of the refusal of t by the rules of set.
func formatOf(t *decide.Request, set *rules.Set) *httplimit.ErrorFormat {
	if r := t.Teller(); r != nil {
		return r.Refusal
	}
	return set.Refusal
}
