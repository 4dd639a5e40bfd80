package adminapi

import "time"

// Rates are requests a second, by outcome: "allowed", "limited", "warned", "banned", "safe",
// "blocked", "unmatched", "overloaded", "undecided". Outcomes that did not occur are left out.
type Rates map[string]float64

// Quantiles are of durations, in µs. 0: there were none.
type Quantiles struct {
	P50 int64 `json:"p50_us"`
	P99 int64 `json:"p99_us"`
}

// Live is the present state. GET /v1/live is a stream of server-sent events, one each second, with a Live as
// data. Rates are of the last second for one instance, and of the last few seconds for a fleet.
type Live struct {
	At       time.Time `json:"at"`
	Outcomes Rates     `json:"outcomes"`
	Decide   Quantiles `json:"decide"` // of deciding a request
	Store    Quantiles `json:"store"`  // of calls of the store
	// Calls and Failures are calls of the store a second, and how many of them failed. Fallback is decisions
	// a second by a rule's on_store_error.
	Calls    float64 `json:"calls"`
	Failures float64 `json:"failures"`
	Fallback float64 `json:"fallback"`
	// Decides, Breaker, Down and Instances are as in StoreStatus.
	Decides   string `json:"decides"`
	Breaker   string `json:"breaker,omitempty"`
	Down      int64  `json:"down_s,omitempty"`
	Instances int64  `json:"instances"`
	Bans      int64  `json:"bans"` // by penalties, and manual ones
	// Holds is requests in flight that hold units under a rule, once for each such rule. HoldsLost and
	// CostsUnknown are requests a second that held units and ended: with a hold that had run out, so that
	// their cost was not charged, and with a cost that could not be read. Holds of the check API are in none
	// of the three.
	Holds        int64   `json:"holds,omitempty"`
	HoldsLost    float64 `json:"holds_lost,omitempty"`
	CostsUnknown float64 `json:"costs_unknown,omitempty"`
	Firing       int64   `json:"firing"` // alerts that no silence mutes
	// Rules are the busiest, at most 12.
	Rules []LiveRule `json:"rules"`
	// Rule is the rule that the query names; nil: it names none, or none in force.
	Rule *RuleRates `json:"rule,omitempty"`
	// Version and Controls identify the rules and the entries in force. When they change, a page should read
	// these again.
	Version  string `json:"version"`
	Controls int64  `json:"controls"`
}

// LiveRule is how busy a rule is: requests a second that it decided, and how many of these it refused. For a
// rule in shadow mode, Refused are those that it would have refused, and Decided is 0.
type LiveRule struct {
	Name string `json:"name"`
	// Applied are requests a second to which the rule applied, and Decided those that it decided, because it
	// refused them or was the strictest. Both are 0 in shadow mode.
	Applied float64 `json:"applied"`
	Decided float64 `json:"decided"`
	Refused float64 `json:"refused"`
	Holds   int64   `json:"holds,omitempty"` // as in Live
}

// RuleRates are the rates of one rule, of the same time as the other numbers.
type RuleRates struct {
	Name string `json:"name"`
	// Outcomes are requests a second: "allowed", "limited", "warned", "banned"; "shadow" for those that the
	// rule would have refused in shadow mode; "beside" for those to which it applied and that another rule
	// decided.
	Outcomes Rates `json:"outcomes"`
	// Fallback is decisions a second by its on_store_error, Violations is upstream responses a second that
	// counted as violations.
	Fallback   float64 `json:"fallback"`
	Violations float64 `json:"violations"`
	// Holds, HoldsLost and CostsUnknown are as in Live, of this rule.
	Holds        int64   `json:"holds,omitempty"`
	HoldsLost    float64 `json:"holds_lost,omitempty"`
	CostsUnknown float64 `json:"costs_unknown,omitempty"`
}

// Series are the last minutes, in steps, the oldest first. It has only steps since the start of the answering
// instance. Its query: rule (empty: all).
type Series struct {
	Rule  string    `json:"rule,omitempty"`
	Until time.Time `json:"until"`  // the end of the last step
	Step  int64     `json:"step_s"` // seconds
	// Outcomes are requests a second, by outcome. A rule has the outcomes of RuleRates.
	Outcomes map[string][]float64 `json:"outcomes"`
	P50      []int64              `json:"p50_us"` // of deciding a request; empty for one rule
	P99      []int64              `json:"p99_us"`
}

// Instances are the instances that share the store and have reported within the last seconds.
type Instances struct {
	Instances []Instance `json:"instances"`
}

// Instance is an instance's report about itself.
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
