package store

import (
	"context"
	"slices"
	"time"

	"github.com/stintdev/stint"
)

// Holds implements stint.Holder.
func (s *Store) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	for some := range slices.Chunk(calls, rowsAtOnce) {
		s.callSome(ctx, at, some)
	}
}

func (s *Store) callSome(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	var t turn
	for i := range calls {
		t.addCount(calls[i].Key, calls[i].Limit)
	}
	var done []stint.HoldCall
	err := s.update(ctx, &t, at, func(m *stint.Memory, at time.Time) error {
		done = slices.Clone(calls)
		for i := range done {
			c := &done[i]
			if c.Err = t.unreadableCount(c.Key, c.Limit); c.Err == nil {
				m.Holds(ctx, at, done[i:i+1])
			}
		}
		return nil
	})
	if err == nil {
		copy(calls, done)
		return
	}
	for i := range calls {
		calls[i].Err = err
	}
}
