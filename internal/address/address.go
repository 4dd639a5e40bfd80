// Package address says which client an address stands for, and which clients a network contains.
//
// An IPv4 client may arrive as IPv6: mapped (::ffff:0:0/96), through NAT64 (RFC 6052), by 6to4 (RFC
// 3056) or by Teredo (RFC 4380). It is still one client, and counts as its IPv4 address: otherwise
// all clients behind NAT64 would share one IPv6 network, and no IPv4 network would contain them.
//
// The host itself makes up its 6to4 or Teredo address. If the IPv4 address in it is not public
// (private, shared, loopback, link-local, multicast, reserved or of 0.0.0.0/8), it stays IPv6. So
// nobody can pass as a proxy at 10.0.0.1 with the address 2002:a00:1::1. The ranges for
// documentation, such as 203.0.113.0/24, count as public.
package address

import (
	"encoding/binary"
	"net/netip"
)

// NAT64 are a network's own NAT64 prefixes, besides the well-known 64:ff9b::/96. Those that Check
// refuses have no effect. nil: none.
type NAT64 []netip.Prefix

// Plain is the form of a in which clients are compared, counted and shown: without a zone, and as
// IPv4 if it embeds an IPv4 address. The zero Addr stays.
func Plain(a netip.Addr) netip.Addr { return NAT64(nil).Plain(a) }

// Plain is the function Plain, with the prefixes n too.
func (n NAT64) Plain(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	if a.Is4In6() {
		return a.Unmap()
	}
	a = a.WithZone("")
	b := a.As16()
	e := known(b)
	if e == nil && len(n) > 0 {
		own := n.around(a)
		e = &own
	}
	if e != nil {
		if v4, ok := e.read(b); ok {
			return v4
		}
	}
	return a
}

// Counted is the key of a client: an IPv4 address, or the network of ipv6Bits of an IPv6 address, such as
// 2001:db8:1:2::/64. ipv6Bits outside 1 to 128 count as 64. Empty: a is the zero Addr.
func Counted(a netip.Addr, ipv6Bits int) string {
	a = Plain(a)
	switch {
	case !a.IsValid():
		return ""
	case a.Is4():
		return a.String()
	}
	if ipv6Bits < 1 || ipv6Bits > 128 {
		ipv6Bits = 64
	}
	return string(netip.PrefixFrom(a, ipv6Bits).Masked().AppendTo(make([]byte, 0, 48)))
}

// embedding is a prefix whose addresses contain an IPv4 address. The zero embedding: none.
type embedding struct {
	prefix     netip.Prefix
	name       string
	at         int  // the bit where the IPv4 address begins
	split      bool // it goes around the octet of bits 64 to 71, which must be zero
	inverted   bool // its bits are
	globalOnly bool // it must be public
}

// The well-known embeddings. The function known has their prefixes, too.
var (
	wellKnown = embedding{prefix: netip.MustParsePrefix("64:ff9b::/96"), name: "NAT64", at: 96}
	sixToFour = embedding{prefix: netip.MustParsePrefix("2002::/16"), name: "6to4", at: 16, globalOnly: true}
	teredo    = embedding{prefix: netip.MustParsePrefix("2001::/32"), name: "Teredo", at: 96, inverted: true, globalOnly: true}
)

// known returns the well-known embedding that contains an address; nil: none.
func known(b [16]byte) *embedding {
	switch high := binary.BigEndian.Uint64(b[:]); {
	case high == 0x0064_ff9b<<32 && binary.BigEndian.Uint32(b[8:]) == 0:
		return &wellKnown
	case high>>48 == 0x2002:
		return &sixToFour
	case high>>32 == 0x2001_0000:
		return &teredo
	}
	return nil
}

// around returns the embedding of n that a is in, if any.
func (n NAT64) around(a netip.Addr) embedding {
	for _, p := range n {
		if isNAT64Length(p.Bits()) && p.Contains(a) {
			return embedding{prefix: p, name: "NAT64", at: p.Bits(), split: p.Bits() < 96}
		}
	}
	return embedding{}
}

func isNAT64Length(bits int) bool {
	switch bits {
	case 32, 40, 48, 56, 64, 96:
		return true
	}
	return false
}

// read returns the IPv4 address of b, which is in e; false: b stays IPv6.
func (e *embedding) read(b [16]byte) (v4 netip.Addr, ok bool) {
	if !e.fits(b) {
		return v4, false
	}
	v4 = e.extract(b)
	return v4, !e.globalOnly || isGlobal(v4)
}

// fits reports whether b, which is in e, has an IPv4 address. It is false for the zero embedding.
func (e *embedding) fits(b [16]byte) bool { return e.at > 0 && (!e.split || b[8] == 0) }

func (e *embedding) extract(b [16]byte) netip.Addr {
	var v4 [4]byte
	at := e.at / 8
	for i := range v4 {
		if e.split && at == 8 {
			at++
		}
		v4[i] = b[at]
		if e.inverted {
			v4[i] ^= 0xff
		}
		at++
	}
	return netip.AddrFrom4(v4)
}

// notGlobal are the IPv4 networks that are not public.
var notGlobal = [...]netip.Prefix{
	ipv4(0, 0, 8), ipv4(10, 0, 8), ipv4(100, 64, 10), ipv4(127, 0, 8),
	ipv4(169, 254, 16), ipv4(172, 16, 12), ipv4(192, 168, 16), ipv4(224, 0, 3),
}

func ipv4(first, second byte, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{first, second}), bits)
}

func isGlobal(a netip.Addr) bool {
	for _, p := range notGlobal {
		if p.Contains(a) {
			return false
		}
	}
	return true
}
