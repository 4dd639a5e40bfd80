package rules

import (
	"net/netip"
	"slices"
)

// findTrustAll looks for proxies that are everybody. places are theirs.
func (s *Set) findTrustAll(places []string) {
	for _, all := range [...]struct {
		network netip.Prefix
		name    string
	}{
		{netip.MustParsePrefix("0.0.0.0/0"), "IPv4 address"},
		// All addresses in public use are in it.
		{netip.MustParsePrefix("2000::/3"), "public IPv6 address"},
	} {
		if !covered(all.network, s.TrustedProxies) {
			continue
		}
		first := slices.IndexFunc(s.TrustedProxies, all.network.Overlaps)
		text := "this network and others of trusted_proxies together hold every "
		if alone := slices.IndexFunc(s.TrustedProxies, func(p netip.Prefix) bool { return covers(p, all.network) }); alone >= 0 {
			first, text = alone, "this network of trusted_proxies holds every "
		}
		s.Findings = append(s.Findings, Finding{CodeTrustAll, places[first], text + all.name +
			", so that every client chooses the address that it is counted by: list your own proxies only"})
	}
}

// covered tells whether the networks together hold all of whole.
func covered(whole netip.Prefix, by []netip.Prefix) bool {
	var within []netip.Prefix
	for _, p := range by {
		if covers(p, whole) {
			return true
		}
		if whole.Overlaps(p) {
			within = append(within, p)
		}
	}
	if len(within) < 2 { // less than whole
		return false
	}
	lower, upper := halves(whole)
	return covered(lower, within) && covered(upper, within)
}

func covers(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// halves of a network that is more than one address.
func halves(p netip.Prefix) (lower, upper netip.Prefix) {
	bits := p.Bits() + 1
	last := slices.Clone(p.Addr().AsSlice())
	last[(bits-1)/8] |= 1 << (7 - (bits-1)%8)
	a, _ := netip.AddrFromSlice(last)
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(a, bits)
}
