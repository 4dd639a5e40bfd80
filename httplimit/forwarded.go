package httplimit

import (
	"net/netip"
	"strings"
)

// What a walk looks at is bounded in elements and in the length of each, so that
// a megabyte of header costs no more than an honest one.
const (
	maxHops          = 32
	longestNode      = 128 // an IPv6 address with zone, brackets, port and blanks has room to spare
	longestForwarded = 1024
)

// backwards walks the elements of a list header from the last to the first.
//
// It reads from the right because the right is what the nearest proxy wrote: an
// element of honest make, whose quotes are closed, is found whatever stands left
// of it. Read from the left, a lone quote sent by the client would swallow what
// the proxies added.
type backwards struct {
	lines   []string // whole lines still to be read
	line    string   // what is left of the line being read
	open    bool     // whether anything is
	longest int      // bytes of an element
	quotes  bool     // commas may be quoted
}

// next is the next element without the blanks around it, perhaps empty. It is
// false at the end of the list, and at an element that is too long.
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

// lastComma is the index of the last comma that is not in quotes, or -1.
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
// `for="[2001:db8::1]:4711";proto=https`. It takes quotes only where they belong,
// around a whole value: then it and lastComma agree on what is in quotes.
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
		element = rest[1:] // what cutValue left begins with a semicolon
	}
	if !found {
		return netip.Addr{}, false
	}
	return parseNode(node)
}

// cutValue cuts the value off s, a token or a quoted string, which must be
// followed by nothing or by a semicolon.
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

// parseNode reads an address as proxies and sockets write it: bare, with a port,
// or in brackets, which an IPv6 address with a port must have.
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
	return addr.Unmap(), true
}

// isPort takes ":4711" and, as RFC 7239 allows, an obfuscated ":_x".
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
