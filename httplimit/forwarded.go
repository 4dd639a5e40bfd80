package httplimit

import (
	"net/netip"
	"strings"
)

// These bound the number and length of elements that are read, so that a header of a
// megabyte costs no more than a real one.
const (
	maxHops          = 32
	longestNode      = 128 // more than an IPv6 address with zone, brackets, port and blanks
	longestForwarded = 1024
)

// backwards reads the elements of a list header from the last to the first.
//
// The nearest proxy wrote the last one and closed its quotes, so it is found whatever the
// client wrote to its left. Read from the left, an open quote from the client would swallow
// what the proxies added.
type backwards struct {
	lines   []string // whole lines still to be read
	line    string   // rest of the line being read
	open    bool     // whether line has more elements
	longest int      // maximal length of an element, in bytes
	quotes  bool     // commas may be quoted
}

// next returns the next element without the blanks around it; it may be empty. It
// returns false at the end of the list and at an element that is too long.
func (b *backwards) next() (string, bool) {
	if !b.open {
		last := len(b.lines) - 1
		if last < 0 {
			return "", false
		}
		b.line, b.lines = b.lines[last], b.lines[:last]
	}
	start := max(0, len(b.line)-b.longest-1)
	comma := lastComma(b.line[start:], b.quotes)
	element := b.line[start+comma+1:]
	b.open = comma >= 0
	if b.open {
		b.line = b.line[:start+comma]
	}
	return strings.Trim(element, " \t"), len(element) <= b.longest
}

// lastComma returns the index of the last comma outside quotes, or -1.
func lastComma(s string, quotes bool) int {
	if !quotes {
		return strings.LastIndexByte(s, ',')
	}
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch s[i] {
		case ',':
			if !quoted {
				return i
			}
		case '"':
			before := strings.TrimRight(s[:i], `\`)
			if escaped := (i-len(before))%2 == 1; !escaped {
				quoted = !quoted
			}
		}
	}
	return -1
}

// parseForwarded finds the address in one element of Forwarded, such as
// `for="[2001:db8::1]:4711";proto=https`. It accepts quotes only around a whole value,
// so that it and lastComma agree on what is in quotes.
func parseForwarded(element string) (netip.Addr, bool) {
	var node string
	found := false
	for {
		name, rest, ok := strings.Cut(element, "=")
		if !ok || strings.Contains(name, `"`) {
			return netip.Addr{}, false
		}
		value, rest, ok := cutValue(rest)
		if !ok {
			return netip.Addr{}, false
		}
		if strings.EqualFold(strings.Trim(name, " \t"), "for") {
			if found {
				return netip.Addr{}, false
			}
			node, found = value, true
		}
		if rest == "" {
			break
		}
		element = rest[1:] // rest begins with a semicolon
	}
	if !found {
		return netip.Addr{}, false
	}
	return parseNode(node)
}

// cutValue cuts the value, a token or a quoted string, off the start of s. Nothing or a
// semicolon must follow it.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		i := strings.IndexByte(s, ';')
		if i < 0 {
			i = len(s)
		}
		return strings.TrimRight(s[:i], " \t"), s[i:], !strings.Contains(s[:i], `"`)
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			rest = strings.TrimLeft(s[i+1:], " \t")
			return b.String(), rest, rest == "" || rest[0] == ';'
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// parseNode parses an address as proxies and sockets write it: bare, with a port, or in
// brackets, which an IPv6 address with a port must have. It drops the zone.
func parseNode(s string) (netip.Addr, bool) {
	host, port, brackets := s, "", false
	if strings.HasPrefix(s, "[") {
		var ok bool
		if host, port, ok = strings.Cut(s[1:], "]"); !ok {
			return netip.Addr{}, false
		}
		brackets = true
	} else if i := strings.IndexByte(s, ':'); i >= 0 && i == strings.LastIndexByte(s, ':') {
		host, port = s[:i], s[i:]
	}
	if port != "" && !isPort(port) {
		return netip.Addr{}, false
	}
	host, zone, zoned := strings.Cut(host, "%")
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Is4() && (brackets || zoned) || zoned && zone == "" {
		return netip.Addr{}, false
	}
	return addr, true
}

// isPort reports whether s is a port such as ":4711" or, as RFC 7239 allows, ":_x".
func isPort(s string) bool {
	s, ok := strings.CutPrefix(s, ":")
	if !ok {
		return false
	}
	if hidden, ok := strings.CutPrefix(s, "_"); ok {
		return hidden != "" && strings.Trim(hidden, "._-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
	}
	return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}
