package rules

import (
	"net/netip"
	"slices"
	"time"
)

// networkTable finds entries by address, with one lookup for each length of prefix.
type networkTable[E entry] struct {
	bits4, bits6 []int // the lengths, of networks of IPv4 and of IPv6
	entries      map[netip.Prefix]E
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
	bits := &n.bits6
	if p.Addr().Is4() {
		bits = &n.bits4
	}
	if !slices.Contains(*bits, p.Bits()) {
		*bits = append(*bits, p.Bits())
	}
}

// longest returns the entry that ends last, of those whose networks contain a, and how long it still applies;
// nil: none. a is as address.Plain returns it, or invalid.
func (n *networkTable[E]) longest(a netip.Addr, i *Instance) (found E, left time.Duration) {
	if n.entries == nil || !a.IsValid() {
		return found, 0
	}
	var none E
	bits := n.bits6
	if a.Is4() {
		bits = n.bits4
	}
	for _, b := range bits {
		p, err := a.Prefix(b)
		if err != nil {
			continue // not from a valid address
		}
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
