package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/stintdev/stint/server/rules/internal/descriptors"
	"github.com/stintdev/stint/server/rules/internal/expr"
)

// explainDescriptors adds to the explanation the rules that the descriptors of a call have found. before is how
// many rules were unread until then.
func (s *Set) explainDescriptors(m *Plan, before int) error {
	x, call := m.Explanation, m.evaluation.in.Descriptors
	x.Descriptors = slices.Clone(m.Descriptors)
	tree := s.trees.Domain(call.Domain)
	for i := range call.List {
		match := &m.Descriptors[i]
		if match.Rule == nil {
			if k := s.offRule(tree, &call.List[i]); k >= 0 {
				x.Rules = append(x.Rules, RuleExplanation{Rule: s.Rules[k], Why: s.whyOff(k)})
			}
			continue
		}
		r := match.Rule
		if m.BanRule == r {
			x.applies = cmp.Or(x.applies, r)
			return nil
		}
		if slices.ContainsFunc(m.Descriptors[:i], func(other DescriptorMatch) bool {
			return other.Rule == r && other.Key == match.Key && other.Ask == match.Ask && other.GiveBack == match.GiveBack
		}) {
			continue // it shares the ask of another
		}
		e := RuleExplanation{Rule: r, Key: Key(match.Key), Why: fmt.Sprintf("descriptor %d finds it: %s", i+1, pathOf(call.List[i].Entries))}
		switch {
		case slices.Contains(m.Unread[before:], r):
			e.Why += "; mode shadow, and the request is malformed for it"
		case match.Replaced:
			e.Why += "; another limit of the call replaces " + r.Descriptor.Name
		case r.Descriptor.Unlimited:
			e.Why += "; it is unlimited"
		case match.GiveBack:
			e.Why += "; units are given back"
		default:
			e.Applies = true
			if err := m.explainAsk(match, &e); err != nil {
				return err
			}
		}
		if r.Mode == Enforce && !match.Replaced && x.applies == nil { // also if it is unlimited, as in askDescriptors
			x.applies = r
		}
		if r.Mode == Shadow {
			e.Why += "; mode shadow, so it refuses nothing"
		}
		x.Rules = append(x.Rules, e)
	}
	return nil
}

// offRule is the index of the rule in mode off that a descriptor finds; -1: none.
func (s *Set) offRule(tree *descriptors.Node, one *Descriptor) int {
	if tree == nil {
		return -1
	}
	return s.ruleOf(tree, one, s.plainEntries(one.Entries))
}

// explainAsk adds to e what match asks.
func (m *Plan) explainAsk(match *DescriptorMatch, e *RuleExplanation) error {
	r := match.Rule
	if r.controls != nil && r.Descriptor.overrides == nil {
		effective, err := r.effectiveLimits(&m.evaluation, match.Key)
		if err != nil {
			return err
		}
		e.Tier, e.Override = effective.tier, effective.override
	}
	if match.Ask < 0 {
		return nil
	}
	e.First = match.Ask
	asks := m.Asks[match.Ask:]
	if r.Descriptor.overrides != nil {
		asks = asks[:1] // others are of other limits
	}
	for k := 0; k < len(asks) && m.Rules[match.Ask+k] == r && asks[k].Key == match.Key; k++ {
		e.Asks = append(e.Asks, asks[k])
		e.Cost = max(e.Cost, asks[k].Cost)
	}
	return nil
}

// pathOf is the entries of a descriptor, to be shown.
func pathOf(entries []Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Key+"="+e.Value)
	}
	return expr.Clip(strings.Join(all, ", "))
}
