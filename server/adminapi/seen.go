package adminapi

import (
	"time"

	"github.com/stintdev/stint/rules"
)

// Rates are requests a second, by outcome: "allowed", "limited", "warned", "banned", "safe",
// "blocked", "unmatched", "overloaded", "undecided". Outcomes that did not occur are left out.
type Rates map[string]float64

// Quantiles are of durations, in µs. 0: there were none.
type Quantiles struct {
	P50 int64 `json:"p50_us"`
	P99 int64 `json:"p99_us"`
}

// Live is how things are now. GET /v1/live is a stream of server-sent events, one each
// second, with a Live as data. Rates are of the last second for one instance, and of the
// last few seconds for a fleet.
type Live struct {
	At       time.Time `json:"at"`
	Outcomes Rates     `json:"outcomes"`
	Decide   Quantiles `json:"decide"` // of deciding a request
	Store    Quantiles `json:"store"`  // of calls of the store
	// Calls and Failures are calls of the store a second, and those of them that failed.
	// Fallback is decisions a second by a rule's on_store_error.
	Calls    float64 `json:"calls"`
	Failures float64 `json:"failures"`
	Fallback float64 `json:"fallback"`
	// Decides, Breaker and Instances are as in StoreStatus.
	Decides   string `json:"decides"`
	Breaker   string `json:"breaker,omitempty"`
	Instances int64  `json:"instances"`
	Bans      int64  `json:"bans"`   // by penalties and by hand
	Firing    int64  `json:"firing"` // alerts
	// Rules are the busiest, at most 12.
	Rules []LiveRule `json:"rules"`
	// Rule is the rule that the query names; nil: it names none, or none in force.
	Rule *RuleRates `json:"rule,omitempty"`
	// Version and Controls are the numbers or names of what is in force. When they change,
	// a page should read the rules and the entries again.
	Version  string `json:"version"`
	Controls int64  `json:"controls"`
}

// LiveRule is how busy a rule is: requests a second that it decided, and of these refused.
// Of a rule in shadow mode, Refused are those that it would have refused, and Decided is 0.
type LiveRule struct {
	Name    string  `json:"name"`
	Decided float64 `json:"decided"`
	Refused float64 `json:"refused"`
}

// RuleRates are the rates of one rule, of the same time as the other numbers.
type RuleRates struct {
	Name string `json:"name"`
	// Outcomes are requests a second: "allowed", "limited", "warned", "banned", and "shadow"
	// for those that the rule would have refused in shadow mode.
	Outcomes Rates `json:"outcomes"`
	// Fallback is decisions a second by its on_store_error, Violations are responses of
	// upstreams a second that counted as violations.
	Fallback   float64 `json:"fallback"`
	Violations float64 `json:"violations"`
}

// Series are the last minutes, in steps, the oldest first. Only steps since the start of the
// instance that answers are there. Its query: rule (empty: all).
type Series struct {
	Rule  string    `json:"rule,omitempty"`
	Until time.Time `json:"until"`  // the end of the last step
	Step  int64     `json:"step_s"` // seconds
	// Outcomes are requests a second, by outcome. A rule has those of RuleRates.
	Outcomes map[string][]float64 `json:"outcomes"`
	P50      []int64              `json:"p50_us"` // of deciding a request; empty for one rule
	P99      []int64              `json:"p99_us"`
}

// Instances are those that share the store and have reported within the last seconds.
type Instances struct {
	Instances []Instance `json:"instances"`
}

// Instance is what an instance has reported of itself.
type Instance struct {
	ID       string    `json:"id"`   // new with each start
	Host     string    `json:"host"` // the name of its machine
	Self     bool      `json:"self"` // it is the one that answers
	Program  string    `json:"program"`
	Started  time.Time `json:"started"`
	Version  string    `json:"version"` // of its rules
	Decides  string    `json:"decides"` // as in StoreStatus
	Breaker  string    `json:"breaker,omitempty"`
	Outcomes Rates     `json:"outcomes"`
	Decide   Quantiles `json:"decide"`
}

// Offenders are the heaviest, the first the worst. The query of GET /v1/offenders:
//
//	of     keys (default), rules, paths or clients
//	by     refusals (default), use (cost that was charged) or violations
//	since  how far back, such as 1h or 7d; default 1h
//	rule   of this rule only (keys alone)
//	limit  how many at most; default 50
type Offenders struct {
	Of    string    `json:"of"`
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	Total int64     `json:"total"` // of all, also those that are not listed
	// Instances is how many instances are counted.
	Instances int64      `json:"instances"`
	Offenders []Offender `json:"offenders"`
}

// Offender is one of them. Its true count is between Count-Error and Count.
type Offender struct {
	Rule   string    `json:"rule,omitempty"` // of keys
	Key    rules.Key `json:"key,omitempty"`  // of keys; hashed under server.privacy: hash
	Name   string    `json:"name,omitempty"` // the rule, path or client, otherwise
	Hashed bool      `json:"hashed,omitempty"`
	Count  int64     `json:"count"`
	Error  int64     `json:"error"`
}

