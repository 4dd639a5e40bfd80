package accesslog

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape undoes the escapes of nginx (\x22), of Apache (\" \\ \n \x7f), of JSON (\u00e9) and of Go. They do not
// contradict each other: each of these servers escapes a backslash of the request. A text without a
// backslash is returned as it is.
func unescape(text string) string {
	i := strings.IndexByte(text, '\\')
	if i < 0 {
		return text
	}
	b := make([]byte, 0, len(text))
	for i >= 0 {
		b = append(b, text[:i]...)
		text = text[i:]
		n := 0
		if b, n = appendEscaped(b, text); n == 0 {
			b, n = append(b, '\\'), 1
		}
		text = text[n:]
		i = strings.IndexByte(text, '\\')
	}
	return string(append(b, text...))
}

var shortEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', '\'': '\'', 'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v'}

// appendEscaped appends what the escape at the beginning of text stands for, and returns its length; 0: it is none.
func appendEscaped(b []byte, text string) ([]byte, int) {
	if len(text) < 2 {
		return b, 0
	}
	if c := shortEscapes[text[1]]; c != 0 {
		return append(b, c), 2
	}
	switch text[1] {
	case 'x':
		if c, ok := hex(text, 2, 2); ok {
			return append(b, byte(c)), 4
		}
	case 'u':
		r, ok := hex(text, 2, 4)
		if !ok {
			return b, 0
		}
		if low, ok := hex(text, 8, 4); ok && utf16.IsSurrogate(r) && text[6] == '\\' && text[7] == 'u' {
			if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
				return utf8.AppendRune(b, both), 12
			}
		}
		return utf8.AppendRune(b, r), 6
	case 'U':
		if r, ok := hex(text, 2, 8); ok {
			return utf8.AppendRune(b, r), 10
		}
	}
	return b, 0
}

// unescapeHash undoes the escapes of HAProxy, such as #22.
func unescapeHash(text string) string {
	i := strings.IndexByte(text, '#')
	if i < 0 {
		return text
	}
	b := make([]byte, 0, len(text))
	for ; i >= 0; i = strings.IndexByte(text, '#') {
		b = append(b, text[:i]...)
		if c, ok := hex(text, i+1, 2); ok {
			b, text = append(b, byte(c)), text[i+3:]
		} else {
			b, text = append(b, '#'), text[i+1:]
		}
	}
	return string(append(b, text...))
}

// hex reads n hexadecimal digits.
func hex(text string, from, n int) (rune, bool) {
	if len(text) < from+n {
		return 0, false
	}
	v, err := strconv.ParseUint(text[from:from+n], 16, 31)
	return rune(v), err == nil
}

// addressOf reads an address, maybe in brackets. Invalid: text is something else, as the name of a host.
func addressOf(text string) netip.Addr {
	if a, n := ipv4(text); n == len(text) {
		return a
	}
	if len(text) > 2 && text[0] == '[' && text[len(text)-1] == ']' {
		text = text[1 : len(text)-1]
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}

// clientOf reads an address that may have a port, but for IPv6 without brackets, whose last part might be one.
func clientOf(text string) netip.Addr {
	a, n := ipv4(text)
	if n == len(text) || n > 0 && text[n] == ':' && number(text[n+1:]) >= 0 {
		return a
	}
	if strings.HasPrefix(text, "[") {
		return peerOf(text)
	}
	return addressOf(text)
}

// peerOf reads an address and what follows its last colon, a port.
func peerOf(text string) netip.Addr {
	if i := strings.LastIndexByte(text, ':'); i >= 0 && number(text[i+1:]) >= 0 {
		return addressOf(text[:i])
	}
	return addressOf(text)
}

// ipv4 reads an IPv4 address at the beginning of text, and returns its length; 0: there is none.
func ipv4(text string) (netip.Addr, int) {
	var b [4]byte
	part, value, digits := 0, 0, 0
	i := 0
	for ; i < len(text); i++ {
		c := text[i]
		if isDigit(c) {
			if digits > 0 && value == 0 {
				return netip.Addr{}, 0
			}
			value = value*10 + int(c-'0')
			digits++
			if value > 255 {
				return netip.Addr{}, 0
			}
			continue
		}
		if c != '.' || part == 3 || digits == 0 {
			break
		}
		b[part], value, digits = byte(value), 0, 0
		part++
	}
	if part != 3 || digits == 0 {
		return netip.Addr{}, 0
	}
	b[3] = byte(value)
	return netip.AddrFrom4(b), i
}
