package rules

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/yamlnode"
)

// Finding is something in a file that is valid but probably not meant. docs/errors.md has a
// section for each code.
type Finding struct {
	// Code is stable, such as "ST002".
	Code string `json:"code"`
	// Where is file:line:column, or empty.
	Where string `json:"where,omitempty"`
	// Text says what is wrong, why, and how to fix it.
	Text string `json:"text"`
}

// The codes of findings. They never change. Add a new one to Codes and to docs/errors.md; a test compares.
const (
	CodeNoProxies     = "ST001" // forwarding headers, and no trusted proxies; found by servers
	codeTrustAll      = "ST002" // every address is a trusted proxy
	codeCostTooHigh   = "ST003" // a rule that refuses everything
	codeCountedTwice  = "ST004" // one request, counted twice by one limit
	CodeEviction      = "ST005" // the store drops counts; found by the program that opens it
	codeNeverMatches  = "ST006" // a text that a variable never has, or a constant
	codeNameTwice     = "ST007" // two rules of one name; an error, not a Finding
	CodeBanWithoutEnd = "ST008" // a ban of more than a year
	CodeEverybody     = "ST009" // all clients are banned or blocked; found by servers
	codeLeaseInVain   = "ST010" // a lease that has no effect
	CodeUnlikeRules   = "ST011" // other rules in the same namespace; found by servers
	codeNoToken       = "ST012" // clients without a valid token escape a rule
	CodeClaimsUnknown = "ST013" // claims without tokens configured; found in the settings
	codeLooseKey      = "ST014" // a key that a client can vary
	CodeCheckOpen     = "ST015" // anyone may use the check API; found in the settings
	CodeStoreSecrets  = "ST016" // the store refuses new passwords or certificates; found likewise
	CodeAlert         = "ST017" // an alert that cannot work; servers find that none is sent
	codeNotCalendar   = "ST018" // windows of whole days that are not calendar windows
	codeBudgetBucket  = "ST019" // a budget that names no algorithm, and so is a bucket
	CodeNoEnd         = "ST020" // held limits asked where the end of a request is not seen; found by servers
	codeNoUsage       = "ST021" // a preset that finds no usage in streams
	CodeNoCost        = "ST022" // no response reports the cost of requests; found by servers
	codeMisplaced     = "ST023" // a field in a file of descriptors where it has no effect
	CodeManyHolds     = "ST024" // an instance has little room left for holds; found by servers
	codeDefaultUnused = "ST025" // a default rule that another rule always comes before
	codeLanguage      = "ST026" // a text that lacks a language which others of its rule have
	CodeEndpoint      = "ST027" // a preset for tokens met an endpoint that it does not know; found by servers
	CodeImpatient     = "ST028" // a route that gives up before the clients of models do; found in the settings
	codeSpelledKey    = "ST029" // a key that is a credential as it was sent
	CodeCORS          = "ST030" // CORS that is left to upstreams where there are none; found in the settings
	codePattern       = "ST031" // a comparison with what looks like a pattern
	codeNeverWarns    = "ST032" // a ban that comes before its warning
	codeOmitted       = "ST033" // a key that a client may leave out
	CodeNoQueue       = "ST034" // shape that delays nothing; found in the settings, too
	codeUnindexed     = "ST035" // many rules that every request evaluates
	CodeListStale     = "ST036" // a list of networks that could not be read again; found by servers
)

// Codes are all of them.
func Codes() []string {
	return []string{CodeNoProxies, codeTrustAll, codeCostTooHigh, codeCountedTwice,
		CodeEviction, codeNeverMatches, codeNameTwice, CodeBanWithoutEnd, CodeEverybody, codeLeaseInVain, CodeUnlikeRules,
		codeNoToken, CodeClaimsUnknown, codeLooseKey, CodeCheckOpen, CodeStoreSecrets, CodeAlert,
		codeNotCalendar, codeBudgetBucket, CodeNoEnd, codeNoUsage, CodeNoCost, codeMisplaced, CodeManyHolds, codeDefaultUnused, codeLanguage, CodeEndpoint, CodeImpatient, codeSpelledKey, CodeCORS,
		codePattern, codeNeverWarns, codeOmitted, CodeNoQueue, codeUnindexed, CodeListStale}
}

// String is the finding as a line of a report.
func (f Finding) String() string {
	if f.Where == "" {
		return "warning " + f.Code + ": " + f.Text
	}
	return f.Where + ": warning " + f.Code + ": " + f.Text
}

func (p *parser) found(code, where, format string, args ...any) {
	p.set.Findings = append(p.set.Findings, Finding{code, where, fmt.Sprintf(format, args...)})
}

