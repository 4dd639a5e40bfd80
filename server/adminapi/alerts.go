package adminapi

import (
	"time"

	"github.com/stintdev/stint/server/rules"
)

// Alerts are all alerts of the rules, and their present state.
type Alerts struct {
	Alerts []Alert `json:"alerts"`
	// Evaluator is the ID of the instance that evaluates them for the fleet; empty: none
	// does.
	Evaluator string `json:"evaluator,omitempty"`
}

// Alert is an alert of the rules file.
type Alert struct {
	Name     string `json:"name"`
	When     string `json:"when"`
	For      string `json:"for,omitempty"`
	Severity string `json:"severity"`
	// State is "ok", "pending", "firing" or "unknown".
	State string `json:"state"`
	// Unknown means that When cannot be computed now. A firing alert keeps firing meanwhile; other alerts
	// have the State "unknown".
	Unknown bool   `json:"unknown,omitempty"`
	Message string `json:"message,omitempty"` // the text of the rules file for people
	// Value is the value of Measured, the left side of the first comparison of When.
	Value    *float64   `json:"value,omitempty"`
	Measured string     `json:"measured,omitempty"`
	Since    *time.Time `json:"since,omitempty"` // of the state; nil: not known
	// Silence is the ID of the silence that mutes it; empty: none.
	Silence string `json:"silence,omitempty"`
	// Keys are the keys that were reported last, if the alert is about keys; at most 100,
	// the newest first.
	Keys  []AlertKey `json:"keys,omitempty"`
	Error string     `json:"error,omitempty"` // why webhooks did not accept the last message
	// Past are the last firings, at most 6, the newest first.
	Past []Firing `json:"past,omitempty"`
	// Delivered says how many webhooks have accepted a message about the last firing; nil: none.
	Delivered *Delivered `json:"delivered,omitempty"`
}

// Firing is from when an alert fired until it no longer did.
type Firing struct {
	Fired    time.Time  `json:"fired"`
	Resolved *time.Time `json:"resolved,omitempty"` // nil: it fires
}

// Delivered is how many of the webhooks accepted a message, and when the last of them did.
type Delivered struct {
	At time.Time `json:"at"`
	By int       `json:"by"`
	Of int       `json:"of"`
}

// AlertKey is a key that was reported.
type AlertKey struct {
	Rule string    `json:"rule"`
	Key  rules.Key `json:"key"`
	At   time.Time `json:"at"`
	// Usage is the used share of the limit: 0.8 is 80 %.
	Usage float64 `json:"usage"`
}

// SilenceRequest mutes an alert, or all alerts: no messages are sent until its end. It must have an end.
type SilenceRequest struct {
	Alert string `json:"alert,omitempty"` // empty: all
	Term
}

// Silence is a silence in force.
type Silence struct {
	ID     string    `json:"id"`
	Alert  string    `json:"alert,omitempty"`
	Until  time.Time `json:"until"`
	Author string    `json:"author"`
	Reason string    `json:"reason,omitempty"`
	Effect
}

// Silences are the silences in force.
type Silences struct {
	Silences []Silence `json:"silences"`
}

// AlertTest has the webhooks' answers to a test message.
type AlertTest struct {
	Webhooks []WebhookTest `json:"webhooks"`
}

// WebhookTest is a webhook's answer.
type WebhookTest struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // why the message was not accepted; empty: it was
}
