// Package httpfield knows which HTTP headers may have several lines, which names of headers and
// parameters servers confuse, and how to read the header Host.
package httpfield

import (
	"mime"
	"net/http"
	"strings"
)

// lists are the headers whose lines HTTP lets anyone join with commas.
var lists = names("Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Accept-Patch",
	"Accept-Ranges", "Access-Control-Request-Headers", "Allow", "Baggage", "Cache-Control", "Cdn-Loop", "Connection",
	"Content-Encoding", "Content-Language", "Expect", "Forwarded", "If-Match", "If-None-Match", "Link", "Pragma",
	"Prefer", "Priority", "Sec-Ch-Ua", "Sec-Ch-Ua-Full-Version-List", "Sec-Websocket-Extensions",
	"Sec-Websocket-Protocol", "Te", "Trailer", "Tracestate", "Transfer-Encoding", "Upgrade", "Vary", "Via",
	"Warning", "X-Forwarded-For")

// singles are the request headers that HTTP allows only in one line. Of several lines, some servers
// take the first, some the last, and some refuse.
var singles = names("Authorization", "Content-Length", "Content-Location", "Content-Type", "Date", "From", "Host",
	"If-Modified-Since", "If-Range", "If-Unmodified-Since", "Max-Forwards", "Origin", "Proxy-Authorization",
	"Range", "Referer", "User-Agent")

func names(all ...string) map[string]bool {
	set := make(map[string]bool, len(all))
	for _, name := range all {
		set[name] = true
	}
	return set
}

// IsList reports whether lines of the header with this canonical name are joined by commas.
func IsList(name string) bool { return lists[name] }

// Repeated returns the name of a header that must not have several lines and does; "": none.
func Repeated(h http.Header) string {
	for name, lines := range h {
		if len(lines) > 1 && singles[name] {
			return name
		}
	}
	return ""
}

// Joined is the value of several lines of the header with this canonical name.
func Joined(name string, lines []string) string {
	if name == "Cookie" {
		return strings.Join(lines, "; ")
	}
	return strings.Join(lines, ", ")
}

// HasTwin reports whether h has a header that some servers take for this one: CGI and its heirs
// (WSGI, Rack, PHP) write X_User and X-User alike. Names that differ only in case are not twins:
// net/http joins them.
func HasTwin(h http.Header, name string) bool {
	for other := range h {
		if isHeaderTwin(other, name) {
			return true
		}
	}
	return false
}

// DropTwins removes from h the twins of the headers with these names.
func DropTwins(h http.Header, names ...string) {
	for other := range h {
		for _, name := range names {
			if isHeaderTwin(other, name) {
				delete(h, other)
			}
		}
	}
}

// isHeaderTwin reports whether some servers, but not net/http, take one header for the other.
func isHeaderTwin(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if foldHeader(a[i]) != foldHeader(b[i]) {
			return false
		}
	}
	return !strings.EqualFold(a, b)
}

// FoldHeader returns a form that a name shares only with its twins.
func FoldHeader(name string) string {
	b := []byte(name)
	for i, c := range b {
		b[i] = foldHeader(c)
	}
	return string(b)
}

func foldHeader(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		return c
	}
	return '-'
}

// IsParameterTwin reports whether some servers take parameter a for b. To PHP, Rack and Node's qs
// user[] is a list user; PHP drops spaces before a name and makes underscores of dots and spaces in
// it; C ends it at a NUL; ASP.NET ignores case.
func IsParameterTwin(a, b string) bool {
	a, b = strings.TrimLeft(a, " "), strings.TrimLeft(b, " ")
	i := 0
	for ; i < len(a) && i < len(b); i++ {
		x, y := foldParameter(a[i]), foldParameter(b[i])
		if endsName(a, i) || endsName(b, i) {
			break
		}
		if x != y {
			return false
		}
	}
	return endsName(a, i) && endsName(b, i)
}

// FoldParameter returns a form that a name shares only with its twins.
func FoldParameter(name string) string {
	b := []byte(strings.TrimLeft(name, " "))
	for i, c := range b {
		if endsName(string(b), i) {
			return string(b[:i])
		}
		b[i] = foldParameter(c)
	}
	return string(b)
}

// endsName reports whether for some servers a parameter's name ends before its i-th byte.
func endsName(name string, i int) bool {
	return i == len(name) || i > 0 && name[i] == '[' || name[i] == 0
}

func foldParameter(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	case c == '.', c == ' ':
		return '_'
	}
	return c
}

// IsJSON reports whether a body is declared to be JSON. A page on another site cannot do that
// without a preflight (CORS).
func IsJSON(h http.Header) bool {
	lines := h["Content-Type"]
	if len(lines) != 1 {
		return false
	}
	if lines[0] == "application/json" {
		return true
	}
	kind, _, err := mime.ParseMediaType(lines[0])
	return err == nil && kind == "application/json"
}