func (p *parser) findIn(r *Rule, fields map[string]*yamlnode.Node) {
	if p.Problems() > 0 || p.compiler.Err() != nil { // the file is refused anyway, and r may lack expressions
		return
	}
	if !r.watches {
		p.findCost(r, fields)
		p.findCountedTwice(r, fields["limits"])
	}
	p.findBan(r, fields["penalty"])
	p.findNeverWarns(r, fields["penalty"])
	p.findQueue(r, fields["shape"])
	p.findLease(r, fields["limits"])
	p.findNotCalendar(r, fields["limits"])
	p.findBudgets(r, fields)
	p.seen.rules = append(p.seen.rules, ruleAt{r, fields["key"], fields["match"], p})
	if r.key.Uses("claims") && r.Mode == Enforce {
		p.seen.byClaims = append(p.seen.byClaims, byClaims{r, p.Place(fields["key"])})
	}
}

func (p *parser) findLease(r *Rule, limits *yamlnode.Node) {
	i := slices.IndexFunc(r.Limits, func(l *stint.Limit) bool { return l.Spec().Lease > 0 })
	if i < 0 || r.Penalty == nil && len(r.Limits) == 1 {
		return
	}
	why := "has several limits"
	if r.Penalty != nil {
		why = "has a penalty"
	}
	p.found(codeLeaseInVain, p.Place(limits.Content[i]),
		"rule %q %s, so %s is never leased; remove the lease, or move the limit to its own rule, for requests that no other rule applies to", r.Name, why, r.Limits[i].Terms())
}

func (p *parser) findCost(r *Rule, fields map[string]*yamlnode.Node) {
	for i, l := range r.Limits {
		at, e := fields["cost"], r.cost
		if own := r.ownCost(l); own != nil {
			at, e = fields["limits"].Content[i], own
		} else if IsBudget(l) || !r.countsCost(l) { // an estimate is capped, and others take one unit
			continue
		}
		if e == nil {
			continue
		}
		if fixed, ok := e.FixedInt(); ok && fixed > l.Capacity() && l.Capacity() > 0 { // 0 is meant
			p.found(codeCostTooHigh, p.Place(at),
				"rule %q refuses everything: its cost is %d, and %s never allows more than %d at once; lower the cost or raise the burst", r.Name, fixed, l.Terms(), l.Capacity())
			return
		}
	}
}

// findBudgets looks for budgets that do not limit as they seem to.
func (p *parser) findBudgets(r *Rule, fields map[string]*yamlnode.Node) {
	p.findBuckets(r, r.Limits, fields["limits"])
	if tiers := fields["tiers"]; tiers != nil {
		for i := range r.Tiers {
			p.findBuckets(r, r.Tiers[i].Limits, fieldOf(tiers.Content[2*i+1], "limits"))
		}
	}
	if r.Tokens.API == OpenAI && !r.Tokens.IncludeUsage && r.after == nil {
		p.found(codeNoUsage, p.Place(fields["tokens"]),
			"rule %q does not ask for the usage of streams, so a stream has none unless its client asks, and is charged %s; remove include_usage: false", r.Name, chargedInstead[r.Unsettled])
	}
}

var chargedInstead = [...]string{Keep: "the held cost", GiveBack: "nothing"}

// findBuckets looks for limits with a unit that are buckets because the file names no algorithm. limits is
// where the file has them; nil: they are multiples of others.
func (p *parser) findBuckets(r *Rule, limits []*stint.Limit, list *yamlnode.Node) {
	for i, l := range limits {
		if list == nil || l.Spec().Algorithm != stint.TokenBucket || !IsBudget(l) && (r.Unit == "" || !r.countsCost(l) || r.ownCost(l) != nil) {
			continue
		}
		n := list.Content[i]
		if fieldOf(n, "algorithm") != nil || strings.Contains(n.Value, stint.TokenBucket.String()) {
			continue
		}
		p.found(codeBudgetBucket, p.Place(n),
			"limit %q of rule %q is a budget without an algorithm, so it is a token_bucket, which allows up to twice the amount in the first period: name an algorithm, as in %q, or token_bucket if you mean it",
			l.Terms(), r.Name, inWindows(l))
	}
}

// inWindows is the text of l as a fixed window.
func inWindows(l *stint.Limit) string {
	s := l.Spec()
	s.Algorithm, s.Burst, s.Debt = stint.FixedWindow, 0, 0
	if other, err := stint.NewLimit(s); err == nil {
		return other.Terms()
	}
	return l.Terms()
}

// fieldOf is the value of a field of a mapping; nil: it has none.
func fieldOf(n *yamlnode.Node, name string) *yamlnode.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

