package rules

import (
	"fmt"
	"slices"
)

// Unindexed are the rules that every request evaluates, although they are for some of them: no part of their
// match is a comparison by which an index passes over rules (docs/rules.md says which are), or only one after
// parts that may be much work. Rules without a match, or in mode off, are not among them.
func (s *Set) Unindexed() (all []*Rule) {
	for _, r := range s.written() {
		if r.isUnindexed() {
			all = append(all, r)
		}
	}
	return all
}

func (r *Rule) isUnindexed() bool {
	if r.match == nil || r.Mode == Off || len(r.match.Guards) > 0 {
		return false
	}
	_, fixed := r.match.FixedBool()
	return !fixed
}

// manyUnindexed are so many rules that they may take longer than all else that a request needs.
const manyUnindexed = 100

func (s *Set) findUnindexed(all []ruleAt) {
	found := s.Unindexed()
	if len(found) < manyUnindexed {
		return
	}
	first := all[slices.IndexFunc(all, func(at ruleAt) bool { return at.rule == found[0] })]
	s.Findings = append(s.Findings, Finding{codeUnindexed, first.file.Place(first.match), fmt.Sprintf(
		"every request evaluates %d of %d rules, because their match does not begin with a comparison of a field with a constant: %s, %s, %s, …; begin it with one and &&, as in request.path.under(\"/api\") or attrs.tenant == \"acme\"",
		len(found), len(s.written()), found[0].Name, found[1].Name, found[2].Name)})
}
