package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/rules/internal/descriptors"
)

// descriptorLevel says what of an entry is part of a rule's key: the key, the value, or none, if the
// file has them.
type descriptorLevel struct {
	key, value bool
	// shared means share_threshold, and detailed that value_to_metric puts the value into Stat.
	shared, detailed bool
}

// HasDomain reports whether a file of Envoy's form has this domain.
func (s *Set) HasDomain(domain string) bool { return s.trees.Domain(domain) != nil }

// askDescriptors adds what the descriptors of a call ask. applied: an enforced rule applies.
func (s *Set) askDescriptors(out *Matches) (applied bool, err error) {
	d := out.evaluation.in.Descriptors
	if len(d.List) > stint.MaxAsks {
		return false, fmt.Errorf("rules: %w: %d descriptors: at most %d", stint.ErrRequest, len(d.List), stint.MaxAsks)
	}
	for range d.List {
		out.Descriptors = append(out.Descriptors, DescriptorMatch{Ask: -1})
	}
	tree := s.trees.Domain(d.Domain)
	if tree == nil {
		return false, nil
	}
	replaces := false
	for i := range d.List {
		m := &out.Descriptors[i]
		s.findDescriptor(tree, d, &d.List[i], m)
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
	return applied, nil
}

// findDescriptor fills m with the rule of a descriptor, if it has one that is not off.
func (s *Set) findDescriptor(tree *descriptors.Node, d *Descriptors, one *Descriptor, m *DescriptorMatch) {
	node := tree
	if one.Override == nil {
		for i := range one.Entries {
			e := &one.Entries[i]
			if node = node.Next(e.Key, e.Value); node == nil {
				return
			}
			if node.IsLeaf() && i < len(one.Entries)-1 {
				return
			}
		}
		if node == tree {
			return // no entries
		}
	}
	if node.Rule < 0 {
		return
	}
	r := s.Rules[node.Rule]
	if r.Mode == Off {
		return
	}
	m.Rule, m.GiveBack = r, one.GiveBack
	m.Key = r.Descriptor.keyOf(one.Entries)
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

// askDescriptor adds what the i-th descriptor of the call asks under its rule.
func (s *Set) askDescriptor(out *Matches, i int) error {
	m, one := &out.Descriptors[i], &out.evaluation.in.Descriptors.List[i]
	r := m.Rule
	if one.Cost < 0 {
		return fmt.Errorf("rules: %w: rule %q: cost %d: must not be negative", stint.ErrRequest, r.Name, one.Cost)
	}
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
		if f.limits, err = s.overrides.limits(r, one.Override); err != nil {
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
func (m *Matches) askLimits(i int, r *Rule, f *found, nothing bool) error {
	match := &m.Descriptors[i]
	asks := &m.Asks
	if match.GiveBack {
		if nothing || f.cost == 0 {
			return nil
		}
		asks = &m.GiveBack
	}
	match.Ask = m.sameAsk(i, f.limits[0])
	add := match.Ask >= 0
	if !add {
		match.Ask = len(*asks)
	}
	for k, l := range f.limits {
		ask, err := r.ask(&m.evaluation, f, l)
		if err != nil {
			return err
		}
		if nothing && ask.Cost > 0 {
			ask.Cost += l.Capacity() // so that it never fits
		}
		if add {
			same := &(*asks)[match.Ask+k]
			same.Cost += ask.Cost
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

// sameAsk is the ask of a descriptor before the i-th that counts the same; -1: there is none.
func (m *Matches) sameAsk(i int, l *stint.Limit) int {
	this := &m.Descriptors[i]
	for j := range m.Descriptors[:i] {
		other := &m.Descriptors[j]
		if other.Rule != this.Rule || other.Ask < 0 || other.GiveBack != this.GiveBack || other.Key != this.Key {
			continue
		}
		asks := m.Asks
		if this.GiveBack {
			asks = m.GiveBack
		}
		if asks[other.Ask].Limit.ID() == l.ID() {
			return other.Ask
		}
	}
	return -1
}

// toldOf is l as callers are told of it.
func toldOf(r *Rule, l *stint.Limit) *DescriptorLimit {
	s := l.Spec()
	told := &DescriptorLimit{Name: r.Descriptor.Name, Amount: s.Amount}
	seconds := Unit(s.Period / time.Second)
	switch s.Calendar.Unit {
	case stint.Day:
		seconds = Day
	case stint.Week:
		seconds = Week
	case stint.Month:
		seconds = Month
	case stint.Year:
		seconds = Year
	}
	for _, unit := range []Unit{Year, Month, Week, Day, Hour, Minute, Second} {
		if seconds%unit == 0 && seconds > 0 {
			told.Unit, told.Times = unit, int64(seconds/unit)
			break
		}
	}
	return told
}

// allCalls is the key of a rule whose file gives all keys and values.
const allCalls = "all"

// keyOf is the key that entries, which found the rule, are counted by: what the file does not say of
// them. It is hashed where it would be no key: empty, too long, or not text.
func (d *DescriptorRule) keyOf(entries []Entry) string {
	if d.overrides {
		parts := make([]string, 0, 2*len(entries))
		for _, e := range entries {
			parts = append(parts, e.Key, e.Value)
		}
		return joinedOrHashed(parts)
	}
	switch d.parts {
	case 0:
		return allCalls
	case 1:
		for i, level := range d.levels {
			key := entries[i].Value
			if level.key {
				key = entries[i].Key
			} else if !level.value {
				continue
			}
			if checkKey(key) != nil || strings.IndexByte(key, 0) >= 0 {
				return hashedKey([]string{key})
			}
			return key
		}
	}
	parts := make([]string, 0, d.parts)
	for i, level := range d.levels {
		if level.key {
			parts = append(parts, entries[i].Key)
		}
		if level.value {
			parts = append(parts, entries[i].Value)
		}
	}
	return joinedOrHashed(parts)
}

func joinedOrHashed(parts []string) string {
	key, err := JoinKey(parts...)
	if err != nil {
		return hashedKey(parts)
	}
	return string(key)
}

// hashedKey is a list of one part, which no other key of a descriptor is.
func hashedKey(parts []string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)) + "\x00"
}

// statOf is the name in the statistics for a call with these entries.
func (d *DescriptorRule) statOf(entries []Entry) string {
	if !d.Detailed && !d.detailedPath && !d.overrides {
		return d.Stat
	}
	shares := false
	for i := range d.levels {
		shares = shares || d.levels[i].shared
	}
	var b strings.Builder
	b.WriteString(d.Domain)
	for i, e := range entries {
		b.WriteByte('.')
		value := e.Value
		always := d.Detailed && !shares
		switch {
		case d.overrides:
		case d.levels[i].shared:
			value = d.Path[i].Value
		case !d.Detailed && !d.levels[i].detailed:
			value = d.Path[i].Value
		}
		b.WriteString(e.Key)
		if value != "" || always {
			b.WriteByte('_')
			b.WriteString(value)
		}
	}
	return b.String()
}

// overrideLimits are limits that callers give, made once for each amount and unit. They may be used
// from many goroutines at once.
type overrideLimits struct {
	mu   sync.RWMutex
	made map[overrideKey][]*stint.Limit
}

type overrideKey struct {
	rule  string
	limit DescriptorLimit // without Name
}

// maxOverrideLimits is how many are kept. When there are more, all are dropped.
const maxOverrideLimits = 10_000

func (o *overrideLimits) limits(r *Rule, d *DescriptorLimit) ([]*stint.Limit, error) {
	k := overrideKey{r.Name, *d}
	k.limit.Name, k.limit.Times = "", max(1, d.Times)
	o.mu.RLock()
	limits := o.made[k]
	o.mu.RUnlock()
	if limits != nil {
		return limits, nil
	}
	l, err := k.limit.limit(r.Name)
	if err != nil {
		return nil, err
	}
	limits = []*stint.Limit{l}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.made == nil || len(o.made) >= maxOverrideLimits {
		o.made = map[overrideKey][]*stint.Limit{}
	}
	o.made[k] = limits
	return limits, nil
}

func (d *DescriptorLimit) limit(name string) (*stint.Limit, error) {
	switch d.Unit {
	case Second, Minute, Hour, Day, Week, Month, Year:
	case 0:
		return nil, fmt.Errorf("the limit of the descriptor has no unit")
	default:
		return nil, fmt.Errorf("the limit of the descriptor has an unknown unit of %d s", d.Unit)
	}
	if d.Amount < 0 {
		return nil, fmt.Errorf("the limit of the descriptor is %d: must not be negative", d.Amount)
	}
	if d.Times < 0 || d.Times > maxTimes {
		return nil, fmt.Errorf("the limit of the descriptor is for %d times its unit: must be from 1 to %d", d.Times, maxTimes)
	}
	period := time.Duration(max(1, d.Times)) * time.Duration(d.Unit) * time.Second
	if period/time.Second/time.Duration(d.Unit) != time.Duration(max(1, d.Times)) {
		return nil, fmt.Errorf("the limit of the descriptor is for %d times its unit: too long", d.Times)
	}
	return stint.NewLimit(stint.Spec{Name: name, Algorithm: stint.FixedWindow, Amount: max(1, d.Amount), Period: period})
}
