package rules

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint"
)

// EnvoyCount returns what envoyproxy/ratelimit calls the count of a key under a limit, without
// its prefix and without the start of the window, which follow: the domain, and the key and the
// value of each entry, each with "_" after it. ok is false if that program has no such count: l
// belongs to no rule of a file of Envoy's form, or it is no fixed window of whole seconds.
//
// Like the original, it escapes nothing, so that values with "_" may share a name.
func (s *Set) EnvoyCount(l *stint.Limit, key string) (name string, ok bool) {
	spec := l.Spec()
	if spec.Algorithm != stint.FixedWindow || spec.Period == 0 || spec.Period%time.Second != 0 || s.descriptorRules == nil {
		return "", false
	}
	d := s.descriptorRules()[spec.Name]
	if d == nil {
		return "", false
	}
	return d.countName(key), true
}

// descriptorsByName returns a function that finds the rules of Envoy's files by their names. It
// looks through rules when it is first called. nil: there are none.
func descriptorsByName(rules []*Rule) func() map[string]*DescriptorRule {
	if !slices.ContainsFunc(rules, func(r *Rule) bool { return r.Descriptor != nil }) {
		return nil
	}
	return sync.OnceValue(func() map[string]*DescriptorRule {
		byName := map[string]*DescriptorRule{}
		for _, r := range rules {
			if r.Descriptor != nil {
				byName[r.Name] = r.Descriptor
			}
		}
		return byName
	})
}

// countName is EnvoyCount for a key of d. Its parts are the values that Path leaves open, in
// order; for the rule of overrides, whose Path is empty, all keys and values in turn.
func (d *DescriptorRule) countName(key string) string {
	parts, _ := Key(key).Parts()
	var b strings.Builder
	add := func(text string) {
		b.WriteString(text)
		b.WriteByte('_')
	}
	add(d.Domain)
	if len(d.Path) == 0 {
		for _, part := range parts {
			add(part)
		}
		return b.String()
	}
	for i, e := range d.Path {
		value := e.Value
		if d.isOpen(i) && len(parts) > 0 {
			value, parts = parts[0], parts[1:]
		}
		add(e.Key)
		add(value)
	}
	return b.String()
}

// isOpen reports whether the value of level i is part of keys: the file gives none, or a pattern
// whose values are counted one by one.
func (d *DescriptorRule) isOpen(i int) bool {
	value := d.Path[i].Value
	return value == "" || strings.Contains(value, "*") && !(i < len(d.Shared) && d.Shared[i])
}
