package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"
)

// Parse reads an address as a person may write it, ignoring blanks and brackets around it. An error
// shows the right spelling if it is known.
func Parse(text string) (netip.Addr, error) {
	text = bare(text)
	a, err := netip.ParseAddr(text)
	if err == nil {
		return a, nil
	}
	if fewer := withoutZeros(text); fewer != text {
		if a, err := netip.ParseAddr(fewer); err == nil {
			return netip.Addr{}, zeros(a, a)
		}
	}
	if p, err := netip.ParseAddrPort(text); err == nil {
		return netip.Addr{}, fmt.Errorf("it has a port: write %s", p.Addr())
	}
	return netip.Addr{}, ErrAddress
}

// ParseNetwork reads a network such as 10.0.0.0/8, or one address, as Parse does, and returns its
// PlainNetwork. It ignores a zone.
func (n NAT64) ParseNetwork(text string) (netip.Prefix, error) {
	text = bare(text)
	p, err := netip.ParsePrefix(text)
	if err == nil {
		return n.PlainNetwork(p), nil
	}
	host, length, isNetwork := strings.Cut(text, "/") // to netip, a zone may have a slash
	if !isNetwork {
		a, err := Parse(text)
		if errors.Is(err, ErrAddress) {
			err = errNetwork
		}
		a = n.Plain(a)
		return netip.PrefixFrom(a, a.BitLen()), err
	}
	if fewer := withoutZeros(text); fewer != text {
		if p, err := netip.ParsePrefix(fewer); err == nil {
			return netip.Prefix{}, zeros(p.Addr(), p)
		}
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		if ones, ok := maskLength(length); ok {
			return netip.Prefix{}, fmt.Errorf("want the length of the prefix, and no mask: write %s", netip.PrefixFrom(a, ones).Masked())
		}
	}
	return netip.Prefix{}, errNetwork
}

// ErrAddress is the error of Parse if no right spelling is known.
var ErrAddress = errors.New("want an IP address such as 192.0.2.1")

var errNetwork = errors.New("must be a network such as 10.0.0.0/8, or an address")

// zeros is the error for numbers with leading zeros, without which a would be right.
func zeros(a netip.Addr, right fmt.Stringer) error {
	if a.Is4() {
		return fmt.Errorf("a number that begins with 0 may be octal: write %s", right)
	}
	return fmt.Errorf("a number has too many zeros before it: write %s", right)
}

// bare is text without blanks around it, and without brackets around its address.
func bare(text string) string {
	text = strings.TrimSpace(text)
	if host, rest, ok := strings.Cut(text, "]"); ok && strings.HasPrefix(host, "[") && (rest == "" || rest[0] == '/') {
		return host[1:] + rest
	}
	return text
}

// withoutZeros is text without leading zeros of numbers.
func withoutZeros(text string) string {
	var b strings.Builder
	begins := true
	for i := range len(text) {
		if begins && text[i] == '0' && i+1 < len(text) && isHex(text[i+1]) {
			continue
		}
		begins = !isHex(text[i])
		b.WriteByte(text[i])
	}
	return b.String()
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

// maskLength is how many bits a mask of IPv4 such as 255.255.255.0 keeps.
func maskLength(text string) (int, bool) {
	mask, err := netip.ParseAddr(text)
	if err != nil || !mask.Is4() {
		return 0, false
	}
	b := mask.As4()
	m := binary.BigEndian.Uint32(b[:])
	ones := bits.LeadingZeros32(^m)
	return ones, m<<ones == 0
}
