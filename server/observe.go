package server

import (
	"context"
	"log/slog"
	"strconv"
	"time"
)

// observe runs at the end of Decide for each request. It must not block or fail, and every request pays for
// its time. at is zero except for simulations.
func (s *Server) observe(ctx context.Context, start time.Duration, t *evaluation, at time.Time) {
	s.metrics.decided(ctx, start, &t.Verdict, t.err)
	if at.IsZero() {
		s.refusals.decided(ctx, start, t)
		s.countOffenders(start, t)
		s.watchUsage(t)
		s.record(start, t)
		if s.log.Enabled(ctx, slog.LevelDebug) {
			s.logDecision(ctx, t)
		}
	}
}

// logDecision logs a decision and how it leaves each limit.
func (s *Server) logDecision(ctx context.Context, t *evaluation) {
	attrs := []slog.Attr{slog.String("outcome", t.outcome()), slog.String("by", t.By.String())}
	if t.err != nil {
		attrs = append(attrs, slog.Any("error", t.err))
	}
	for i := range t.Each {
		d := &t.Each[i]
		if d.Limit == nil {
			continue
		}
		state := []any{"limit", d.Limit.Terms(), "key", loggable(s.shownKey(d.Key)), "allowed", d.Allowed, "remaining", d.Remaining, "used", d.Used()}
		if d.Held > 0 {
			state = append(state, "held", d.Held)
		}
		if !d.Allowed {
			state = append(state, "retry_after", loggedWait(d.RetryAfter))
		}
		attrs = append(attrs, slog.Group(t.Rules[i].Name+"."+strconv.Itoa(i), state...))
	}
	s.log.LogAttrs(ctx, slog.LevelDebug, "decided", attrs...)
}
