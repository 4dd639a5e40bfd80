package httpfield

import (
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// In tests of credentials and cookies, unclear stands for what servers read in different ways.
const unclear = "(unclear)"

func credentialOf(name, value string) string {
	var c Credential
	switch clear := c.Add(name, value); {
	case clear:
		return c.Text
	case c.Text == "": // such a request would escape a limit if unclear credentials were allowed
		return "(unclear, without a guess)"
	}
	return unclear
}

func TestCredential(t *testing.T) {
	for value, want := range map[string]string{
		"": "", " \t": "", "Bearer": "", "bearer ": "", "Basic": "", "Token": "",
		"Bearer k": "k", "bearer k": "k", "BEARER k": "k", "Bearer  k": "k", "Bearer\tk": "k", " Bearer \t k ": "k",
		"Token k": "k", "ApiKey k": "k", "k": "k", "DPoP k": "k", "Odd k": "k", // GitHub takes token for Bearer
		"Bearer sk-1_a.b~c+d/e=":    "sk-1_a.b~c+d/e=",
		"Bearer 1|a:$!":             "1|a:$!",
		"key=AAAA":                  "key=AAAA",
		"Bearer a.b.YR":             "a.b.YQ", // the last bits of the last letter say nothing
		"Bearer a.b.YQ==":           "a.b.YQ",
		"Bearer a.b.+/8":            "a.b.-_8",
		"Bearer a.b.c.d.e":          "a.b.c.d.e",
		"Bearer a.b.!":              "a.b.!",
		"Bearer a.b.a!":             "a.b.a!",
		"Basic YW5uOnB3":            "ann:pw",
		"basic  YW5uOnB3":           "ann:pw",
		"Basic YW5uOnB3Pz8_":        "ann:pw???",
		"Basic YW5uOnB3Pz8/":        "ann:pw???",
		"Basic YW5uOg==":            "ann:",
		"Basic YW5uOg":              "ann:",
		"Basic YW5uOh==":            "ann:",
		"Basic YW5u":                "ann:",
		"Basic YQ":                  "a:",
		"Basic 6Tph":                "é:a", // in Latin-1
		"Basic w6k6YQ==":            "é:a", // in UTF-8
		"Negotiate abc":             "",
		"NTLM abc":                  "",
		`Digest username="a", nc=1`: "",
		"AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host": "",

		"Bearer k k2": unclear, "Bearer k, Bearer l": unclear, "Bearer k;a": unclear, `Bearer "k"`: unclear,
		"Bearer k\u00a0": unclear, "Bearer k\xa0l": unclear, "Bearer\u00a0k": unclear, "Bearer\x0bk": unclear, "Bearer k\x7f": unclear,
		"Bearer a=b": unclear, `Token token="k"`: unclear, "Token token=k": unclear, "Odd k l": unclear,
		"Digest a=b, Bearer k": unclear, "Digest a=b, basic YW5uOnB3": unclear,
		"Basic ann:pw": unclear, "Basic =": unclear, "Basic YW5u!OnB3": unclear, "Basic YW5uOnB3 x": unclear, "Basic AGFubjpwdw==": unclear,
		"k,l": unclear, "k l,m": unclear,
	} {
		for _, name := range []string{"Authorization", "Proxy-Authorization"} {
			if got := credentialOf(name, value); got != want {
				t.Errorf("%s %q: %q, want %q", name, value, got, want)
			}
		}
	}
	for value, want := range map[string]string{
		"": "", "k": "k", " k\t": "k", "Bearer": "Bearer", "a=b": "a=b", "Bearer k": unclear, "k,l": unclear, "ké": unclear,
	} {
		if got := credentialOf("X-Api-Key", value); got != want {
			t.Errorf("X-Api-Key %q: %q, want %q", value, got, want)
		}
	}
}

// A credential in several headers is one if it is the same.
func TestCredentialInSeveralHeaders(t *testing.T) {
	for _, test := range []struct {
		authorization, key, want string
	}{
		{"Bearer k", "", "k"}, {"", "k", "k"}, {"Bearer k", "k", "k"}, {"Bearer", "k", "k"},
		{"Digest a=b", "k", "k"}, {"Bearer k", "l", unclear}, {"Basic YW5uOnB3", "k", unclear},
	} {
		var c Credential
		got := unclear
		if c.Add("Authorization", test.authorization) && c.Add("X-Api-Key", test.key) {
			got = c.Text
		}
		if got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

// However a client spells a credential, it is the same; and no spelling of one is another.
func TestSpellingsOfCredentials(t *testing.T) {
	r := rand.New(rand.NewPCG(40, 1))
	text := func(of string) string {
		b := make([]byte, 1+r.IntN(12))
		for i := range b {
			b[i] = of[r.IntN(len(of))]
		}
		return string(b)
	}
	scheme := func(name string) string {
		blanks := []string{" ", "  ", "\t", " \t "}[r.IntN(4)]
		return strings.Map(func(c rune) rune {
			if r.IntN(2) == 0 {
				return unicode.ToUpper(c)
			}
			return unicode.ToLower(c)
		}, name) + blanks
	}
	inBase64 := func(plain string) string {
		e := []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding}[r.IntN(4)]
		return e.EncodeToString([]byte(plain))
	}
	const letters = "abcXYZ019-_~+/|:$"
	for range 20_000 {
		token, user, password := text(letters), text("abc01?>é"), text("xyz:?>~")
		for want, value := range map[string]string{
			token:                 scheme([]string{"bearer", "token", "apikey"}[r.IntN(3)]) + token,
			user + ":" + password: scheme("basic") + inBase64(user+":"+password),
		} {
			if !utf8.ValidString(want) {
				continue // which is Latin-1
			}
			value = []string{"", " ", "\t"}[r.IntN(3)] + value + []string{"", " "}[r.IntN(2)]
			if got := credentialOf("Authorization", value); got != want {
				t.Fatalf("%q: %q, want %q", value, got, want)
			}
		}
		signature := text("\x00\xff\x80aZ")
		want := "h.p." + base64.RawURLEncoding.EncodeToString([]byte(signature))
		if got := credentialOf("Authorization", scheme("bearer")+"h.p."+inBase64(signature)); got != want {
			t.Fatalf("a token signed %q: %q, want %q", signature, got, want)
		}
	}
}

func FuzzCredential(f *testing.F) {
	for _, value := range []string{"Bearer k", "Basic YW5uOnB3", "Digest a=b", "k", "Bearer a.b.YQ==", "Bearer k, l"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		want := credentialOf("Authorization", value)
		if want == unclear || want == "" {
			return
		}
		if strings.ContainsFunc(want, unicode.IsControl) {
			t.Errorf("%q: %q", value, want)
		}
		scheme, rest := SplitAuthorization(value)
		if s, r := SplitAuthorization("\t" + value + " "); s != scheme || r != rest {
			t.Errorf("%q: %q and %q, and %q and %q with blanks around it", value, scheme, rest, s, r)
		}
		if rest == "" { // it is the credential itself
			scheme, rest = "bearer", want
			if strings.Contains(strings.TrimRight(want, "="), "=") {
				return
			}
		}
		for _, again := range []string{" " + value + "\t", strings.ToUpper(scheme) + "\t " + rest} {
			if got := credentialOf("Authorization", again); got != want && ofToken(want) != got {
				t.Errorf("%q: %q, but %q: %q", value, want, again, got)
			}
		}
	})
}

// A bearer token as nearly all clients write it is read without allocating, also a JWT.
func TestCredentialAllocates(t *testing.T) {
	for _, value := range []string{"Bearer sk-proj-1234", "Bearer aaaa.bbbb.cccc"} {
		if n := testing.AllocsPerRun(100, func() { credentialOf("Authorization", value) }); n != 0 {
			t.Errorf("%s: %v allocations", value, n)
		}
	}
}
