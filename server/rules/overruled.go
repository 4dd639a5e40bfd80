package rules

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
)

// BanOverruled says why the ban b refuses no client although it is in force: the safelist lets all its
// clients pass first, or its rule refuses nothing. Empty: b refuses, or that depends on more than the
// client's address.
func (s *Set) BanOverruled(b *Ban) string {
	if b.Network == "" {
		if r := s.ruleNamed(b.Rule); r != nil && r.Mode != Enforce {
			return fmt.Sprintf("the rule %s is in mode %s, which refuses no requests", r.Name, r.Mode)
		}
	}
	clients, ok := s.clientsOf(b.Network, b.Rule, b.Key)
	if !ok {
		return ""
	}
	if l, entry := s.listOf(clients); l == Safe {
		return "the safelist comes before bans and lets these clients pass: " + entry
	}
	return ""
}

// OverrideOverruled says why the override o changes nothing although it is in force: a list decides about its
// client before any limit. Empty: o has an effect, or that depends on more than the client's address.
func (s *Set) OverrideOverruled(o *Override) string {
	clients, ok := s.clientsOf("", o.Rule, o.Key)
	if !ok {
		return ""
	}
	switch l, entry := s.listOf(clients); l {
	case Safe:
		return "the safelist comes before limits and lets these clients pass: " + entry
	case Blocked:
		return "the blocklist comes before limits and refuses these clients: " + entry
	}
	return ""
}

// BlockOverruled says why the entry l of the blocklist refuses no client although it is in force: the
// safelist comes first. Empty: l refuses, or that depends on more than the client's address, as for every l
// with a Match.
func (s *Set) BlockOverruled(l *Listed) string {
	if clients, ok := s.clientsOf(l.Network, "", ""); ok {
		if l, entry := s.listOf(clients); l == Safe {
			return "the safelist comes before the blocklist and lets these clients pass: " + entry
		}
	}
	return ""
}

// countsClients reports whether keys of r are addresses of clients.
func (r *Rule) countsClients() bool {
	if r.Descriptor != nil {
		return r.Key == remoteAddress
	}
	return strings.TrimSpace(r.Key) == "client.ip"
}

// clientsOf is the network of an entry's clients; false if the entry is not by address.
func (s *Set) clientsOf(network, rule string, key Key) (netip.Prefix, bool) {
	if network == "" {
		r := s.ruleNamed(rule)
		if r == nil || !r.countsClients() {
			return netip.Prefix{}, false
		}
		network = string(key)
	}
	p, err := s.ParseNetwork(network)
	return p, err == nil
}

// listOf is the list that has all of a network's clients, and its entry. It checks the first and the last
// address only.
func (s *Set) listOf(clients netip.Prefix) (List, string) {
	first, last := clients.Addr(), lastOf(clients)
	l, entry := s.listOfClient(first)
	if l == Unlisted || last == first {
		return l, entry
	}
	if other, _ := s.listOfClient(last); other != l {
		return Unlisted, ""
	}
	return l, entry
}

func (s *Set) listOfClient(a netip.Addr) (List, string) {
	var ev evaluation
	ev.open(context.Background(), s, &Input{Client: a, Cost: 1})
	l, entry, err := s.listed(&ev)
	if err != nil || l == Unlisted {
		return Unlisted, ""
	}
	return l, entry.String()
}

func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}
