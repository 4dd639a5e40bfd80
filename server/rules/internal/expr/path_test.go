package expr

import (
	"strings"
	"testing"
)

func TestFoldPath(t *testing.T) {
	for _, c := range []struct {
		folded string
		from   []string
	}{
		{"", []string{""}},
		{"/", []string{"/", "//", "/.", "/..", "/./", "/;a", `\`, "%2f", "/...", "/%00x", "/x/..", "/x/../../"}},
		{"/login", []string{"/login", "login", "/login/", "/login//", "/LOGIN", "/Login", "//login", "/login;a=b", "/login;", "/;x/login", "/login/;a",
			"/x/../login", "/x/..;y/login", "/../login", "/./login", "/login/.", `\login`, `/x\..\login`, "/%6cogin", "/%6Cogin", "/%256cogin", "/%25256Cogin",
			"/%%36cogin", "/login%00", "/login%2500.html", "/login\x00/x", "/login%2f", "/%2flogin", "/login%20", "/login.", "/login. .", "/%4cOGIN", "/\u017fogin/../login"}},
		{"/sign-in", []string{"/\u017fign-in", "/%C5%BFIGN-IN"}},
		{"/log/in", []string{"/log/in", "/Log//In/", `/log\in`, "/log%2Fin", "/log;a/in;b"}},
		{"/caf\u00c9", []string{"/caf\u00e9", "/CAF\u00c9/", "/caf%C3%A9"}},
		{"/k", []string{"/\u212a", "/K"}},
		{"/login.json", []string{"/login.json", "/LOGIN.JSON/"}},
		{"/.well-known/..x", []string{"/.well-known/..x"}},
		{"/a%zz%4", []string{"/a%zz%4", "/A%25zz%254"}},
		{"/\xc0\xaflogin", []string{"/\xc0\xafLOGIN", "/%c0%aflogin"}},
	} {
		for _, from := range c.from {
			if got := FoldPath(from); got != c.folded {
				t.Errorf("%q: %q, want %q", from, got, c.folded)
			}
		}
	}
}

// What is folded stays, and folding looks through its argument once: an escape in an
// escape in an escape does not cost more than others.
func FuzzFoldPath(f *testing.F) {
	for _, p := range []string{"/login", "/%25252e%2e;x/..\\A/ .", "\xff%00", "/\u017f\u212a\u00df\u0130"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		folded := FoldPath(p)
		if again := FoldPath(folded); again != folded || p != "" && folded[0] != '/' {
			t.Fatalf("%q: %q, then %q", p, folded, again)
		}
		for segment := range strings.SplitSeq(folded[min(1, len(folded)):], "/") {
			if folded != "/" && (segment == "" && p != "" || segment == "." || segment == ".." || strings.ContainsAny(segment, "\\;\x00")) {
				t.Fatalf("%q: %q has the segment %q", p, folded, segment)
			}
		}
		for _, same := range []string{strings.ToUpper(p), p + "/", "/" + p, p + ";x"} {
			if strings.ToUpper(p) == same && !isASCII(p) || p == "" || strings.Contains(folded, "%") || strings.HasSuffix(p, "%") {
				continue
			}
			if got := FoldPath(same); got != folded {
				t.Fatalf("%q is %q, and %q is %q", p, folded, same, got)
			}
		}
	})
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c > '~' })
}
