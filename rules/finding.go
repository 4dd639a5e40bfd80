package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/yamlnode"

	"cel.dev/cel-go/common/types"
)

// Finding is something that works as written but hardly as meant. docs/errors.md
// has a section for each code.
type Finding struct {
	// Code is stable, such as "ST002".
	Code string `json:"code"`
	// Where is file:line:column, or empty.
	Where string `json:"where,omitempty"`
	// Text says what, why, and how to mend it.
	Text string `json:"text"`
}

// The codes of findings. A code keeps its meaning for good, and none is used again.
// If you add one, put it into Codes and give it a section in docs/errors.md, which
// a test compares.
const (
	CodeNoProxies     = "ST001" // forwarding headers, and nobody is trusted; found by servers
	CodeTrustAll      = "ST002" // everybody is a trusted proxy
	CodeCostTooHigh   = "ST003" // a rule that refuses everything
	CodeCountedTwice  = "ST004" // one request, counted twice by one limit
	CodeEviction      = "ST005" // the store drops counts; found by the program that opens it
	CodeNeverMatches  = "ST006" // what is never true, or always
	CodeNameTwice     = "ST007" // two rules of one name; an error, not a Finding
	CodeBanWithoutEnd = "ST008" // a ban that lasts as good as for ever
	CodeEverybody     = "ST009" // everybody is banned or blocked; found by servers
	CodeLeaseInVain   = "ST010" // a lease where none is taken
	CodeUnlikeRules   = "ST011" // other rules in the same namespace; found by servers
	CodeNoToken       = "ST012" // who bears no valid token escapes a rule
	CodeClaimsUnknown = "ST013" // claims that nothing finds; found by servers
	CodeLooseKey      = "ST014" // a key that a client varies at will
	CodeCheckOpen     = "ST015" // everybody may use the check API; found in the settings
	CodeStoreSecrets  = "ST016" // the store refuses new passwords or certificates; found likewise
)

// Codes are all of them.
func Codes() []string {
	return []string{CodeNoProxies, CodeTrustAll, CodeCostTooHigh, CodeCountedTwice,
		CodeEviction, CodeNeverMatches, CodeNameTwice, CodeBanWithoutEnd, CodeEverybody, CodeLeaseInVain, CodeUnlikeRules,
		CodeNoToken, CodeClaimsUnknown, CodeLooseKey, CodeCheckOpen, CodeStoreSecrets}
}

// String is the finding as a line of a report.
func (f Finding) String() string {
	if f.Where == "" {
		return "warning " + f.Code + ": " + f.Text
	}
	return f.Where + ": warning " + f.Code + ": " + f.Text
}

func (c *compiler) found(code, where, format string, args ...any) {
	*c.findings = append(*c.findings, Finding{code, where, fmt.Sprintf(format, args...)})
}

// findIn looks at a rule whose fields are right.
func (p *parser) findIn(r *Rule, fields map[string]*yamlnode.Node) {
	if p.Problems() > 0 { // the file is refused anyway
		return
	}
	if !r.watches {
		p.findCost(r, fields)
		p.findCountedTwice(r, fields["limits"])
	}
	p.findBan(r, fields["penalty"])
	p.findLease(r, fields["limits"])
	p.seen.keys = append(p.seen.keys, keyAt{r, fields["key"], p})
	if r.key.claims && r.Mode == Enforce {
		p.seen.byClaims = append(p.seen.byClaims, byClaims{r, p.Place(fields["key"])})
	}
}

// findLease looks for leases that are never taken, and only make a bucket smaller.
func (p *parser) findLease(r *Rule, limits *yamlnode.Node) {
	i := slices.IndexFunc(r.Limits, func(l *stint.Limit) bool { return l.Spec().Lease > 0 })
	if i < 0 || r.Penalty == nil && len(r.Limits) == 1 {
		return
	}
	why := "has several limits"
	if r.Penalty != nil {
		why = "has a penalty"
	}
	p.found(CodeLeaseInVain, p.Place(limits.Content[i]),
		"rule %q %s, so that nothing of %s is ever leased; remove the lease, or move the limit to a rule of its own for requests that no other rule is for", r.Name, why, r.Limits[i].Terms())
}

func (p *parser) findCost(r *Rule, fields map[string]*yamlnode.Node) {
	if r.cost == nil {
		return
	}
	fixed, ok := r.cost.fixed().(types.Int)
	for _, l := range r.Limits {
		if ok && int64(fixed) > l.Capacity() {
			p.found(CodeCostTooHigh, p.Place(fields["cost"]),
				"rule %q refuses everything: its cost is %d, and %s never allows more than %d at once; lower the cost or raise the burst", r.Name, fixed, l.Terms(), l.Capacity())
			return
		}
	}
}

// counting is what a limit of a rule counts.
type counting struct {
	match, key, cost string
	algorithm        stint.Algorithm
	period           time.Duration
}

// counted is who counts it, by what.
type counted struct {
	rule  string
	limit *stint.Limit
}

// findCountedTwice leaves alone what is in shadow mode: a copy of a rule there
// tries out other numbers. Of two buckets, one may be for bursts and the other for
// the long run.
func (p *parser) findCountedTwice(r *Rule, limits *yamlnode.Node) {
	if r.Mode != Enforce {
		return
	}
	for i, l := range r.Limits {
		s := l.Spec()
		what := counting{r.Match, r.Key, r.Cost, s.Algorithm, s.Period}
		first, ok := p.seen.counted[what]
		switch {
		case !ok:
			p.seen.counted[what] = counted{r.Name, l}
		case first.rule != r.Name && (narrower(l, first.limit) || narrower(first.limit, l)):
			p.found(CodeCountedTwice, p.Place(limits.Content[i]),
				"rule %q counts by %s what rule %q counts already: same match, key and period; only the smaller amount matters, so remove one", r.Name, l.Terms(), first.rule)
		}
	}
}

// narrower tells whether whatever a allows, b allows too.
func narrower(a, b *stint.Limit) bool {
	return a.Spec().Amount <= b.Spec().Amount && a.Capacity() <= b.Capacity()
}

// longBan is from when on a ban is taken for one without an end.
const longBan = 365 * 24 * time.Hour

func (p *parser) findBan(r *Rule, penalty *yamlnode.Node) {
	if r.Penalty == nil || r.Penalty.Spec().BanAfter == 0 {
		return
	}
	const bans = 10
	switch first, tenth := banLength(r.Penalty, 0), banLength(r.Penalty, bans-1); {
	case first > longBan:
		p.found(CodeBanWithoutEnd, p.Place(penalty),
			"rule %q bans for more than a year: an address has another owner long before; shorten ban_for", r.Name)
	case tenth > longBan:
		p.found(CodeBanWithoutEnd, p.Place(penalty),
			"rule %q bans for more than a year by the %dth time, as growth is %d: set max_ban, such as max_ban: 7d", r.Name, bans, r.Penalty.Spec().Growth)
	}
}

// banLength is how long a ban is after so many before it.
func banLength(p *stint.Penalty, before int) time.Duration {
	s := p.Spec()
	most := cmp.Or(s.MaxBan, algo.MaxBan)
	for ; before > 0 && s.BanFor <= most; before-- {
		if s.Growth > 1 && s.BanFor > most/time.Duration(s.Growth) {
			return most
		}
		s.BanFor *= time.Duration(max(1, s.Growth))
	}
	return min(s.BanFor, most)
}
