package adminapi

import "time"

// PreviewRequest asks which requests of the last minutes rules would have refused.
type PreviewRequest struct {
	Text string `json:"text"` // of the rules, as in PushRequest
}

// Preview compares rules with those in force, on requests that this instance has recorded.
// Both start with empty counts, so the answers differ from the real decisions. Responses of upstreams are not
// recorded, so on_status counts nothing.
type Preview struct {
	From     time.Time `json:"from"` // of the first request; the present, if there was none
	Requests int64     `json:"requests"`
	// Share: the requests of one in Share clients were recorded. 1: all. A limit whose key many clients share
	// then sees only that share of them.
	Share int64 `json:"share"`
	// Missing has the data that the new rules read and that was not recorded, such as
	// request.headers["x-user"]: it is missing in every request here. "holds" means how long requests hold
	// units, if rules of either set have held limits: in_flight then refuses nothing, and budgets are charged
	// estimates.
	Missing []string `json:"missing"`
	// Partial means that the preview ended before all requests were tried, because that took too long or
	// there were too many keys.
	Partial bool `json:"partial"`

	Now    PreviewCounts `json:"now"`    // under the rules in force
	Then   PreviewCounts `json:"then"`   // under the rules of the request
	Rules  []PreviewRule `json:"rules"`  // of both
	Sample []PreviewCase `json:"sample"` // requests that are decided differently, at most 20
}

// PreviewCounts are numbers of requests.
type PreviewCounts struct {
	Allowed int64 `json:"allowed"`
	Refused int64 `json:"refused"`
}

// PreviewRule is how many requests a rule refused; for a rule in shadow mode, how many it would have refused,
// which PreviewCounts does not include.
type PreviewRule struct {
	Name string `json:"name"`
	Now  int64  `json:"now"`
	Then int64  `json:"then"`
	// ShadowNow and ShadowThen say under which of the two the rule is in shadow mode.
	ShadowNow  bool `json:"shadow_now,omitempty"`
	ShadowThen bool `json:"shadow_then,omitempty"`
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
