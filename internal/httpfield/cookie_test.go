package httpfield

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// cookiesIn are the cookies in a header, with those that are hidden in brackets.
func cookiesIn(header string) string {
	var all []string
	for name, value := range Cookies(header) {
		if IsHidden(name) {
			all = append(all, "("+name+")")
		} else {
			all = append(all, fmt.Sprintf("%s:%s", name, CookieValue(value)))
		}
	}
	return strings.Join(all, " ")
}

func TestCookies(t *testing.T) {
	for header, want := range map[string]string{
		"": "", ";; ": "", "a=1": "a:1", "a=1; b=2": "a:1 b:2", "a=1;b=2;": "a:1 b:2", "a=1; a=2": "a:1 a:2",
		"a": "a:", "a=": "a:", " a = 1 ": "a:1", "a=b=c": "a:b=c", "A=1": "A:1",
		`a="1"`: "a:1", `a="`: `a:"`, `a="1`: `a:"1`, `a=1"`: `a:1"`, `a=""`: "a:",
		"a=%31%2b+": "a:1++", "a=%zz%31": "a:%zz1", "a=%z1%1z": "a:%z1%1z", "a=%4": "a:%4", `a="%31"`: "a:1",
		"=a=1": "(=a)", "=a": "(=a)", "=": "(=)",
		"a=1,b=2": "a:1,b=2 (,b)", "a=1, b=2,c": "a:1, b=2,c (, b)", "a=1,2": "a:1,2",
		"a=1,b=2,c=3; d=4": "a:1,b=2,c=3 (,b) (,c) d:4", "a=,,b=2": "a:,,b=2 (,b)",
		`a="\061"`: "(;a)", `a=\061`: `a:\061`,
	} {
		if got := cookiesIn(header); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}

func TestTwinsOfCookies(t *testing.T) {
	for other, want := range map[string]bool{
		"session": true, "Session": true, "=session": true, ",session": true, "; session": true, "session[]": true,
		"%73ession": true, "%3dsession": true, "sessions": false, "sess": false, "": false, "x,session": false,
	} {
		if got := IsCookieTwin(other, "session"); got != want {
			t.Errorf("%q: %v", other, got)
		}
		if got := FoldCookie(other) == FoldCookie("session"); got != want {
			t.Errorf("%q, folded: %v", other, got)
		}
	}
}

// What net/http finds in a header, which reads it as RFC 6265 says, is found.
func FuzzCookies(f *testing.F) {
	for _, header := range []string{"a=1; b=2", `a="x y"`, "a=1,b=2", "=a=1", "a", "a=%31"} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		cookies, err := http.ParseCookie(header)
		if err != nil || strings.ContainsAny(header, "\r\n") { // which no header has
			return
		}
		found := map[string]bool{}
		for name, value := range Cookies(header) {
			found[strings.TrimLeft(name, ";")+"="+strings.Trim(value, "\" ")] = true
		}
		for _, c := range cookies {
			if !found[c.Name+"="+strings.Trim(c.Value, "\" ")] {
				t.Errorf("%q: no %q=%q in %q", header, c.Name, c.Value, slices.Collect(maps.Keys(found)))
			}
		}
	})
}

// A value that is decoded here is what url.QueryUnescape and url.PathUnescape make of it.
func FuzzUnescape(f *testing.F) {
	for _, text := range []string{"", "a+b", "%41", "%aa%fF", "%41%2B+", "%zz", "%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if want, err := url.QueryUnescape(text); err == nil && ParameterValue(text) != want {
			t.Errorf("%q: %q, want %q", text, ParameterValue(text), want)
		}
		if want, err := url.PathUnescape(text); err == nil && unescape(text, '+') != want {
			t.Errorf("%q: %q, want %q", text, unescape(text, '+'), want)
		}
	})
}
