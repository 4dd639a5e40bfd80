package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/control"
	"github.com/stintdev/stint/server/internal/reports"
	"github.com/stintdev/stint/server/rules"
)

// Audit records operators' changes: in the log of the instance that was called, and in the fleet's Trail. It
// may be used from many goroutines at once.
type Audit struct {
	Log *slog.Logger
	// Dropped is called for each line that Log drops.
	Dropped func()
	Trail   *Trail
	// Shown returns how a key is shown: as it is, or hashed.
	Shown func(key string) string
}

// change records a change: who made it, the action, its subject, and the state before and after. alone is the
// reason if it is in force at this instance alone, else nil.
func (a *Audit) change(c *call, action, what, reason string, before, after any, alone *control.AloneError) {
	e := adminapi.AuditEntry{Who: c.who.Name, From: c.RemoteAddr, Action: action, What: clip(what), Reason: reason, Before: a.compact(before), After: a.compact(after), Decision: c.decision}
	args := []any{"who", e.Who, "from", e.From, "action", action, "what", e.What, "reason", reason, "before", e.Before, "after", e.After}
	if c.decision != "" {
		args = append(args, "decision", c.decision)
	}
	if alone != nil {
		args = append(args, "pending", alone)
		e.Pending = alone.Text()
	}
	a.line(slog.LevelInfo, "audit", args...)
	a.Trail.add(e)
}

// about is the subject of a change: a key under a rule, as shown, or a network.
func (a *Audit) about(rule string, key rules.Key, network string) string {
	switch {
	case network != "":
		return "network " + network
	case key == "":
		return "rule " + rule
	}
	shown := a.Shown(string(key))
	if shown == string(key) {
		shown = key.String()
	}
	return "rule " + rule + ", key " + shown
}

// Merged records the result of a change that was made while the store was down. text is the log line, such as
// "audit: merged".
func (a *Audit) Merged(level slog.Level, text string, c *control.Change, more ...any) {
	a.line(level, text, append([]any{"who", c.Who, "action", c.Action, "reason", c.Reason, "made", c.At}, more...)...)
	a.Trail.add(adminapi.AuditEntry{
		Who: c.Who, Action: c.Action + ", " + strings.TrimPrefix(text, "audit: "), Reason: c.Reason, Pending: errorIn(more),
	})
}

// unknown records a change that the store may or may not have made.
func (a *Audit) unknown(c *call, action, reason string, err error) {
	a.line(slog.LevelWarn, "audit: perhaps changed", "who", c.who.Name, "from", c.RemoteAddr, "action", action, "reason", reason, "error", err)
	a.Trail.add(adminapi.AuditEntry{
		Who: c.who.Name, From: c.RemoteAddr, Action: action, Reason: reason, Decision: c.decision,
		Pending: "perhaps changed: " + err.Error(),
	})
}

// line writes to the log like a Logger, and counts lost lines: a Logger does not return the error.
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

// compact is v as JSON, with keys as shown.
func (a *Audit) compact(v any) string {
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
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var members any
	if err := decoder.Decode(&members); err != nil || !a.showKeys(members) {
		return string(text)
	}
	if text, err = json.Marshal(members); err != nil {
		return err.Error()
	}
	return string(text)
}

// showKeys replaces the members key in decoded JSON by their shown form, and reports whether any changed.
func (a *Audit) showKeys(v any) (changed bool) {
	switch v := v.(type) {
	case []any:
		for _, element := range v {
			changed = a.showKeys(element) || changed
		}
	case map[string]any:
		for name, member := range v {
			if key, ok := keyIn(name, member); !ok {
				changed = a.showKeys(member) || changed
			} else if shown := a.Shown(key); shown != key {
				v[name], changed = shown, true
			}
		}
	}
	return changed
}

// keyIn returns the key in a member of decoded JSON, if it has one.
func keyIn(name string, member any) (string, bool) {
	if name != "key" {
		return "", false
	}
	var key rules.Key
	text, err := json.Marshal(member)
	if err == nil {
		err = json.Unmarshal(text, &key)
	}
	return string(key), err == nil
}

func (a *API) showAudit(c *call) (int, any, error) {
	limit, err := c.number("limit", 50, reports.MaxParts)
	if err != nil {
		return 0, nil, err
	}
	entries, err := a.Audit.Trail.last(c.Context(), limit)
	if err != nil {
		return 0, nil, unavailable(err)
	}
	return http.StatusOK, adminapi.AuditLog{Entries: entries}, nil
}
