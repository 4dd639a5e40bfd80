package adminapi

import "time"

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
	// request.headers["x-user"]: it is missing in every request here. "holds" is how long requests
	// hold units, if rules of either set have held limits: in_flight then refuses nothing, and a
	// budget is charged estimates.
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
// have refused, which are not among those of PreviewCounts.
type PreviewRule struct {
	Name string `json:"name"`
	Now  int64  `json:"now"`
	Then int64  `json:"then"`
	// ShadowNow and ShadowThen say in which of the two the rule is in shadow mode.
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
