package rules

import (
	"errors"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"
)

// Target is the target of an HTTP request: the middle of its first line, or :path.
type Target struct {
	// RawPath and RawQuery are as sent. RawPath begins with a slash. HasQuery is true if
	// there was a question mark, even if RawQuery is empty.
	RawPath, RawQuery string
	HasQuery          bool
	// Path is the normal form of RawPath; see ReadTarget.
	Path string
	// Ambiguous is what servers read in different ways.
	Ambiguous Ambiguity
}

// ReadTarget reads the target of a request: /path?query, or the same behind scheme://authority. These are
// errors: other targets, such as CONNECT's; a # anywhere, which no proper client sends and at which many
// servers end the target; a malformed escape in the path; a control character, in the path escaped or not, in
// the query unescaped; and an unescaped space, at which HTTP/1.1 ends the target and HTTP/2 does not.
//
// The normal form of a path: percent-escapes are decoded once, including the slash; empty segments are
// dropped; then each "." is dropped, and each ".." with the segment before it. A slash at the end stays, and
// so do the case of letters, a backslash, and a semicolon with the text after it.
//
// Ambiguous has what some servers read in another way. Escapes of ordinary
// characters are not in it, and neither are empty segments after the first: a
// server that keeps them sees another path, but none whose proper form is the
// shorter one.
func ReadTarget(target string) (Target, error) {
	origin, err := originForm(target)
	if err != nil {
		return Target{}, err
	}
	for i := range len(origin) {
		switch c := origin[i]; {
		case c == '#':
			return Target{}, errFragment
		case c == ' ', isControl(rune(c)):
			return Target{}, errControl
		}
	}
	var t Target
	t.RawPath, t.RawQuery, t.HasQuery = strings.Cut(origin, "?")
	if t.RawPath == "" {
		t.RawPath = "/"
	}
	t.Path = t.RawPath
	if !isPlain(t.RawPath) {
		decoded, err := url.PathUnescape(t.RawPath)
		if err != nil {
			return Target{}, err
		}
		if strings.ContainsFunc(decoded, isControl) {
			return Target{}, errControl
		}
		t.Path, t.Ambiguous = CleanPath(decoded), pathAmbiguity(t.RawPath, decoded)
	}
	t.Ambiguous |= AmbiguousQuery(t.RawQuery)
	return t, nil
}

var (
	errFragment = errors.New("it has a #, which is never sent")
	errControl  = errors.New("it has a space or a control character")
)

func isControl(c rune) bool { return c < ' ' || c == 0x7f }

// AmbiguousQuery returns the ambiguities of a query as it was sent.
func AmbiguousQuery(raw string) (a Ambiguity) {
	if strings.IndexByte(raw, ';') >= 0 {
		a |= QuerySemicolon
	}
	if strings.Contains(raw, "%00") {
		a |= QueryNUL
	}
	return a
}

func originForm(target string) (string, error) {
	if strings.HasPrefix(target, "/") {
		return target, nil
	}
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || strings.ContainsAny(scheme, "/?#") {
		return "", errors.New("neither a path nor a URL")
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		return rest[end:], nil
	}
	return "/", nil
}

// isPlain reports whether a path is surely its own normal form and not ambiguous. It may be false for such a
// path.
func isPlain(p string) bool {
	for i := range len(p) {
		switch c := p[i]; {
		case c <= ' ', c > '~', c == '%', c == ';', c == '\\', c == '#':
			return false
		case c == '/' && i+1 < len(p) && (p[i+1] == '/' || p[i+1] == '.'):
			return false
		}
	}
	return true
}

// CleanPath is p, a decoded path, without empty and dot segments, and with a slash before it. A slash at the
// end stays. "" stays "".
func CleanPath(p string) string {
	if p == "" {
		return ""
	}
	if p[0] != '/' {
		p = "/" + p
	}
	clean := path.Clean(p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	return clean
}

func pathAmbiguity(raw, decoded string) (a Ambiguity) {
	if strings.HasPrefix(raw, "//") {
		a |= LeadingSlashes
	}
	if strings.Count(decoded, "/") > strings.Count(raw, "/") {
		a |= EncodedSlash
	}
	if !utf8.ValidString(decoded) {
		a |= NotUTF8
	}
	for i := range len(decoded) {
		switch c := decoded[i]; {
		case c == '\\':
			a |= Backslash
		case c == ';':
			a |= Semicolon
		case c == '%' && i+2 < len(decoded) && isHex(decoded[i+1]) && isHex(decoded[i+2]):
			a |= DoubleEncoding
		}
	}
	if hasDots(decoded) {
		a |= DotSegments
	}
	return a
}

// hasDots reports whether some server takes a segment of p for "." or "..".
func hasDots(p string) bool {
	for segment := range strings.FieldsFuncSeq(p, func(c rune) bool { return c == '/' || c == '\\' }) {
		name, _, _ := strings.Cut(segment, ";")
		if name == "." || name == ".." {
			return true
		}
	}
	return false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// ReadMethod returns the ambiguity of an HTTP method: a lower-case letter. Methods are case-sensitive, and
// rules see them as sent; but many servers take post for POST. A method with characters that methods cannot
// have is an error.
func ReadMethod(method string) (Ambiguity, error) {
	var a Ambiguity
	for i := range len(method) {
		switch c := method[i]; {
		case 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case 'a' <= c && c <= 'z':
			a |= MethodCase
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0:
			return 0, errors.New("a method has letters, digits and any of !#$%&'*+-.^_`|~ only")
		}
	}
	return a, nil
}
