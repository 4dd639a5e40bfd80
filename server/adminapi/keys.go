package adminapi

import (
	"time"

	"github.com/stintdev/stint/server/rules"
)

// KeyRequest shows or resets a key under a rule. Tier is the tier whose counts are shown; empty: the counts
// of requests without a tier, and then of every tier under which the key has used something.
type KeyRequest struct {
	Rule   string    `json:"rule"`
	Key    rules.Key `json:"key"`
	Tier   string    `json:"tier,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// RefundRequest refunds Cost units, at least 1, to a key.
type RefundRequest struct {
	KeyRequest
	Cost int64 `json:"cost"`
}

// ReleaseRequest drops holds of a key under a rule: the one with that identity, or all.
type ReleaseRequest struct {
	KeyRequest
	Hold string `json:"hold,omitempty"` // 24 hexadecimal digits
	All  bool   `json:"all,omitempty"`
}

// Released is the state of a key after holds were dropped.
type Released struct {
	Released int64 `json:"released"` // the number of requests that held
	KeyState
}

// LimitState is the state of a key under a limit.
type LimitState struct {
	Tier       string `json:"tier,omitempty"` // whose count it is; empty: as asked for
	Limit      string `json:"limit"`          // as in a file
	Capacity   int64  `json:"capacity"`
	Used       int64  `json:"used"`
	Held       int64  `json:"held,omitempty"` // by requests in flight
	Remaining  int64  `json:"remaining"`
	ResetAfter int64  `json:"reset_after_us"`
	// Windows are the beginnings of the present and the next window of a calendar limit, and the end of the
	// next, in the limit's zone. nil: not a calendar limit.
	Windows []time.Time `json:"windows,omitempty"`
}

// KeyLimit is a LimitState with the store's record of it. Its pointers are nil if nothing is in use, or the
// store cannot tell.
type KeyLimit struct {
	LimitState
	ChargedAgo *int64 `json:"charged_ago_us,omitempty"`
	ExpiresIn  *int64 `json:"expires_in_us,omitempty"`
	Holds      []Hold `json:"holds,omitempty"` // the oldest first
}

// Hold has the units that one request holds under a limit.
type Hold struct {
	Hold  string `json:"hold"` // the identity of the request's holds
	Units int64  `json:"units"`
	Age   int64  `json:"age_us"`  // since the request began, by the clock of its instance
	Left  int64  `json:"left_us"` // how long it still counts unless renewed
}

// PenaltyState is the state of a key under a penalty.
type PenaltyState struct {
	Violations int64 `json:"violations"`
	Bans       int64 `json:"bans"`        // in a row
	BanLeft    int64 `json:"ban_left_us"` // 0: not banned
}

// KeyState is the state of a key under a rule.
type KeyState struct {
	Rule     string        `json:"rule"`
	Key      rules.Key     `json:"key"`
	Mode     string        `json:"mode"`
	Tier     string        `json:"tier,omitempty"`
	Limits   []KeyLimit    `json:"limits"`
	Override *Override     `json:"override,omitempty"` // nil: none
	Penalty  *PenaltyState `json:"penalty,omitempty"`  // nil: the rule has no penalty
	Ban      *Ban          `json:"ban,omitempty"`      // a manual ban; nil: none
	CountedBy
}

// ExplainRequest is a request to explain, as the check API takes it.
type ExplainRequest struct {
	Operation string         `json:"operation,omitempty"`
	Cost      *int64         `json:"cost,omitempty"` // nil: 1
	Attrs     map[string]any `json:"attrs,omitempty"`
	Claims    map[string]any `json:"claims,omitempty"`
	Client    string         `json:"client,omitempty"`  // IP address
	Request   *HTTPRequest   `json:"request,omitempty"` // nil: the request is not HTTP
	// Domain and Descriptors are for a call of Envoy's rate limit service; Operation and Attrs must then be
	// empty. Empty: it is not such a call.
	Domain      string       `json:"domain,omitempty"`
	Descriptors []Descriptor `json:"descriptors,omitempty"`
}

// Descriptor is one descriptor of a call of Envoy's rate limit service.
type Descriptor struct {
	Entries    []DescriptorEntry `json:"entries"`
	HitsAddend *int64            `json:"hits_addend,omitempty"`      // nil: ExplainRequest.Cost
	GivesBack  bool              `json:"is_negative_hits,omitempty"` // what HitsAddend says
	Limit      *DescriptorLimit  `json:"limit,omitempty"`            // nil: the rules' limit
}

// DescriptorEntry is a key and a value of a Descriptor.
type DescriptorEntry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// DescriptorLimit is a limit that replaces the rules' limit.
type DescriptorLimit struct {
	Name            string `json:"name,omitempty"`
	RequestsPerUnit int64  `json:"requests_per_unit"`
	Unit            string `json:"unit"` // second, minute, hour, day, week, month or year
}

// HTTPRequest is the part of an ExplainRequest that is HTTP.
type HTTPRequest struct {
	Method  string              `json:"method"`
	Path    string              `json:"path"` // with the query
	Host    string              `json:"host,omitempty"`
	Route   string              `json:"route,omitempty"` // empty: the gateway's that leads there
	Headers map[string][]string `json:"headers,omitempty"`
	Query   map[string]string   `json:"query,omitempty"` // replaces the query of Path
}

// Explanation is the decision that a request would get, and why.
type Explanation struct {
	// Outcome is "allowed", "limited", "warned", "banned" or "blocked"; "undecided" if the answer would be
	// 503; "unknown" if no applying rule refuses, but rules that lack Needs might.
	Outcome string `json:"outcome"`
	// Needs are variables that this request lacks and a real one would have, such as client.ip and
	// request.path, read by rules that do not apply without them.
	Needs []string `json:"needs,omitempty"`
	// Rule is the rule that decides; empty: none does.
	Rule string `json:"rule,omitempty"`
	// Words is the explanation as lines of text, with everything else in them.
	Words []string `json:"words"`
	// List is the list that decides, "safelist" or "blocklist", and Entry its matching entry; empty: no list
	// does.
	List  string          `json:"list,omitempty"`
	Entry string          `json:"entry,omitempty"`
	Rules []ExplainedRule `json:"rules"`
	CountedBy
}

// ExplainedRule is one rule's treatment of the request. The fields after Why are zero if the rule does not
// apply.
type ExplainedRule struct {
	Name     string           `json:"name"`
	Mode     string           `json:"mode"`
	Applies  bool             `json:"applies"`
	Why      string           `json:"why"`
	Key      rules.Key        `json:"key,omitempty"`
	Cost     int64            `json:"cost"`
	Tier     string           `json:"tier,omitempty"`
	Override *Override        `json:"override,omitempty"`
	Limits   []ExplainedLimit `json:"limits,omitempty"`
	BanLeft  int64            `json:"ban_left_us,omitempty"`
}

// ExplainedLimit is a limit of a rule, and whether it allows the request.
type ExplainedLimit struct {
	LimitState
	// Cost is how many units the request takes or holds under it.
	Cost       int64 `json:"cost"`
	Allowed    bool  `json:"allowed"`
	Busy       bool  `json:"busy,omitempty"` // it refuses because of held units
	RetryAfter int64 `json:"retry_after_us"`
}
