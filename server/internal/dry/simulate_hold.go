package dry

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/check"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/door"
)

// simulation is a run of Simulate.
type simulation struct {
	*door.Door
	held map[string]*simulatedHold // by the name in the events
	ids  uint64                    // identities that were made
}

// simulatedHold is an event's hold, or the one that it would have if it was refused.
type simulatedHold struct {
	id   stint.HoldID
	asks []stint.Ask
	made bool // it was allowed
}

// newID is an identity made at that instant. It is the same in each run.
func (s *simulation) newID(at time.Time) (id stint.HoldID) {
	s.ids++
	binary.BigEndian.PutUint32(id[:], uint32(at.Unix()))
	binary.BigEndian.PutUint64(id[4:], s.ids)
	return id
}

// calledJSON is how a key stands under a limit after a settlement, a charge or a renewal.
type calledJSON struct {
	Remaining  int64 `json:"remaining"`
	ResetAfter int64 `json:"reset_after_us"`
	Charged    int64 `json:"charged"`
}

// calledLine is the line that Simulate writes for one of these.
type calledLine struct {
	Outcome   string       `json:"outcome"`
	Rule      string       `json:"rule"` // empty: they are about all rules
	Detail    string       `json:"detail,omitempty"`
	Decisions []calledJSON `json:"decisions"`
	BanLeft   int64        `json:"ban_left_us"` // 0
}

// call does calls and makes a line of the answers. found reports whether one of them found a
// hold.
func (s *simulation) call(ctx context.Context, at time.Time, calls []stint.HoldCall) (line calledLine, found bool, err error) {
	line.Decisions = make([]calledJSON, len(calls))
	s.Decider.Hold(ctx, at, calls)
	for i := range calls {
		c := &calls[i]
		if c.Err != nil {
			return line, false, c.Err
		}
		line.Decisions[i] = calledJSON{c.Remaining, c.ResetAfter.Microseconds(), c.Charged}
		found = found || c.Found && c.Action == stint.HoldSettle
	}
	return line, found, nil
}

// charge charges an event's units.
func (s *simulation) charge(ctx context.Context, q *check.Input, at time.Time) (any, error) {
	q.Spent = q.Costed
	c := decide.Charge{In: &q.Input}
	if c.Plan(ctx, s.Decider.Set(), at, s.Settings.AllowAmbiguous, s.newID(at)); c.Err != nil {
		return nil, c.Err
	}
	line, _, err := s.call(ctx, at, c.Calls)
	line.Outcome = check.Charged
	return line, err
}

// settle settles or renews an earlier event's hold.
func (s *simulation) settle(ctx context.Context, q *check.Input, at time.Time) (any, error) {
	action := stint.HoldSettle
	if q.Kind == check.RenewHold {
		action = stint.HoldRenew
	}
	if q.Costed && q.Cost < 0 {
		return nil, check.BadInput("cost %d: must not be negative", q.Cost)
	}
	h := s.held[q.Hold]
	if h == nil {
		return calledLine{Outcome: check.Unknown, Detail: fmt.Sprintf("no event before has the hold %.60q", q.Hold), Decisions: []calledJSON{}}, nil
	}
	calls := make([]stint.HoldCall, 0, len(h.asks))
	for i := range h.asks {
		a := &h.asks[i]
		switch {
		case a.Limit == nil:
		case !a.Limit.IsHeld(): // charged at once; only shown here
			calls = append(calls, stint.HoldCall{Action: stint.HoldCharge, Key: a.Key, Limit: a.Limit})
		default:
			c := stint.HoldCall{Action: action, Key: a.Key, Limit: a.Limit, Hold: h.id, Units: a.Units(), Cost: q.Cost}
			if !q.Costed {
				c.Cost = a.Units()
			}
			calls = append(calls, c)
		}
	}
	line, found, err := s.call(ctx, at, calls)
	switch {
	case action == stint.HoldRenew && h.made:
		line.Outcome = "renewed"
	case found:
		line.Outcome = "settled"
	default:
		line.Outcome = check.Unknown
	}
	return line, err
}
