package adminapi

import (
	"time"

	"github.com/stintdev/stint/server/rules"
)

// Status is the state of an instance.
type Status struct {
	Program  string          `json:"program"` // name and version
	Started  time.Time       `json:"started"`
	Rules    RulesStatus     `json:"rules"`
	Controls ControlsStatus  `json:"controls"`
	Store    StoreStatus     `json:"store"`
	Memory   MemoryStatus    `json:"memory"`
	Findings []rules.Finding `json:"findings"`
}

// RulesStatus describes the rules that decide.
type RulesStatus struct {
	Source  string    `json:"source"` // as in Rules
	Version string    `json:"version"`
	Number  int64     `json:"number"` // as in Rules
	Count   int       `json:"count"`
	Enabled bool      `json:"enabled"` // false: every request passes
	Taken   time.Time `json:"taken"`
	// Refused are the rules last refused; nil: rules were taken since.
	Refused *RefusedRules `json:"refused,omitempty"`
	Ordered *Order        `json:"ordered,omitempty"` // as in Source
}

// RefusedRules says when rules were refused, and why.
type RefusedRules struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// ControlsStatus describes the changes made at run time.
type ControlsStatus struct {
	Number   int64            `json:"number"` // of the version in force; 0: nothing was changed
	Problems []ControlProblem `json:"problems"`
	// Source is "store"; until the store was first read after the start, it is "state_dir", or "nowhere" if
	// nothing was kept.
	Source string `json:"source"`
	// Read is when the content of state_dir was read from the store; nil: Source is another.
	Read *time.Time `json:"read,omitempty"`
	// StateError says why nothing can be kept in state_dir; empty: it works.
	StateError string `json:"state_error,omitempty"`
	// Pending are the changes that are in force at this instance alone, the oldest first.
	Pending []PendingChange `json:"pending"`
}

// ControlProblem is an entry without effect: ID is the entry's, or the name of a rule
// whose mode was set.
type ControlProblem struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// PendingChange is a change that waits for the store.
type PendingChange struct {
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	Action string    `json:"action"`
	Reason string    `json:"reason,omitempty"`
}

// StoreStatus is about the store.
type StoreStatus struct {
	Kind   string `json:"kind"` // "memory", or the scheme of the address, such as "redis"
	OK     bool   `json:"ok"`   // it answers
	Shared bool   `json:"shared"`
	Error  string `json:"error,omitempty"` // why it does not answer
	// Down is for how many seconds the store, or a part of it, has been down; 0: it decides.
	Down int64 `json:"down_s,omitempty"`
	// Breaker and Instances belong to the fallback: its breaker's state, and how many instances share the
	// limits without the store. Zero for a store in memory.
	Breaker   string `json:"breaker,omitempty"`
	Instances int64  `json:"instances,omitempty"`
	// Decides is "store", or "on_store_error" if each rule's on_store_error decides.
	Decides string `json:"decides"`
	// Listening is whether other instances can make this one forget a refusal; while they cannot, refusals
	// are not remembered. Nil: they are never remembered.
	Listening *bool  `json:"listening,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// ClockAhead is how far this machine's clock is ahead of the store's, negative if behind; nil: the
	// store's clock was not read.
	ClockAhead *int64 `json:"clock_ahead_us,omitempty"`
}

// ClockApart is the difference, either way, between the clocks of an instance and of its store from which the
// instance logs a warning. A reader of StoreStatus.ClockAhead should warn, too.
const ClockApart = 5 * time.Second

// MemoryStatus is the most memory that an instance takes, by its bounds.
type MemoryStatus struct {
	Bytes int64        `json:"bytes"` // for which the bounds were made
	From  string       `json:"from"`  // "setting", "cgroup", "machine" or "unknown"
	Sum   int64        `json:"sum"`   // of the parts, in bytes
	Parts []MemoryPart `json:"parts"`
}

// MemoryPart is one kind of things in memory.
type MemoryPart struct {
	Name  string `json:"name"`
	Most  int64  `json:"most"`  // how many
	Bytes int64  `json:"bytes"` // that Most of them take
}

// Settings are the settings of an instance.
type Settings struct {
	Settings []Setting `json:"settings"`
}

// Setting is a setting that is in force.
type Setting struct {
	// Path is where a file has it, below "server": routes[0].upstream.
	Path string `json:"path"`
	// Value is as a file has it, or in words. Of a possible secret, only the place it leads to is shown.
	Value string `json:"value"`
	// From is where it was given: file:line:column, an environment variable or a flag, or "the program" if
	// the program set it. Empty: it is the default.
	From string `json:"from,omitempty"`
}
