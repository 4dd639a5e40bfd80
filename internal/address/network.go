package address

import (
	"fmt"
	"net/netip"
	"slices"
)

// PlainNetwork is p as a network of Plain addresses: without bits beyond its prefix, and as IPv4 if
// it determines the embedded IPv4 addresses. A network that does not, such as 2002::/16 or
// 64:ff9b::/96, stays IPv6: lists of networks that should not appear on the Internet contain it,
// and 0.0.0.0/0 would be everyone. See Hollow.
func PlainNetwork(p netip.Prefix) netip.Prefix { return NAT64(nil).PlainNetwork(p) }

// PlainNetwork is the function PlainNetwork, with the prefixes n too.
func (n NAT64) PlainNetwork(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p = p.Masked(); !p.Addr().Is6() {
		return p
	}
	e := n.embeddingAround(p)
	if v4 := e.network(p); v4.IsValid() && e.maps(v4) {
		return v4
	}
	return p
}

// Hollow says why p, a PlainNetwork, does not contain the clients that it seems to, whose IPv6
// addresses embed IPv4 addresses; empty: it does.
func (n NAT64) Hollow(p netip.Prefix) string {
	if !p.Addr().Is6() {
		return ""
	}
	e := n.embeddingAround(p)
	v4 := e.network(p)
	if !v4.IsValid() || e.globalOnly && slices.ContainsFunc(notGlobal[:], func(outer netip.Prefix) bool { return holds(outer, v4) }) {
		return "" // its addresses stay IPv6
	}
	write := v4.String()
	if v4.Bits() == 0 {
		write = "such as 203.0.113.0/24"
	}
	return fmt.Sprintf("the addresses in %s embed IPv4 addresses (%s) and count as those, which are never in it: write the network of IPv4, %s", p, e.name, write)
}

// embeddingAround returns the embedding that all of p is in, if any. p is masked.
func (n NAT64) embeddingAround(p netip.Prefix) embedding {
	e := n.around(p.Addr())
	if k := known(p.Addr().As16()); k != nil {
		e = *k
	}
	if e.prefix.Bits() > p.Bits() {
		return embedding{}
	}
	return e
}

// network is the network of the IPv4 addresses of p, which is in e. Invalid: e is none, or the
// addresses in p stay IPv6.
func (e *embedding) network(p netip.Prefix) netip.Prefix {
	b := p.Addr().As16()
	if !e.fits(b) {
		return netip.Prefix{}
	}
	said := p.Bits() - e.at
	if e.split && p.Bits() > 64 {
		said -= min(p.Bits()-64, 8)
	}
	return netip.PrefixFrom(e.extract(b), min(max(said, 0), 32)).Masked()
}

// maps reports whether addresses in e count as all of v4, which is not all of IPv4.
func (e *embedding) maps(v4 netip.Prefix) bool {
	return v4.Bits() > 0 && !(e.globalOnly && slices.ContainsFunc(notGlobal[:], v4.Overlaps))
}

// holds reports whether all of inner is in outer.
func holds(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// Check says why p cannot be a NAT64 prefix together with n.
func (n NAT64) Check(p netip.Prefix) error {
	if !p.Addr().Is6() || p.Addr().Is4In6() {
		return fmt.Errorf("%s: want a prefix of IPv6, such as 2001:db8:64::/96", p)
	}
	if !isNAT64Length(p.Bits()) {
		return fmt.Errorf("%s: the length of a NAT64 prefix is 32, 40, 48, 56, 64 or 96", p)
	}
	if p != p.Masked() {
		return fmt.Errorf("%s: it has bits beyond the prefix: write %s", p, p.Masked())
	}
	if p.Addr().As16()[8] != 0 {
		return fmt.Errorf("%s: bits 64 to 71 of a NAT64 prefix must be zero", p)
	}
	if p == wellKnown.prefix {
		return fmt.Errorf("%s: it is known to be NAT64 and need not be listed", p)
	}
	for _, e := range [...]embedding{mapped, wellKnown, sixToFour, teredo} {
		if p.Overlaps(e.prefix) {
			return fmt.Errorf("%s: it overlaps %s, which is %s", p, e.prefix, e.name)
		}
	}
	for _, other := range n {
		if p.Overlaps(other) {
			return fmt.Errorf("%s: it overlaps %s, which is listed before", p, other)
		}
	}
	return nil
}

// mapped is the embedding that Addr.Unmap removes.
var mapped = embedding{prefix: netip.MustParsePrefix("::ffff:0:0/96"), name: "IPv4 mapped to IPv6"}