// History is the use of one key, rule, path or client by the hour. The query of
// GET /v1/offenders/history: of, by, rule and key, or name.
type History struct {
	Hours []HistoryHour `json:"hours"` // the oldest first; hours without a count are left out
	// Weekdays are the counts by weekday and hour of UTC, Monday first; each has 24 numbers.
	Weekdays [][]int64 `json:"weekdays"`
}

// HistoryHour is one hour. The true count is between Count-Error and Count.
type HistoryHour struct {
	From  time.Time `json:"from"`
	Count int64     `json:"count"`
	Error int64     `json:"error"`
}

// AuditLog are the last changes in the fleet, the newest first: at most 1,000, of 14 days. The
// query of GET /v1/audit is limit, how many at most; default 50.
type AuditLog struct {
	Entries []AuditEntry `json:"entries"`
}

// AuditEntry is a change. Before and After are JSON, or empty. A text of more than 4 KiB is
// replaced by one that says how long it is; the log of the instance has it whole.
type AuditEntry struct {
	ID     string    `json:"id"`
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	From   string    `json:"from"` // the address; empty: a waiting change was merged
	Action string    `json:"action"`
	Reason string    `json:"reason,omitempty"`
	Before string    `json:"before,omitempty"`
	After  string    `json:"after,omitempty"`
	// Pending says why the change was not in force everywhere at that moment: it waits for the
	// store, nobody knows whether it was made, or it was dropped. Empty: it was.
	Pending string `json:"pending,omitempty"`
	Host    string `json:"host"` // of the instance that was called
}

// PreviewRequest asks what rules would have refused of the requests of the last minutes.
type PreviewRequest struct {
	Text string `json:"text"` // of the rules, as in PushRequest
}

// Preview compares rules with those in force, on requests that this instance has recorded.
// Both started with empty counts, so the answers differ from what really happened. Responses
// of upstreams are not recorded, so on_status counts nothing.
type Preview struct {
	From     time.Time `json:"from"` // of the first request; the present, if there was none
	Requests int64     `json:"requests"`
	// Share is one in so many clients whose requests were recorded. 1: all. A limit whose key
	// many clients share is then seen by only that share of them.
	Share int64 `json:"share"`
	// Missing is what the new rules read and was not recorded, such as
	// request.headers["x-user"]: it is missing in every request here.
	Missing []string `json:"missing"`
	// Partial says that the preview ended before all requests were tried, because that took
	// too long or there were too many keys.
	Partial bool `json:"partial"`

	Now    PreviewCounts `json:"now"`    // under the rules in force
	Then   PreviewCounts `json:"then"`   // under the rules of the request
	Rules  []PreviewRule `json:"rules"`  // of both
	Sample []PreviewCase `json:"sample"` // requests that are decided differently, at most 20
}

// PreviewCounts are requests.
type PreviewCounts struct {
	Allowed int64 `json:"allowed"`
	Refused int64 `json:"refused"`
}

// PreviewRule is how many requests a rule refused; of a rule in shadow mode, how many it would
// have refused.
type PreviewRule struct {
	Name string `json:"name"`
	Now  int64  `json:"now"`
	Then int64  `json:"then"`
}

// PreviewCase is a request that passes under one set of rules and not under the other.
type PreviewCase struct {
	At     time.Time `json:"at"`
	Client string    `json:"client"`
	Method string    `json:"method"`
	Path   string    `json:"path"`
	Now    string    `json:"now"`  // outcome
	Then   string    `json:"then"` // outcome
	Rule   string    `json:"rule"` // that refuses now or then
}

// Alerts are all alerts of the rules, and what they are about now.
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
	// Value is that of the left side of the comparison, if there is one.
	Value *float64   `json:"value,omitempty"`
	Since *time.Time `json:"since,omitempty"` // of the state; nil: not known
	// Silence is the ID of the silence that mutes it; empty: none.
	Silence string `json:"silence,omitempty"`
	// Keys are the keys that the alert was last told of, if it is about keys; at most 100,
	// the newest first.
	Keys  []AlertKey `json:"keys,omitempty"`
	Error string     `json:"error,omitempty"` // why webhooks were not told, if it is to be sent
}

// AlertKey is a key that an alert was told of.
type AlertKey struct {
	Rule string    `json:"rule"`
	Key  rules.Key `json:"key"`
	At   time.Time `json:"at"`
	// Usage is the used share of the limit: 0.8 is 80 %.
	Usage float64 `json:"usage"`
}

// SilenceRequest mutes an alert, or all: no message is sent about it meanwhile. It must have an
// end.
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

// Silences are those in force.
type Silences struct {
	Silences []Silence `json:"silences"`
}

// AlertTest is what the webhooks answered to a message that is a test.
type AlertTest struct {
	Webhooks []WebhookTest `json:"webhooks"`
}

// WebhookTest is what a webhook answered.
type WebhookTest struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // why the message was not accepted; empty: it was
}
