package rules

import (
	"fmt"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/server/rules/internal/descriptors"
)

// descriptorLevel says which part of an entry belongs to a rule's key: the key, the value, or neither, if the
// file has them.
type descriptorLevel struct {
	key, value bool
	// shared means share_threshold, and detailed that value_to_metric puts the value into Stat.
	shared, detailed bool
}

// HasDomain reports whether a file of Envoy's form has this domain.
func (s *Set) HasDomain(domain string) bool { return s.trees.Domain(domain) != nil }

// askDescriptors adds the asks of a call's descriptors. applied: an enforced rule applies.
func (s *Set) askDescriptors(out *Plan) (applied bool, err error) {
	d := out.evaluation.in.Descriptors
	for range d.List {
		out.Descriptors = append(out.Descriptors, DescriptorMatch{Ask: -1})
	}
	tree := s.trees.Domain(d.Domain)
	if tree == nil {
		return false, nil
	}
	replaces, unread := false, len(out.Unread)
	for i := range d.List {
		m := &out.Descriptors[i]
		s.findDescriptor(tree, &d.List[i], m)
		replaces = replaces || m.Rule != nil && len(m.Rule.Descriptor.Replaces) > 0
	}
	if replaces {
		replaceDescriptors(out.Descriptors)
	}
	for i := range out.Descriptors {
		m := &out.Descriptors[i]
		if m.Rule == nil {
			continue
		}
		if err := s.askDescriptor(out, i); err != nil {
			if m.Rule.Mode == Enforce {
				return applied, err
			}
			out.Unread = append(out.Unread, m.Rule)
			m.Limit, m.Ask = nil, -1
		}
		applied = applied || m.Rule.Mode == Enforce && !m.Replaced
	}
	if out.Explanation != nil {
		return applied, s.explainDescriptors(out, unread)
	}
	return applied, nil
}

// ruleOf is the index in Rules of the rule of a descriptor with these entries; -1: it has none.
func (s *Set) ruleOf(tree *descriptors.Node, one *Descriptor, entries []Entry) int {
	if one.Override != nil {
		return tree.Rule
	}
	if len(entries) == 0 {
		return -1
	}
	node := tree
	for i := range entries {
		e := &entries[i]
		if node = node.Next(e.Key, e.Value); node == nil {
			return -1
		}
	}
	return node.Rule
}

// findDescriptor fills m with the rule of a descriptor, if it has one that is not off.
func (s *Set) findDescriptor(tree *descriptors.Node, one *Descriptor, m *DescriptorMatch) {
	entries := s.plainEntries(one.Entries)
	i := s.ruleOf(tree, one, entries)
	if i < 0 || s.Rules[i].Mode == Off {
		return
	}
	r := s.Rules[i]
	m.Rule, m.GiveBack = r, one.GiveBack
	m.Key = r.Descriptor.keyOf(entries)
	m.Stat = r.Descriptor.statOf(one.Entries)
	switch {
	case one.Override != nil:
		m.Limit = one.Override
	case !r.Descriptor.Unlimited:
		m.Limit = &r.Descriptor.DescriptorLimit
	}
}

// replaceDescriptors finds the rules that others replace.
func replaceDescriptors(all []DescriptorMatch) {
	replaced := map[string]bool{}
	for i := range all {
		if r := all[i].Rule; r != nil {
			for _, name := range r.Descriptor.Replaces {
				replaced[name] = true
			}
		}
	}
	for i := range all {
		m := &all[i]
		if r := m.Rule; r != nil && !r.Descriptor.Unlimited && r.Descriptor.Name != "" && replaced[r.Descriptor.Name] {
			m.Replaced, m.Limit = true, nil
		}
	}
}

// askDescriptor adds the asks of the call's i-th descriptor under its rule.
func (s *Set) askDescriptor(out *Plan, i int) error {
	m, one := &out.Descriptors[i], &out.evaluation.in.Descriptors.List[i]
	r := m.Rule
	if m.Replaced || r.Descriptor.Unlimited {
		return nil
	}
	if r.controls != nil && r.Mode == Enforce {
		if ban, left := r.controls.banOf(m.Key); ban != nil {
			out.banned(r, ban, left)
			return nil
		}
	}
	f := found{key: m.Key, estimate: estimate{cost: one.Cost, asked: one.Cost, asksOnly: one.Cost == 0}}
	f.limits = r.Limits
	var err error
	if one.Override != nil {
		if f.limits, err = r.Descriptor.overrides.limits(r.Name, one.Override); err != nil {
			return fmt.Errorf("rules: %w: rule %q: %w", stint.ErrRequest, r.Name, err)
		}
	} else if r.controls != nil {
		if f.effective, err = r.effectiveLimits(&out.evaluation, m.Key); err != nil {
			return err
		}
		if f.override != nil {
			m.Limit = toldOf(r, f.limits[0])
		}
	}
	return out.askLimits(i, r, &f, m.Limit.Amount == 0)
}

// askLimits adds the asks of the i-th descriptor. nothing means that its limit allows nothing.
func (m *Plan) askLimits(i int, r *Rule, f *found, nothing bool) error {
	match := &m.Descriptors[i]
	asks := &m.Asks
	if match.GiveBack {
		if nothing || f.cost == 0 {
			return nil
		}
		asks = &m.GiveBack
	}
	match.Ask = m.sameAsk(i, f.limits[0], len(*asks))
	add := match.Ask >= 0
	if !add {
		match.Ask = len(*asks)
	}
	for k, l := range f.limits {
		ask, err := r.ask(&m.evaluation, f, l)
		if err != nil {
			return err
		}
		ask.Cost = min(ask.Cost, algo.Exact) // which fits no limit, so that sums do not overflow
		if nothing && ask.Cost > 0 {
			ask.Cost += l.Capacity() // so that it never fits
		}
		if add {
			same := &(*asks)[match.Ask+k]
			same.Cost = min(same.Cost+ask.Cost, 2*algo.Exact)
			same.Peek = same.Cost == 0
			if l.Capacity() < same.Limit.Capacity() {
				same.Limit = l // callers that give one key two limits
			}
			continue
		}
		*asks = append(*asks, ask)
		if !match.GiveBack {
			m.Rules = append(m.Rules, r)
		}
	}
	return nil
}

// sharedAsk identifies the count of descriptors that share an ask.
type sharedAsk struct {
	rule     *Rule
	key, id  string // id is the limit's
	giveBack bool
}

// fewDescriptors is how many descriptors of a call are compared with each other. Among more, those that
// count the same are found by a map: their keys may be long and alike.
const fewDescriptors = 8

// sameAsk is the ask of an earlier descriptor with the same count as the i-th; -1: there is none, and the
// next ask is the i-th's.
func (m *Plan) sameAsk(i int, l *stint.Limit, next int) int {
	d := &m.Descriptors[i]
	if len(m.Descriptors) > fewDescriptors {
		if m.counted == nil {
			m.counted = map[sharedAsk]int{}
		}
		count := sharedAsk{d.Rule, d.Key, l.ID(), d.GiveBack}
		if ask, ok := m.counted[count]; ok {
			return ask
		}
		m.counted[count] = next
		return -1
	}
	asks := m.Asks
	if d.GiveBack {
		asks = m.GiveBack
	}
	for j := range m.Descriptors[:i] {
		other := &m.Descriptors[j]
		if other.Rule == d.Rule && other.Ask >= 0 && other.GiveBack == d.GiveBack && other.Key == d.Key && asks[other.Ask].Limit.ID() == l.ID() {
			return other.Ask
		}
	}
	return -1
}
