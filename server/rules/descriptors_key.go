package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/stintdev/stint/server/rules/internal/expr"
)

// allCalls is the key of a rule whose file gives all keys and values.
const allCalls = "all"

// keyOf is the key by which entries, which found the rule, are counted: their parts that the file does not
// give. It is hashed if it would not be a key: empty, too long, or not text.
func (d *DescriptorRule) keyOf(entries []Entry) string {
	if d.overrides != nil {
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

// hashedKey is a list of one part; no other key of a descriptor is.
func hashedKey(parts []string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)) + "\x00"
}

// statOf is the name in the statistics for a call with these entries.
func (d *DescriptorRule) statOf(entries []Entry) string {
	if !d.Detailed && !d.detailedPath && d.overrides == nil {
		return d.Stat
	}
	shares := slices.ContainsFunc(d.levels, func(l descriptorLevel) bool { return l.shared })
	var b strings.Builder
	b.WriteString(d.Domain)
	for i, e := range entries {
		b.WriteByte('.')
		value := e.Value
		always := d.Detailed && !shares
		switch {
		case d.overrides != nil:
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

// checkForm is an error if no call is counted by k under the rule.
func (d *DescriptorRule) checkForm(k Key) error {
	parts, isList := k.Parts()
	switch {
	case d.overrides != nil, isList && len(parts) == 1: // see hashedKey
	case d.parts == 0 && k != allCalls:
		return fmt.Errorf("key %s: the rule counts all calls under %s", expr.Clip(k.String()), allCalls)
	case d.parts == 1 && isList:
		return fmt.Errorf("key %s: the rule counts by %s, which is not a list", expr.Clip(k.String()), d.keyText())
	case d.parts > 1 && (!isList || len(parts) != d.parts):
		return fmt.Errorf("key %s: the rule counts by a list of %d, %s: give as many parts, in its order", expr.Clip(k.String()), d.parts, d.keyText())
	}
	return nil
}
