package server

import (
	"context"
	"time"
)

// observe runs at the end of Decide for each request. It must not block or fail, and its cost is
// part of every request. at is zero except for simulations.
func (s *Server) observe(ctx context.Context, start time.Duration, t *evaluation, at time.Time) {
	s.metrics.decided(ctx, start, &t.Verdict, t.err)
	if at.IsZero() {
		s.refusals.decided(ctx, start, t)
		s.countOffenders(start, t)
		s.watchUsage(t)
		s.record(start, t)
	}
}
