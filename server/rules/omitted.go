package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stintdev/stint/server/rules/internal/expr"
)

// findOmitted looks for rules that a client escapes by leaving out their key's field, because no other rule
// applies then. It ignores fields that a match or a blocklist reads, since the author thought of them, and
// credentials, without which the upstream refuses.
func (s *Set) findOmitted(all []ruleAt) {
	var always []*Rule // that have a key whatever a client leaves out
	for _, r := range s.written() {
		if r.Mode == Enforce && !r.watches && !r.key.Omits() && !r.key.Uses("claims") && !r.key.Uses("attrs") {
			always = append(always, r)
		}
	}
	parts := partsOfMatches{}
	for _, at := range all {
		r := at.rule
		if at.key == nil || r.Mode != Enforce || r.watches || !r.key.Omits() || s.isCredential(r) || r.match != nil && r.match.ReadsSame(r.key) {
			continue
		}
		if slices.ContainsFunc(s.blocklist.conditions, r.key.ReadsSame) || slices.ContainsFunc(always, func(other *Rule) bool { return other.countsWithout(r, parts) }) {
			continue
		}
		s.Findings = append(s.Findings, Finding{codeOmitted, at.file.Place(at.key), fmt.Sprintf(
			"rule %q counts by %s, which a client may leave out: then the rule does not apply, and perhaps no other does; add one with default: true and key: client.ip, or block such requests", r.Name, expr.Clip(r.Key))})
	}
}

// countsWithout reports whether r, which always has a key, applies to the requests for which other has none.
func (r *Rule) countsWithout(other *Rule, parts partsOfMatches) bool {
	return r.Default || r.match == nil || r.Match == other.Match || r.match.ReadsSame(other.key) || parts.covers(r, other)
}

// partsOfMatches are the parts that && joins in the matches of rules.
type partsOfMatches map[*Rule][]string

func (p partsOfMatches) of(r *Rule) []string {
	parts, known := p[r]
	if !known {
		parts = r.match.Conjuncts()
		p[r] = parts
	}
	return parts
}

// covers reports whether requests that match other surely match r: each part of r's match is one of other's.
func (p partsOfMatches) covers(r, other *Rule) bool {
	return other.match != nil && len(p.of(r)) > 0 && !slices.ContainsFunc(p.of(r), func(part string) bool { return !slices.Contains(p.of(other), part) })
}

// isCredential reports whether r counts by a credential that its upstream demands.
func (s *Set) isCredential(r *Rule) bool {
	return r.key.Uses("request.credential") || r.Tokens.API != NoTokens || slices.ContainsFunc(r.key.Headers, func(name string) bool {
		return slices.ContainsFunc(s.credentialHeaders, func(h string) bool { return strings.EqualFold(h, name) })
	})
}