type counting struct {
	match, key, cost, after string
	tokens                  Tokens
	isBudget                bool
	isDefault               bool // and so never asked beside one that is not
	algorithm               stint.Algorithm
	period                  time.Duration
	calendar                stint.Calendar
}

type counted struct {
	rule  string
	limit *stint.Limit
}

// findCountedTwice ignores rules in shadow mode, which may be copies that try other numbers, and pairs of
// buckets: one may be for bursts.
func (p *parser) findCountedTwice(r *Rule, limits *yamlnode.Node) {
	if r.Mode != Enforce {
		return
	}
	for i, l := range r.Limits {
		s := l.Spec()
		what := counting{match: r.Match, key: r.Key, isBudget: IsBudget(l), isDefault: r.Default, algorithm: s.Algorithm, period: s.Period, calendar: s.Calendar}
		switch own := r.ownCost(l); {
		case own != nil:
			what.cost = own.Source
		case r.countsCost(l):
			what.cost, what.after, what.tokens = r.Cost, r.After, r.Tokens
		}
		first, ok := p.seen.counted[what]
		switch {
		case !ok:
			p.seen.counted[what] = counted{r.Name, l}
		case first.rule != r.Name && (narrower(l, first.limit) || narrower(first.limit, l)):
			p.found(codeCountedTwice, p.Place(limits.Content[i]),
				"limit %[2]q of rule %[1]q counts the same as rule %[3]q: same match, key and period; only the smaller amount matters, so remove one", r.Name, l.Terms(), first.rule)
		}
	}
}

// narrower reports whether b allows everything that a allows.
func narrower(a, b *stint.Limit) bool {
	return a.Spec().Amount <= b.Spec().Amount && a.Capacity() <= b.Capacity()
}

const longBan = 365 * 24 * time.Hour

func (p *parser) findBan(r *Rule, penalty *yamlnode.Node) {
	if r.Penalty == nil || r.Penalty.Spec().BanAfter == 0 {
		return
	}
	const bans = 10
	switch first, tenth := banLength(r.Penalty, 0), banLength(r.Penalty, bans-1); {
	case first > longBan:
		p.found(CodeBanWithoutEnd, p.Place(penalty),
			"rule %q bans for more than a year: addresses change owners long before that; shorten ban_for", r.Name)
	case tenth > longBan:
		p.found(CodeBanWithoutEnd, p.Place(penalty),
			"rule %q bans for more than a year by the %dth ban, because growth is %d: set max_ban, such as max_ban: 7d", r.Name, bans, r.Penalty.Spec().Growth)
	}
}

func (p *parser) findNeverWarns(r *Rule, penalty *yamlnode.Node) {
	if r.Penalty == nil {
		return
	}
	if s := r.Penalty.Spec(); s.BanAfter > 0 && s.WarnAfter >= s.BanAfter {
		p.found(codeNeverWarns, p.Place(fieldOf(penalty, "warn_after")),
			"rule %q never warns: warn_after is %d, but violation %d already bans (ban_after), and violations then count from 0 again; lower warn_after, or remove it", r.Name, s.WarnAfter, s.BanAfter)
	}
}

// findQueue finds shape with a queue without places. A queue whose turns come after max_delay is found in the
// settings.
func (p *parser) findQueue(r *Rule, shape *yamlnode.Node) {
	if !r.Shape {
		return
	}
	for _, l := range r.Limits {
		if l.Spec().Algorithm == stint.LeakyBucket && l.Capacity() == 1 {
			p.found(CodeNoQueue, p.Place(shape),
				"rule %q delays nothing: %s has room for the request that passes, and none for others to wait; raise burst, as in %q, where up to 20 wait", r.Name, l.Terms(), withQueue(l))
		}
	}
}

// withQueue is the text of l with a queue.
func withQueue(l *stint.Limit) string {
	s := l.Spec()
	s.Burst = 21
	if other, err := stint.NewLimit(s); err == nil {
		return other.Terms()
	}
	return l.Terms()
}

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

type byClaims struct {
	rule  *Rule
	place string
}

// findNoToken looks for rules that a client escapes by sending no valid token, because no other
// rule applies then.
func (s *Set) findNoToken(all []byClaims) {
	for _, by := range all {
		if !slices.ContainsFunc(s.written(), by.rule.isCaughtBy) {
			s.Findings = append(s.Findings, Finding{codeNoToken, by.place, fmt.Sprintf(
				"rule %q counts by claims, so requests without a valid token escape it, and no other rule applies to them: add one with default: true, or with match: '!has(claims.sub)', and key: client.ip", by.rule.Name)})
		}
	}
}

