package admin

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/stintdev/stint/server/internal/control"
)

// Audit logs changes that operators make. It may be used from many goroutines at once.
type Audit struct {
	Log *slog.Logger
	// Dropped is called for each line that Log drops.
	Dropped func()
}

// change logs a change: who made it, what it was, and the state before and after. alone is the
// reason if it is in force at this instance alone, else nil.
func (a *Audit) change(c *call, action, reason string, before, after any, alone *control.AloneError) {
	args := []any{"who", c.who.Name, "from", c.RemoteAddr, "action", action, "reason", reason,
		"before", compact(before), "after", compact(after)}
	if alone != nil {
		args = append(args, "pending", alone)
	}
	a.line(slog.LevelInfo, "audit", args...)
}

// Merged logs the result of a change that was made while the store was away.
func (a *Audit) Merged(text string, c *control.Change, more ...any) {
	a.line(slog.LevelInfo, text, append([]any{"who", c.Who, "action", c.Action, "reason", c.Reason, "made", c.At}, more...)...)
}

// unknown logs a change that the store may or may not have made.
func (a *Audit) unknown(c *call, action, reason string, err error) {
	a.line(slog.LevelWarn, "audit: perhaps changed", "who", c.who.Name, "from", c.RemoteAddr, "action", action, "reason", reason, "error", err)
}

// line writes to the log as a Logger does, and counts lines that are lost: a Logger does not
// return the error.
func (a *Audit) line(level slog.Level, text string, args ...any) {
	ctx, h := context.Background(), a.Log.Handler()
	if !h.Enabled(ctx, level) {
		return
	}
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.Add(args...)
	if err := h.Handle(ctx, r); err != nil {
		a.Dropped()
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
