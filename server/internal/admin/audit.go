package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/stintdev/stint/server/internal/control"
)

// audit leaves a line about a change: who made it, what it was, and how it was
// before and after. alone is why it is in force at this instance alone, if it is.
func (s *Server) audit(c *call, action, reason string, before, after any, alone *control.AloneError) {
	args := []any{"who", c.who.Name, "from", c.RemoteAddr, "action", action, "reason", reason,
		"before", compact(before), "after", compact(after)}
	if alone != nil {
		args = append(args, "pending", alone)
	}
	s.auditLine(slog.LevelInfo, "audit", args...)
}

// auditMerged leaves a line about a change that was made while the store was away:
// what became of it.
func (s *Server) auditMerged(text string, c *control.Change, more ...any) {
	s.auditLine(slog.LevelInfo, text, append([]any{"who", c.Who, "action", c.Action, "reason", c.Reason, "made", c.At}, more...)...)
}

// auditUnknown leaves a line about a change of which the store did not say whether
// it was made.
func (s *Server) auditUnknown(c *call, action, reason string, err error) {
	s.auditLine(slog.LevelWarn, "audit: perhaps changed", "who", c.who.Name, "from", c.RemoteAddr, "action", action, "reason", reason, "error", err)
}

// auditLine writes to the log as a Logger does, but for the error, which a Logger
// does not return: a line that is lost is counted.
func (s *Server) auditLine(level slog.Level, text string, args ...any) {
	ctx, h := context.Background(), s.log.Handler()
	if !h.Enabled(ctx, level) {
		return
	}
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.Add(args...)
	if err := h.Handle(ctx, r); err != nil {
		s.metrics.auditDropped.Inc()
	}
}

// compact is v as JSON for the log.
func compact(v any) string {
	if v == nil {
		return ""
	}
	text, err := json.Marshal(v)
	switch {
	case err != nil:
		return err.Error()
	case string(text) == "null": // an empty list
		return ""
	}
	return string(text)
}
