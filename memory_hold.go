package stint

import (
	"context"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/counts"
)

// Holds implements Holder.
func (m *Memory) Holds(_ context.Context, at time.Time, calls []HoldCall) {
	now := int64(counts.OwnClock)
	if !at.IsZero() {
		now = at.UnixMicro()
	}
	for i := range calls {
		m.hold(&calls[i], now)
	}
}

func (m *Memory) hold(c *HoldCall, at int64) {
	call := c.counted()
	c.Found, c.Released, c.Charged, c.Remaining, c.Held, c.ResetAfter, c.Err = false, false, 0, 0, 0, 0, nil
	if m.open().Hold(&call, at) != nil {
		c.Err = ErrFull
		return
	}
	c.Found, c.Released, c.Charged = call.Found, call.Released, call.Charged
	c.Remaining, c.Held, c.ResetAfter = call.Verdict.Remaining, call.Verdict.Held, algo.Duration(call.Verdict.Reset)
}

// counted is c without an answer.
func (c *HoldCall) counted() counts.HoldCall {
	return counts.HoldCall{
		Action: counts.HoldAction(c.Action), Key: c.Key, Limit: &c.Limit.counted, ID: counts.HoldID(c.Hold),
		Units: c.Units, For: c.For.Microseconds(), Cost: c.Cost, Again: c.Again,
	}
}

// Held implements Holder.
func (m *Memory) Held(_ context.Context, key string, limits []*Limit) ([]Hold, error) {
	counted := make([]*counts.Limit, len(limits))
	for i, l := range limits {
		counted[i] = &l.counted
	}
	var held []Hold
	for _, h := range m.open().HeldBy(key, counted) {
		held = append(held, Hold{
			ID: HoldID(h.ID), Limit: limits[h.Limit], Units: h.Units, Left: algo.Duration(h.Left), For: algo.Duration(h.For),
		})
	}
	return held, nil
}
