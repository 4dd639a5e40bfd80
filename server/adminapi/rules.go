package adminapi

import (
	"time"

	"github.com/stintdev/stint/server/rules"
)

// Rules are the rules that decide at this instance.
type Rules struct {
	// Source is "file", or "fleet" if the rules were pushed.
	Source  string `json:"source"`
	Version string `json:"version"`
	Number  int64  `json:"number"` // of the fleet's version; 0: the rules are the file's
	Newest  int64  `json:"newest"` // version that this instance has seen; 0: none
	// Pushable means that this instance takes rules that are pushed.
	Pushable bool   `json:"pushable"`
	Rules    []Rule `json:"rules"`
}

// Rule is one of Rules, with its expressions and limits as in a file.
type Rule struct {
	Name  string `json:"name"`
	Mode  string `json:"mode"`
	Match string `json:"match,omitempty"`
	Key   string `json:"key"`
	Cost  string `json:"cost,omitempty"`
	// CostAfter, Unit and Tokens are as the file has them; see docs/rules.md.
	CostAfter string   `json:"cost_after,omitempty"`
	Unit      string   `json:"unit,omitempty"`
	Tokens    string   `json:"tokens,omitempty"`
	Holds     bool     `json:"holds,omitempty"` // a limit of it or of its tiers is held
	Limits    []string `json:"limits"`
	// Settings are the other fields of the rule in its file.
	Settings []rules.Setting `json:"settings,omitempty"`
	// Descriptor means that the rule is from a file of Envoy's form, which cannot be pushed.
	Descriptor bool `json:"descriptor,omitempty"`
}

// CheckRequest asks for the errors in rules, without pushing them.
type CheckRequest struct {
	Text string `json:"text"`
}

// Checked is the answer to a CheckRequest if the rules could be pushed.
type Checked struct {
	Version  string          `json:"version"`
	Count    int             `json:"count"`
	Findings []rules.Finding `json:"findings"`
}

// PushRequest makes rules the fleet's next version.
type PushRequest struct {
	Text string `json:"text"`
	// After is the number of the version to replace, 0 if there is none. If another version
	// is the newest, nothing changes.
	After int64  `json:"after"`
	Note  string `json:"note,omitempty"`
}

// RollbackRequest makes the rules of version To the fleet's next version, in place of
// version After.
type RollbackRequest struct {
	To    int64  `json:"to"`
	After int64  `json:"after"`
	Note  string `json:"note,omitempty"`
}

// Version is a version of the fleet's rules.
type Version struct {
	Number  int64     `json:"number"`  // from 1
	Version string    `json:"version"` // 12 digits made of the rules
	Author  string    `json:"author"`  // who pushed it; empty: unknown
	Note    string    `json:"note,omitempty"`
	At      time.Time `json:"at"`
	Text    string    `json:"text,omitempty"` // only where one version is asked for
}

// Versions are the versions that the fleet keeps, the newest first.
type Versions struct {
	Versions []Version `json:"versions"`
}

// Source says where this instance takes its rules from.
type Source struct {
	Source  string `json:"source"` // as in Rules
	Version string `json:"version"`
	Number  int64  `json:"number"` // as in Rules
	// Ordered is the order to take the file's rules although the fleet has rules; nil: none.
	Ordered *Order `json:"ordered,omitempty"`
}

// SourceRequest makes this instance take its rules from "file" or "fleet".
type SourceRequest struct {
	Source string `json:"source"`
	Reason string `json:"reason,omitempty"`
}

// Order says who ordered that this instance take its file's rules.
type Order struct {
	At     time.Time `json:"at"`
	Who    string    `json:"who"`
	Reason string    `json:"reason,omitempty"`
}
