package httpfield

import (
	"errors"
	"net"
	"net/netip"
	"strings"
)

var errHostName = errors.New("want a name or an address, such as example.com, 192.0.2.1:8080 or [2001:db8::1], with or without a port")

// ReadHost is h in the form in which rules and routes compare hosts: in lower case, without port,
// final dot and the brackets of IPv6. Anything but a name or an address, with or without a port, is
// an error, because servers differ: nginx takes a of a:80:80, URL parsers read x@a and %61, and
// net/http changes letters beyond ASCII on the way to an upstream. "" is fine: the request has
// none.
func ReadHost(h string) (string, error) {
	name, port := h, ""
	if i := strings.LastIndexByte(h, ':'); i >= 0 && !strings.HasSuffix(h, "]") {
		name, port = h[:i], h[i+1:]
	}
	if strings.HasPrefix(name, "[") {
		a, err := netip.ParseAddr(strings.TrimSuffix(name[1:], "]"))
		if err != nil || !a.Is6() || a.Zone() != "" || !strings.HasSuffix(name, "]") {
			return "", errHostName
		}
	} else if !consistsOf(name, isHostByte) || name == "" && h != "" {
		return "", errHostName
	}
	if !consistsOf(port, isDigit) {
		return "", errHostName
	}
	return CanonicalHost(h), nil
}

func consistsOf(text string, is func(byte) bool) bool {
	for i := range len(text) {
		if !is(text[i]) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHostByte(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '.' || c == '_' || c == '~'
}

// CanonicalHost is the form that ReadHost makes, of any text.
func CanonicalHost(h string) string {
	if strings.IndexByte(h, ':') < 0 && !strings.HasPrefix(h, "[") {
		return strings.TrimSuffix(strings.ToLower(h), ".")
	}
	if host, _, err := net.SplitHostPort(h); err == nil {
		h = host
	}
	h = strings.TrimSuffix(strings.ToLower(h), ".")
	if strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]") {
		h = h[1 : len(h)-1]
	}
	return h
}

// IsLoopback reports whether requests to a host stay on this machine. Names other than localhost
// are not looked up in the DNS, whose answer may change.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// IsLoopbackAddress is IsLoopback of an address with a port.
func IsLoopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && IsLoopback(host)
}
