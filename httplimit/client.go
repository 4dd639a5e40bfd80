package httplimit

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/stintdev/stint"
)

// Clients tells who sent a request: the address at the other end of the
// connection or, where that is a trusted proxy, the one that the proxies name.
// The zero Clients trusts nobody and reads no header, which is right where
// clients connect directly and wrong behind any proxy, for there it takes the
// proxy for everyone. A Clients may be used from many goroutines at once, as
// long as its fields do not change.
type Clients struct {
	// Trusted are the addresses of your own proxies, and of nobody else: who
	// connects from one of them is believed about the client's address. Where
	// it holds 0.0.0.0/0, everyone chooses the address they are counted by.
	Trusted []netip.Prefix
	// TrustLocal believes what connects without an IP address, over a Unix
	// socket. Otherwise all such connections count as one client.
	TrustLocal bool
	// Header is the one that the trusted proxies write, and every one of them
	// must write it: a header that they merely pass on is the client's to
	// invent. "": X-Forwarded-For. "Forwarded" is read by RFC 7239. Any other
	// is read as X-Forwarded-For is, of which a header that holds a single
	// address, such as X-Real-Ip, is the simplest case.
	Header string
	// IPv6Bits is how much of an IPv6 address Key counts by. 0, or what is not
	// from 1 to 128: 64, the least that one subscriber is given, within which
	// an address can be changed at will.
	IPv6Bits int
}

// Addr is the client's address, never IPv4-mapped and without a zone.
//
// It is that of the socket unless that is trusted. Then the header's addresses
// are walked from the right, several lines of it being one list, to the first
// that is not trusted; what stands left of it, the client could have written.
// The walk ends early, with the last address reached, at
//   - what is no address: garbage, "unknown", an obfuscated name such as
//     _hidden, a Forwarded element without "for" or with two, or an element that
//     is far longer than any address;
//   - the end of the list, where all are trusted: the client is then itself in
//     a trusted network;
//   - the 32nd element; no honest chain is that long.
//
// Ports and brackets are dropped, empty elements skipped. Where not even the
// socket has an IP address, as a Unix socket has none, and no header gives one,
// it is the zero Addr.
func (c Clients) Addr(r *http.Request) netip.Addr {
	addr, _ := parseNode(r.RemoteAddr)
	if !c.Believes(r) {
		return addr
	}
	name := c.Header
	if name == "" {
		name = "X-Forwarded-For"
	}
	list, parse := backwards{lines: r.Header.Values(name), longest: longestNode}, parseNode
	if strings.EqualFold(name, "Forwarded") {
		list.longest, list.quotes, parse = longestForwarded, true, parseForwarded
	}
	for range maxHops {
		element, ok := list.next()
		if !ok {
			break
		}
		if element == "" {
			continue
		}
		named, ok := parse(element)
		if !ok {
			break
		}
		addr = named
		if !c.trusts(addr) {
			break
		}
	}
	return addr
}

// Key counts by the client's address; see Counted. It is a Key.
func (c Clients) Key(r *http.Request) string {
	return Counted(c.Addr(r), c.IPv6Bits)
}

// tell is next with the client's address in the contexts of requests.
func (c Clients) tell(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(stint.WithClient(r.Context(), c.Key(r))))
	})
}

// Believes tells whether the connection that r came by is a trusted proxy's, so
// that its word about the client counts.
func (c Clients) Believes(r *http.Request) bool {
	addr, ok := parseNode(r.RemoteAddr)
	if !ok {
		return c.TrustLocal
	}
	return c.trusts(addr)
}

// trusts wants an address that is unmapped.
func (c Clients) trusts(addr netip.Addr) bool {
	for _, p := range c.Trusted {
		// A prefix in mapped form would never match an unmapped address.
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Counted is the text of what an address counts as: an IPv4 address, mapped or
// not, is itself, and an IPv6 address is its network of v6bits, such as
// "2001:db8:1:2::/64". v6bits is as Clients.IPv6Bits. The zero Addr is
// "unknown": nobody escapes a limit by having no address.
func Counted(addr netip.Addr, v6bits int) string {
	addr = addr.Unmap()
	switch {
	case !addr.IsValid():
		return "unknown"
	case addr.Is4():
		return addr.String()
	}
	if v6bits < 1 || v6bits > 128 {
		v6bits = 64
	}
	p := netip.PrefixFrom(addr.WithZone(""), v6bits).Masked()
	b := p.Addr().AppendTo(make([]byte, 0, 48))
	return string(strconv.AppendInt(append(b, '/'), int64(v6bits), 10))
}
