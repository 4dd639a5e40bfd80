package httplimit

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/address"
)

// Clients finds the address of the client that sent a request: the address of the
// connection or, if that is a trusted proxy, the address that the proxies report.
// The zero Clients trusts no proxy and reads no header. That is right if clients
// connect directly; behind a proxy, all clients then count as one. A Clients is safe
// for concurrent use as long as its fields do not change.
type Clients struct {
	// Trusted are the addresses of your own proxies, and no others: a connection
	// from one of them may report any client address. With 0.0.0.0/0, every client
	// chooses the address that it is counted by.
	Trusted []netip.Prefix
	// TrustLocal trusts connections without an IP address, over a Unix socket.
	// Otherwise all such connections count as one client.
	TrustLocal bool
	// Header is the header in which the proxies report the client. Every trusted proxy
	// must write it: if one passes it on unchanged, a client can invent it. "":
	// X-Forwarded-For. "Forwarded" is read as RFC 7239 says. Any other is read like
	// X-Forwarded-For; it may hold a single address, like X-Real-Ip.
	Header string
	// IPv6Bits is the length of the IPv6 prefix that Key counts by. 0, or a value
	// outside 1 to 128: 64, the smallest network that a subscriber gets, in which it
	// can change its address at will.
	IPv6Bits int
	// NAT64 are your network's own NAT64 prefixes (RFC 6052), such as 2001:db8:64::/96,
	// besides the well-known 64:ff9b::/96. Their lengths are 32, 40, 48, 56, 64 or 96;
	// others have no effect.
	NAT64 []netip.Prefix
}

// Addr returns the client's address without a zone. An IPv6 address that embeds an IPv4
// address (mapped, NAT64, 6to4 or Teredo) is that IPv4 address, for Trusted too. In 6to4 and
// Teredo, which a host can make up, it must be a public address: 2002:a00:1::1 is never
// 10.0.0.1.
//
// It is the address of the connection unless that is trusted. If it is, Addr reads the
// header's list from the right, several lines as one list, and returns the first address
// that is not trusted; the client could have written anything to the left of it. Addr
// returns the last address that it has read if it meets
//   - an element that is not an address: garbage, "unknown", an obfuscated name such as
//     _hidden, a Forwarded element without "for" or with two, or one far longer than
//     an address;
//   - the end of the list: the client itself is in a trusted network;
//   - the 32nd element: no real chain is that long.
//
// Addr drops ports and brackets and skips empty elements. It returns the zero Addr if
// neither the connection, such as a Unix socket, nor a header has an IP address.
func (c Clients) Addr(r *http.Request) netip.Addr {
	node, _ := parseNode(r.RemoteAddr)
	addr := c.plain(node)
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
		addr = c.plain(named)
		if !c.trusts(addr) {
			break
		}
	}
	return addr
}

// Key counts by the client's address; see Counted.
func (c Clients) Key(r *http.Request) string {
	return Counted(c.Addr(r), c.IPv6Bits)
}

// withClient returns next with the client's address in the contexts of its requests.
func (c Clients) withClient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(stint.WithClient(r.Context(), c.Key(r))))
	})
}

// Believes reports whether r came over a connection of a trusted proxy, so that its
// header is used.
func (c Clients) Believes(r *http.Request) bool {
	addr, ok := parseNode(r.RemoteAddr)
	if !ok {
		return c.TrustLocal
	}
	return c.trusts(c.plain(addr))
}

func (c Clients) plain(addr netip.Addr) netip.Addr { return address.NAT64(c.NAT64).Plain(addr) }

// trusts reports whether addr, which plain returned, is in Trusted.
func (c Clients) trusts(addr netip.Addr) bool {
	for _, p := range c.Trusted {
		if addr.Is4() && p.Addr().Is6() {
			p = address.NAT64(c.NAT64).PlainNetwork(p)
		}
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Counted returns the key of an address: an IPv4 address as it is, also one that an IPv6
// address embeds (see Clients.Addr), and any other IPv6 address as its network of v6bits,
// such as "2001:db8:1:2::/64". For v6bits see Clients.IPv6Bits. The zero Addr is "unknown",
// so that a client without an address is limited too.
func Counted(addr netip.Addr, v6bits int) string {
	if key := address.Counted(addr, v6bits); key != "" {
		return key
	}
	return "unknown"
}
