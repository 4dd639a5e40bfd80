package adminapi

import (
	"time"

	"github.com/stintdev/stint/server/rules"
)

// KeyRequest is about a key under a rule, to show it or to reset it. Tier is the tier
// whose counts are shown; empty: those of requests of no tier, and then of every tier
// under which the key has used something.
type KeyRequest struct {
	Rule   string    `json:"rule"`
	Key    rules.Key `json:"key"`
	Tier   string    `json:"tier,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// RefundRequest gives Cost units back to a key, at least 1.
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
	Released int64 `json:"released"` // requests whose holds they were
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
	// Windows are when the present window of a limit of the calendar began, when the next one
	// begins and when that ends, in the zone of the limit. nil: the limit is not one of the
	// calendar.
	Windows []time.Time `json:"windows,omitempty"`
}

// KeyLimit is a LimitState with what the store keeps of it. Its pointers are nil where
// nothing is in use, and where the store cannot tell.
type KeyLimit struct {
	LimitState
	ChargedAgo *int64 `json:"charged_ago_us,omitempty"`
	ExpiresIn  *int64 `json:"expires_in_us,omitempty"`
	Holds      []Hold `json:"holds,omitempty"` // the oldest first
}

// Hold is what one request holds under a limit.
type Hold struct {
	Hold  string `json:"hold"` // the identity of the request's holds
	Units int64  `json:"units"`
	Age   int64  `json:"age_us"`  // since the request began, by the clock of its instance
	Left  int64  `json:"left_us"` // that it still counts if nobody renews it
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
	Ban      *Ban          `json:"ban,omitempty"`      // by hand; nil: none
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
	// Domain and Descriptors are those of a call of Envoy's rate limit service. Empty: it is none.
	// Operation and Attrs must be empty otherwise.
	Domain      string       `json:"domain,omitempty"`
	Descriptors []Descriptor `json:"descriptors,omitempty"`
}

// Descriptor is one descriptor of a call of Envoy's rate limit service.
type Descriptor struct {
	Entries    []DescriptorEntry `json:"entries"`
	HitsAddend *int64            `json:"hits_addend,omitempty"`      // nil: ExplainRequest.Cost
	GivesBack  bool              `json:"is_negative_hits,omitempty"` // what HitsAddend says
	Limit      *DescriptorLimit  `json:"limit,omitempty"`            // nil: that of the rules
}

// DescriptorEntry is a key and a value of a Descriptor.
type DescriptorEntry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// DescriptorLimit is a limit in place of that of the rules.
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
	Query   map[string]string   `json:"query,omitempty"` // in place of that of Path
}

// Explanation is what would be decided about a request, and why.
type Explanation struct {
	// Outcome is "allowed", "limited", "warned", "banned" or "blocked", or "undecided"
	// where the request would be answered with 503, or "unknown" where no rule that applies
	// refuses, but Needs say that others might.
	Outcome string `json:"outcome"`
	// Needs are what a real request has and this one does not say, and rules that do not apply
	// because of that read: client.ip, request.path and so on.
	Needs []string `json:"needs,omitempty"`
	// Rule is the rule that decides; empty: none does.
	Rule string `json:"rule,omitempty"`
	// Words is the explanation as lines of text, which hold all the rest.
	Words []string `json:"words"`
	// List is the list that decides, "safelist" or "blocklist", and Entry what it holds of
	// the request; empty: no list does.
	List  string          `json:"list,omitempty"`
	Entry string          `json:"entry,omitempty"`
	Rules []ExplainedRule `json:"rules"`
	CountedBy
}

// ExplainedRule is what one rule makes of the request. What follows Why is zero where the
// rule does not apply.
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
	Busy       bool  `json:"busy,omitempty"` // it refuses because of what is held
	RetryAfter int64 `json:"retry_after_us"`
}