// isCaughtBy reports whether other applies to requests that r skips because they lack a token.
func (r *Rule) isCaughtBy(other *Rule) bool {
	if other.Mode != Enforce || other.key.Uses("claims") {
		return false
	}
	return other.Default || other.match == nil || other.match.Uses("claims") || other.Match == r.Match
}

type defaultAt struct {
	rule  *Rule
	place string
}

// findUnusedDefaults looks for default rules that never apply, because another rule applies to all
// requests that they match.
func (s *Set) findUnusedDefaults(all []defaultAt) {
	for _, at := range all {
		i := slices.IndexFunc(s.written(), func(other *Rule) bool {
			return other.Mode == Enforce && !other.Default && (other.match == nil || other.Match == at.rule.Match) && other.hasSureKey()
		})
		if at.rule.Mode != Off && i >= 0 {
			s.Findings = append(s.Findings, Finding{codeDefaultUnused, at.place, fmt.Sprintf(
				"rule %q has default: true and never applies: rule %q applies to every request that it matches; narrow the match of %[2]q, or remove default", at.rule.Name, s.written()[i].Name)})
		}
	}
}

// hasSureKey reports whether every request with a known client has a key of r.
func (r *Rule) hasSureKey() bool {
	if r.key == nil || !r.keyGiven {
		return true
	}
	return !slices.ContainsFunc(r.key.Variables, func(v string) bool { return v != "client.ip" && v != "client" })
}

// findLanguages looks for texts of r that lack a language. nodes are theirs, by their places.
func (p *parser) findLanguages(r *Rule, nodes []*yamlnode.Node) {
	var all []string
	for _, t := range r.Messages.texts {
		if t != nil {
			all = append(all, t.languages...)
		}
	}
	slices.Sort(all)
	for place, t := range r.Messages.texts {
		if t == nil || len(t.languages) == 0 || nodes[place] == nil {
			continue
		}
		missing := slices.DeleteFunc(slices.Compact(slices.Clone(all)), func(tag string) bool { return slices.Contains(t.languages, tag) })
		if len(missing) > 0 {
			p.found(codeLanguage, p.Place(nodes[place]), "rule %q: the text %s lacks %s, which other texts of the rule have", r.Name, messageFields[place], strings.Join(missing, ", "))
		}
	}
}

// ruleAt is a rule, and where a file has its fields; nil: it does not give them.
type ruleAt struct {
	rule       *Rule
	key, match *yamlnode.Node
	file       *parser
}

// findLooseKeys looks for keys of headers with any number of values, or of a credential as it was sent: a
// client can make new keys of these.
func (s *Set) findLooseKeys(all []ruleAt) {
	for _, at := range all {
		if at.key == nil || at.rule.Mode == Off {
			continue
		}
		for _, name := range at.rule.key.Headers {
			canonical := http.CanonicalHeaderKey(name)
			instead := "one that holds a single value"
			switch {
			case name == "x-forwarded-for", name == "forwarded":
				instead = "client.ip, which is the client's address behind trusted_proxies"
			case name == "cookie":
				instead = `one of them, as in request.cookies["SESSION"]`
			case name == "authorization", name == "proxy-authorization":
				s.Findings = append(s.Findings, Finding{codeSpelledKey, at.file.Place(at.key), fmt.Sprintf(
					"rule %q counts by the header %s as it was sent, but a client can write one credential in many ways: count by request.credential, as in sha256(request.credential)", at.rule.Name, name)})
				continue
			case httpfield.IsList(canonical), s.repeatable.headers[canonical]:
			default:
				continue
			}
			s.Findings = append(s.Findings, Finding{codeLooseKey, at.file.Place(at.key), fmt.Sprintf(
				"rule %q counts by the header %s, which is a list: a client that adds to it gets a new key for each request; count by %s", at.rule.Name, name, instead)})
		}
	}
}

func (s *Set) findTrustAll(places []string) {
	for _, all := range [...]struct {
		network netip.Prefix
		name    string
	}{
		{netip.MustParsePrefix("0.0.0.0/0"), "IPv4 address"},
		{netip.MustParsePrefix("2000::/3"), "public IPv6 address"}, // it contains all in use
	} {
		i := slices.IndexFunc(s.TrustedProxies, func(p netip.Prefix) bool {
			return p.Bits() <= all.network.Bits() && p.Contains(all.network.Addr())
		})
		if i >= 0 {
			s.Findings = append(s.Findings, Finding{codeTrustAll, places[i], "this network of trusted_proxies holds every " + all.name +
				", so every client can choose the address it is counted by: list only your own proxies"})
		}
	}
}
