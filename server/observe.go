package server

import (
	"context"
	"time"
)

// observe is told of each request that was decided, at the end of Decide. Nothing here may
// block or fail, and what it costs, every request pays. at is zero but for simulations.
func (s *Server) observe(ctx context.Context, start time.Duration, t *evaluation, at time.Time) {
	s.metrics.decided(ctx, start, &t.Verdict, t.err)
	if at.IsZero() {
		s.refusals.decided(ctx, start, t)
		s.countOffenders(start, t)
		s.watchUsage(t)
		s.record(start, t)
	}
}
