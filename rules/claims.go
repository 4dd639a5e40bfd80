package rules

import (
	"fmt"
	"slices"
)

// byClaims is a rule that counts by claims, and the place of its key.
type byClaims struct {
	rule  *Rule
	place string
}

// findNoToken looks for rules that a client escapes by sending no token, or one that is
// not valid, where no rule is there for such requests.
func (s *Set) findNoToken(all []byClaims) {
	for _, by := range all {
		if !slices.ContainsFunc(s.Rules, by.rule.isCaughtBy) {
			s.Findings = append(s.Findings, Finding{CodeNoToken, by.place, fmt.Sprintf(
				"rule %q counts by claims, so that it is not for requests without a valid token, and no other rule is: add one with default: true, or with match: '!has(claims.sub)', and key: client.ip", by.rule.Name)})
		}
	}
}

// isCaughtBy tells whether other is for the requests that escape r for want of a token.
func (r *Rule) isCaughtBy(other *Rule) bool {
	if other.Mode != Enforce || other.key.claims {
		return false
	}
	return other.Default || other.match == nil || other.match.claims || other.Match == r.Match
}

// UsesClaims tells whether an expression of s needs the claims of a token.
func (s *Set) UsesClaims() bool {
	uses := func(e *expression) bool { return e != nil && e.claims }
	added := func(c addedCondition) bool { return uses(c.condition) }
	return slices.ContainsFunc(s.safelist.conditions, uses) || slices.ContainsFunc(s.blocklist.conditions, uses) ||
		slices.ContainsFunc(s.safelist.added, added) || slices.ContainsFunc(s.blocklist.added, added) ||
		slices.ContainsFunc(s.tiers, uses) ||
		slices.ContainsFunc(s.Rules, func(r *Rule) bool { return uses(r.match) || uses(r.key) || uses(r.cost) })
}
