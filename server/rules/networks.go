package rules

import (
	"iter"
	"net/netip"
	"slices"
	"time"
)

// prefixLengths are the lengths of networks' prefixes, of IPv4 and of IPv6.
type prefixLengths struct{ four, six []int }

func (l *prefixLengths) add(p netip.Prefix) {
	bits := &l.six
	if p.Addr().Is4() {
		bits = &l.four
	}
	if !slices.Contains(*bits, p.Bits()) {
		*bits = append(*bits, p.Bits())
	}
}

// around are the networks of these lengths that contain a, which is as address.Plain returns it.
func (l *prefixLengths) around(a netip.Addr) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		bits := l.six
		if a.Is4() {
			bits = l.four
		}
		for _, b := range bits {
			if p, err := a.Prefix(b); err == nil && !yield(p) { // no error from a valid address
				return
			}
		}
	}
}

// networkTable finds entries by address, with one lookup for each length of prefix.
type networkTable[E entry] struct {
	lengths prefixLengths
	entries map[netip.Prefix]E
}

// entry is a pointer to an entry of Controls.
type entry interface {
	comparable
	note() *Note
}

// add adds e for p, as Set.ParseNetwork returns it. Of several entries for one network, the longest stays.
func (n *networkTable[E]) add(p netip.Prefix, e E) {
	if n.entries == nil {
		n.entries = map[netip.Prefix]E{}
	}
	if old, ok := n.entries[p]; ok && !e.note().outlasts(old.note()) {
		return
	}
	n.entries[p] = e
	n.lengths.add(p)
}

// longest returns the entry that ends last, of those whose networks contain a, and how long it still applies;
// nil: none. a is as address.Plain returns it, or invalid.
func (n *networkTable[E]) longest(a netip.Addr, i *Instance) (found E, left time.Duration) {
	if n.entries == nil || !a.IsValid() {
		return found, 0
	}
	var none E
	for p := range n.lengths.around(a) {
		if e, ok := n.entries[p]; ok && (found == none || e.note().outlasts(found.note())) {
			found = e
		}
	}
	if found == none {
		return none, 0
	}
	if left = found.note().left(i); left <= 0 {
		return none, 0
	}
	return found, left
}
