package adminapi

import (
	"time"

	"github.com/stintdev/stint/server/rules"
)

// Offenders are the heaviest, the first the worst. The query of GET /v1/offenders:
//
//	of     keys (default), rules, paths or clients
//	by     refusals (default), use (cost that was charged) or violations
//	since  how far back, such as 1h or 7d; default 1h
//	rule   of this rule only (keys alone)
//	contains  only keys or names that contain this text
//	limit  how many at most; default 50
type Offenders struct {
	Of    string    `json:"of"`
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	Total int64     `json:"total"` // of all, including those not listed
	// Instances is how many instances are counted.
	Instances int64 `json:"instances"`
	// Missing says which part is not counted, and why; empty: nothing is missing.
	Missing   string     `json:"missing,omitempty"`
	Offenders []Offender `json:"offenders"`
}

// Offender is one offender. Its true count is between Count-Error and Count.
type Offender struct {
	Rule   string    `json:"rule,omitempty"` // of keys
	Key    rules.Key `json:"key,omitempty"`  // of keys; hashed under server.privacy: hash
	Name   string    `json:"name,omitempty"` // the rule, path or client, otherwise
	Hashed bool      `json:"hashed,omitempty"`
	Count  int64     `json:"count"`
	Error  int64     `json:"error"`
}

// History is the use of one key, rule, path or client by the hour. The query of
// GET /v1/offenders/history: of, by, rule and key, or name. With of=rules and without a name, it is the use
// of all rules together.
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
