package httpfield

import (
	"iter"
	"strings"
)

// Cookies yields the names and values, as sent, of the cookies in a header Cookie. Some servers
// find cookies where others find a part of a value: after a comma, and after an equals sign without
// a name. The names of these begin with that character. Names of cookies whose values servers
// decode in different ways begin with a semicolon. Such names serve only as twins; see IsHidden.
func Cookies(header string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for more := true; more; {
			var part string
			part, header, more = strings.Cut(header, ";")
			part = strings.Trim(part, " \t")
			if part == "" {
				continue
			}
			name, value, _ := strings.Cut(part, "=")
			name, value = strings.TrimRight(name, " \t"), strings.TrimLeft(value, " \t")
			switch {
			case name == "":
				name, _, _ = strings.Cut(part[1:], "=")
				name = part[:1+len(name)]
			case strings.HasPrefix(value, `"`) && strings.Contains(value, `\`): // Python decodes \143
				name = ";" + name
			}
			if !yield(name, value) || !cookiesWithin(value, yield) {
				return
			}
		}
	}
}

// cookiesWithin yields the cookies that some servers find in a value.
func cookiesWithin(value string, yield func(name, value string) bool) bool {
	for {
		comma := strings.IndexByte(value, ',')
		if comma < 0 {
			return true
		}
		part, _, _ := strings.Cut(value[comma+1:], ",")
		if name, text, ok := strings.Cut(part, "="); ok && !yield(value[comma:comma+1+len(name)], text) {
			return false
		}
		value = value[comma+1:]
	}
}

// FindCookie returns the value of the cookie with this name in a header Cookie, and the values of
// further cookies of the name. Not ok: there is none. twin says whether some servers take another
// cookie for it.
func FindCookie(header, name string) (value string, more []string, ok, twin bool) {
	for n, sent := range Cookies(header) {
		switch {
		case n != name:
			twin = twin || IsCookieTwin(n, name)
		case !ok:
			value, ok = CookieValue(sent), true
		default:
			more = append(more, CookieValue(sent))
		}
	}
	return value, more, ok, twin
}

// IsHidden reports whether a name from Cookies is of a cookie that only some servers find, or whose
// value they read in different ways.
func IsHidden(name string) bool { return name != "" && strings.IndexByte(";,=", name[0]) >= 0 }

// CookieValue is the value of a cookie. Most servers decode its escapes, and remove quotation marks
// around it.
func CookieValue(sent string) string {
	if len(sent) > 1 && sent[0] == '"' && sent[len(sent)-1] == '"' {
		sent = sent[1 : len(sent)-1]
	}
	return unescape(sent, '+')
}

// IsCookieTwin reports whether some servers take cookie a for b: they compare names as those of
// parameters, decode them, or drop what is before them.
func IsCookieTwin(a, b string) bool { return IsParameterTwin(bareCookie(a), bareCookie(b)) }

// FoldCookie returns a form that a name shares only with its twins.
func FoldCookie(name string) string { return FoldParameter(bareCookie(name)) }

func bareCookie(name string) string { return strings.TrimLeft(unescape(name, '+'), ";,=\" \t") }
