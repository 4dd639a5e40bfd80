package rules

import (
	"time"

	"github.com/stintdev/stint"
)

// EnvoyCount returns envoyproxy/ratelimit's name for the count of a key under a limit, without the prefix
// before it and the start of the window after it: the domain, and the key and the value of each entry, each
// with "_" after it. ok is false if that program has no such count: l is not of a file of Envoy's form, is
// held or is not a fixed window of whole seconds, or the key is hashed, as with a value of more than
// stint.MaxKey bytes.
//
// Like the original, it escapes nothing, so that values with "_" may share a name.
func (s *Set) EnvoyCount(l *stint.Limit, key string) (name string, ok bool) {
	spec := l.Spec()
	if spec.Algorithm != stint.FixedWindow || spec.Period == 0 || spec.Period%time.Second != 0 || s.described == 0 {
		return "", false
	}
	r := s.ruleNamed(spec.Name)
	if r == nil || r.Descriptor == nil || l.IsHeld() {
		return "", false
	}
	return r.Descriptor.countName(key)
}

// countName is EnvoyCount for a key of d, as keyOf made it.
func (d *DescriptorRule) countName(key string) (name string, ok bool) {
	parts, isList := Key(key).Parts()
	if isList && len(parts) == 1 { // hashed: the request's text is lost
		if key != hashedEmpty || d.parts != 1 {
			return "", false
		}
		parts[0] = ""
	}
	b := append(make([]byte, 0, len(d.Stat)+len(key)+8), d.Domain...)
	b = append(b, '_')
	if d.overrides != nil { // all keys and values in turn
		for _, part := range parts {
			b = append(append(b, part...), '_')
		}
		return string(b), true
	}
	next := func(varies bool, text string) string {
		if !varies || len(parts) == 0 {
			return text
		}
		text, parts = parts[0], parts[1:]
		return text
	}
	for i, level := range d.levels {
		b = append(append(b, next(level.key, d.Path[i].Key)...), '_')
		b = append(append(b, next(level.value, d.Path[i].Value)...), '_')
	}
	return string(b), true
}

// hashedEmpty is the key of one value that is empty.
var hashedEmpty = hashedKey([]string{""})
