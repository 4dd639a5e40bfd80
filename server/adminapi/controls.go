package adminapi

import "github.com/stintdev/stint/server/rules"

// Switches are the kill switch and the modes of the rules: in the file, as set at run time (nil: not set),
// and in force now.
type Switches struct {
	Enabled EnabledSwitch `json:"enabled"`
	Rules   []RuleSwitch  `json:"rules"`
	Reach
}

// EnabledSwitch is the kill switch: false lets every request pass.
type EnabledSwitch struct {
	File bool  `json:"file"`
	Set  *bool `json:"set"`
	Now  bool  `json:"now"`
}

// RuleSwitch is the mode of a rule: "enforce", "shadow" or "off".
type RuleSwitch struct {
	Name string  `json:"name"`
	File string  `json:"file"`
	Set  *string `json:"set"`
	Now  string  `json:"now"`
}

// SwitchesRequest sets switches. Members left out stay as they are.
type SwitchesRequest struct {
	Enabled Choice[bool] `json:"enabled,omitzero"`
	// Rules are modes by rule name; nil: the file's mode.
	Rules  map[string]*rules.Mode `json:"rules,omitempty"`
	Reason string                 `json:"reason,omitempty"`
}

// Term is part of a request that adds an entry: for how long, and why.
type Term struct {
	For    string `json:"for,omitempty"`   // a duration such as 30m or 7d
	Until  string `json:"until,omitempty"` // RFC 3339; without For and Until there is no end
	Reason string `json:"reason,omitempty"`
}

// Override is an override that is in force.
type Override struct {
	rules.Override
	Effect
}

// AddedOverride is an override just added, and those that it replaces.
type AddedOverride struct {
	Override
	Replaced []Override `json:"replaced,omitempty"`
}

// Overrides are the overrides added at run time.
type Overrides struct {
	Overrides []Override `json:"overrides"`
}

// OverrideRequest gives a key, or all keys of a tier, other limits under a rule. It replaces an override of
// the same rule and the same key or tier.
type OverrideRequest struct {
	Rule string    `json:"rule"`
	Key  rules.Key `json:"key,omitempty"` // one of Key and Tier
	Tier string    `json:"tier,omitempty"`
	// Times multiplies the rule's limits, or Limits replace them: one of the two.
	Times  int64    `json:"times,omitempty"`
	Limits []string `json:"limits,omitempty"`
	Term
}

// Listed is an entry of the safelist or of the blocklist.
type Listed struct {
	rules.Listed
	Effect
}

// List has the entries that were added to a list at run time.
type List struct {
	Entries []Listed `json:"entries"`
}

// ListRequest adds a network or an expression to a list: one of the two.
type ListRequest struct {
	Network string `json:"network,omitempty"`
	Match   string `json:"match,omitempty"`
	Term
}

// Ban is a manual ban.
type Ban struct {
	rules.Ban
	Effect
}

// PenaltyBan is a ban that the penalty of a rule imposed.
type PenaltyBan struct {
	Rule   string    `json:"rule"`
	Key    rules.Key `json:"key"`
	Hashed bool      `json:"hashed"` // Key is the hash of a long key
	Left   int64     `json:"left_us"`
	Bans   int64     `json:"bans"` // in a row
	// For is the total length of the ban, by the present penalty; 0: the rule has no penalty any more.
	For int64 `json:"for_us,omitempty"`
}

// Bans are the running bans.
type Bans struct {
	ByHand    []Ban        `json:"by_hand"`
	ByPenalty []PenaltyBan `json:"by_penalty"`
	Truncated bool         `json:"truncated"` // there are more
	CountedBy
}

// BanTarget is a key under a rule, or a network alone.
type BanTarget struct {
	Rule    string    `json:"rule,omitempty"`
	Key     rules.Key `json:"key,omitempty"`
	Network string    `json:"network,omitempty"`
}

// BanRequest bans a key or a network.
type BanRequest struct {
	BanTarget
	Term
}

// LiftRequest lifts every ban of a key or of a network.
type LiftRequest struct {
	BanTarget
	Reason string `json:"reason,omitempty"`
}

// Lifted are the bans that were lifted. Both lists are empty if there were only
// violations; these are forgotten.
type Lifted struct {
	ByHand    []Ban        `json:"by_hand"`
	ByPenalty []PenaltyBan `json:"by_penalty"`
	Reach
}
