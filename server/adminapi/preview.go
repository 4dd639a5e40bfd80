package adminapi

import (
	"time"

	"github.com/stintdev/stint/server/rules"
)

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

	// Span is the time that the requests here cover: from From to the call or, if Partial, to the last one.
	Span int64 `json:"span_us"`
	// Peaks are the limits of the new rules that requests asked, in the file's order, at most 50. MorePeaks is
	// how many others there are. Limits of overrides are not among them.
	Peaks     []PreviewPeaks `json:"peaks"`
	MorePeaks int64          `json:"more_peaks,omitempty"`
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

// PreviewPeaks is what the keys of a limit used of it at most, whatever was refused. The peak of a key is the most
// units that its requests cost in any window of the limit's period; for a sliding_window, which also counts a part
// of an older sub-window, in any window that is longer by a sub-window. A limit never refuses a key whose peak is
// at most its amount. It may refuse one whose peak is higher.
type PreviewPeaks struct {
	Rule  string `json:"rule"`
	Tier  string `json:"tier,omitempty"` // whose limit it is; empty: the rule's own
	Index int    `json:"index"`          // in the limits of the rule or tier, from 0
	Limit string `json:"limit"`          // as in a file
	// Unmeasured says why the amount cannot be chosen by peaks; empty: it can. If not, all below is empty.
	//
	//  - unlimited: it has no amount
	//  - held: it is about units that are held until a request ends, which is not recorded
	//  - calendar: its windows are days or longer
	//  - capacity: the bucket has a burst or a lease of its own, so the amount alone is not its capacity
	//  - shape: requests are delayed
	//  - memory: too many requests are in its period
	Unmeasured string `json:"unmeasured,omitempty"`

	Amount int64 `json:"amount"`
	Period int64 `json:"period_us"`
	// AtLeast means that the period is longer than Span, so that peaks in a whole period may be higher.
	AtLeast bool  `json:"at_least,omitempty"`
	Keys    int64 `json:"keys"` // that used a unit
	// Numbered means that Top has numbers in place of keys: #1, #2. No rule in force has the same key, and it reads
	// more than address, method, path and operation, so it may be a credential.
	Numbered bool `json:"numbered,omitempty"`
	// Curve has pairs, at most 60, with ascending amounts: how many keys have at most that peak. Amount and
	// Suggested are among them.
	Curve [][2]int64 `json:"curve"`
	// Top are the keys with the highest peaks, at most 10, the highest first.
	Top []PreviewPeak `json:"top"`
	// Suggested is an amount that leaves nearly all keys untouched. nil: AtLeast, or there are fewer than 20 keys.
	Suggested *PreviewSuggestion `json:"suggested,omitempty"`
	// Place is where the text has the amount. nil: nowhere, because the limit is a multiple of another.
	Place *PreviewPlace `json:"place,omitempty"`
}

// PreviewPeak is the peak of a key. With privacy: hash, Key is a hash.
type PreviewPeak struct {
	Key  rules.Key `json:"key"`
	Peak int64     `json:"peak"`
}

// PreviewSuggestion is an amount: the lowest that leaves the share of keys untouched, with a margin of 20 % and
// rounded up to two digits. Share is 0.999, or the highest below it that so many keys can tell.
type PreviewSuggestion struct {
	Amount int64   `json:"amount"`
	Share  float64 `json:"share"`
}

// PreviewPlace is a place in the text of the request. Line and Column count from 1, and Column and Length in
// characters.
type PreviewPlace struct {
	Line   int `json:"line"`
	Column int `json:"column"`
	Length int `json:"length"`
}
