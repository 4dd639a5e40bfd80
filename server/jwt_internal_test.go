package server

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/claims/claimstest"
	"github.com/stintdev/stint/server/rules"
)

// byClaims has one request an hour for each subject, and one for each client without.
const byClaims = `
trusted_proxies: [198.51.100.0/24]
rules:
  - {name: user, key: claims.sub, limits: [1 per 1h fixed_window]}
  - {name: nobody, match: '!has(claims.sub)', key: client.ip, limits: [1 per 1h fixed_window]}
`

// bearing is an opened Server of byClaims with these tokens.
func bearing(t testing.TB, j config.JWT, keys ...*claimstest.Key) *Server {
	t.Helper()
	return bearingTo(t, nil, j, keys...)
}

func bearingTo(t testing.TB, upstream *url.URL, j config.JWT, keys ...*claimstest.Key) *Server {
	t.Helper()
	if !j.Trusted && j.KeysURL == "" {
		j.KeysFile = filepath.Join(t.TempDir(), "jwks.json")
		keep(t, j.KeysFile, claimstest.JWKS(t, keys...))
	}
	settings := config.Default()
	settings.JWT = &j
	settings.Check.Hosts = []string{"example.com"} // which httptest sends
	if upstream != nil {
		settings.Routes = []config.Route{{Path: "/", Upstream: upstream}}
	}
	s := New(Config{Settings: settings, Rules: parsed(t, byClaims), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(s.Close)
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	return s
}

func keep(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// whose is the rule and key that a request with a header is counted by.
func whose(t testing.TB, s *Server, header ...string) string {
	t.Helper()
	return countedBy(t, s, &rules.Input{Client: netip.MustParseAddr("192.0.2.1"), Request: &rules.Request{Header: http.Header{"Authorization": header}}})
}

func countedBy(t testing.TB, s *Server, in *rules.Input) string {
	t.Helper()
	var m rules.Plan
	if err := s.Rules().Asks(in, &m); err != nil {
		return err.Error()
	}
	var all []string
	for i, a := range m.Asks {
		all = append(all, m.Rules[i].Name+" "+a.Key)
	}
	return strings.Join(all, ", ")
}

const nobody = "nobody 192.0.2.1"

func TestTokensOfClients(t *testing.T) {
	keys := claimstest.Keys()
	s := bearing(t, config.JWT{Issuer: "me", Audience: "api", Leeway: 30 * time.Second}, keys["RS256"], keys["ES256"], keys["EdDSA"])
	now := time.Now().Unix()
	for name, k := range keys {
		for _, c := range []struct {
			payload, want string
		}{
			{fmt.Sprintf(`{"sub":"ann","iss":"me","aud":"api","exp":%d}`, now+60), "user ann"},
			{`{"sub":"ann","iss":"me","aud":"api"}`, "user ann"}, // for good
			{`{"sub":"ann","iss":"me","aud":["web","api"]}`, "user ann"},
			{fmt.Sprintf(`{"sub":"ann","iss":"me","aud":"api","exp":%d}`, now-20), "user ann"}, // within the leeway
			{fmt.Sprintf(`{"sub":"ann","iss":"me","aud":"api","exp":%d.5,"nbf":%d}`, now+60, now+20), "user ann"},
			{fmt.Sprintf(`{"sub":"ann","iss":"me","aud":"api","exp":%d}`, now-40), nobody},
			{fmt.Sprintf(`{"sub":"ann","iss":"me","aud":"api","nbf":%d}`, now+60), nobody},
			{`{"sub":"ann","iss":"other","aud":"api"}`, nobody},
			{`{"sub":"ann","aud":"api"}`, nobody},
			{`{"sub":"ann","iss":["me"],"aud":"api"}`, nobody},
			{`{"sub":"ann","iss":"me","aud":"web"}`, nobody},
			{`{"sub":"ann","iss":"me","aud":["web",5]}`, nobody},
			{`{"sub":"ann","iss":"me"}`, nobody},
			{`{"sub":"ann","iss":"me","aud":"api","exp":0}`, nobody},
			{`{"sub":"ann","iss":"me","aud":"api","exp":-5}`, nobody},
			{`{"sub":"ann","iss":"me","aud":"api","exp":"9999999999"}`, nobody},
			{`{"sub":"ann","iss":"me","aud":"api","exp":1e300}`, nobody},
			{`{"sub":"ann","iss":"me","aud":"api","nbf":true}`, nobody},
			{`{"sub":"bob","sub":"ann","iss":"me","aud":"api"}`, nobody}, // of two, others may take the other
			{`["ann"]`, nobody}, {`null`, nobody}, {``, nobody}, {`{"sub":"ann"`, nobody}, {"{\"sub\":\"\xff\"}", nobody},
			{`{"iss":"me","aud":"api"}`, nobody},
		} {
			for range 2 { // the second time by what was remembered
				if got := whose(t, s, "Bearer "+k.Sign(t, c.payload)); got != c.want {
					t.Errorf("%s %s: counted by %q, want %q", name, c.payload, got, c.want)
				}
			}
		}
	}
}

// What is no token of a known key, or not borne as it should be, says nothing.
func TestInvalidTokens(t *testing.T) {
	keys := claimstest.Keys()
	s := bearing(t, config.JWT{}, keys["RS256"], keys["ES256"])
	const payload = `{"sub":"ann"}`
	good := keys["RS256"].Sign(t, payload)
	head, rest, _ := strings.Cut(good, ".")
	body, signature, _ := strings.Cut(rest, ".")
	part := base64.RawURLEncoding.EncodeToString
	der, err := x509.MarshalPKIXPublicKey(keys["RS256"].Private.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	symmetric, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: public}, new(jose.SignerOptions).WithHeader("kid", "r1"))
	if err != nil {
		t.Fatal(err)
	}
	confused, err := symmetric.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	asMAC, _ := confused.CompactSerialize()
	embedding, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: keys["EdDSA"].Private}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	own, err := embedding.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	withItsKey, _ := own.CompactSerialize()
	other := *keys["RS256"]
	other.ID = "r2"
	nameless := *keys["RS256"]
	nameless.ID = ""
	asES := *keys["ES256"]
	asES.ID = "r1"
	for name, c := range map[string]struct {
		header []string
		want   string
	}{
		"good":                   {[]string{"Bearer " + good}, "user ann"},
		"in other letters":       {[]string{"bEARER  " + good + " "}, "user ann"},
		"after a tab":            {[]string{"bearer\t" + good}, "user ann"},
		"that names no key":      {[]string{"Bearer " + nameless.Sign(t, payload)}, "user ann"},
		"none":                   {nil, nobody},
		"empty":                  {[]string{""}, nobody},
		"of another scheme":      {[]string{"Basic " + good}, nobody},
		"without the word":       {[]string{good}, nobody},
		"twice":                  {[]string{"Bearer " + good, "Bearer " + good}, "rules: the request has a header in several lines: authorization"},
		"cut off":                {[]string{"Bearer " + good[:len(good)-1]}, nobody},
		"with another payload":   {[]string{"Bearer " + head + "." + part([]byte(`{"sub":"eve"}`)) + "." + signature}, nobody},
		"without signature":      {[]string{"Bearer " + head + "." + body + "."}, nobody},
		"of algorithm none":      {[]string{"Bearer " + part([]byte(`{"alg":"none"}`)) + "." + body + "."}, nobody},
		"of algorithm None":      {[]string{"Bearer " + part([]byte(`{"alg":"None","kid":"r1"}`)) + "." + body + "." + signature}, nobody},
		"of a MAC by public key": {[]string{"Bearer " + asMAC}, nobody},
		"that brings its key":    {[]string{"Bearer " + withItsKey}, nobody},
		"of an unknown key":      {[]string{"Bearer " + other.Sign(t, payload)}, nobody},
		"of another's key":       {[]string{"Bearer " + asES.Sign(t, payload)}, nobody},
		"too long":               {[]string{"Bearer " + keys["RS256"].Sign(t, `{"sub":"ann","x":"`+strings.Repeat("x", 16<<10)+`"}`)}, nobody},
	} {
		if got := whose(t, s, c.header...); got != c.want {
			t.Errorf("a token %s: counted by %q, want %q", name, got, c.want)
		}
	}
}

// A token of an algorithm that is not allowed is none, whatever the keys.
func TestAlgorithmsOfTokens(t *testing.T) {
	keys := claimstest.Keys()
	s := bearing(t, config.JWT{Algorithms: []string{"ES256"}}, keys["RS256"], keys["ES256"])
	if got := whose(t, s, "Bearer "+keys["RS256"].Sign(t, `{"sub":"ann"}`)); got != nobody {
		t.Errorf("RS256: %s", got)
	}
	if got := whose(t, s, "Bearer "+keys["ES256"].Sign(t, `{"sub":"ann"}`)); got != "user ann" {
		t.Errorf("ES256: %s", got)
	}
}

// A token is valid until it expires, remembered or not.
func TestTokensExpire(t *testing.T) {
	keys := claimstest.Keys()
	synctest.Test(t, func(t *testing.T) {
		s := bearing(t, config.JWT{}, keys["ES256"])
		token := "Bearer " + keys["ES256"].Sign(t, fmt.Sprintf(`{"sub":"ann","exp":%d}`, time.Now().Unix()+60))
		for range 60 {
			if got := whose(t, s, token); got != "user ann" {
				t.Fatal(got)
			}
			time.Sleep(time.Second)
		}
		if got := whose(t, s, token); got != nobody {
			t.Error(got)
		}
	})
}

// When the file has other keys, tokens of those that are gone count for nothing, though
// they were verified before. A file that is wrong changes nothing.
func TestKeysOfTokensRotate(t *testing.T) {
	keys := claimstest.Keys()
	s := bearing(t, config.JWT{}, keys["RS256"])
	before, after := "Bearer "+keys["RS256"].Sign(t, `{"sub":"ann"}`), "Bearer "+keys["EdDSA"].Sign(t, `{"sub":"bob"}`)
	file := s.claims.KeysFile
	for _, step := range []struct {
		file []byte
		want [2]string
	}{
		{nil, [2]string{"user ann", nobody}},
		{claimstest.JWKS(t, keys["RS256"], keys["EdDSA"]), [2]string{"user ann", "user bob"}},
		{[]byte(`{"keys":`), [2]string{"user ann", "user bob"}},
		{[]byte(`{"keys":[]}`), [2]string{"user ann", "user bob"}},
		{[]byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"r1"}]}`), [2]string{"user ann", "user bob"}},
		{claimstest.JWKS(t, keys["EdDSA"]), [2]string{nobody, "user bob"}},
	} {
		if step.file != nil {
			keep(t, file, step.file)
			s.reloadFiles(false)
		}
		if got := [2]string{whose(t, s, before), whose(t, s, after)}; got != step.want {
			t.Errorf("after %.40s: %q, want %q", step.file, got, step.want)
		}
	}
	keep(t, file, []byte("{}"))
	settings := config.Default()
	settings.JWT = &s.claims.JWT
	if err := New(Config{Settings: settings, Rules: parsed(t, byClaims)}).Open(); err == nil {
		t.Error("a Server opened without keys")
	}
}

// Nothing but what a key has signed says anything, and nothing panics.
func FuzzTokenOfClient(f *testing.F) {
	keys := claimstest.Keys()
	s := bearing(f, config.JWT{}, keys["RS256"], keys["ES256"], keys["EdDSA"])
	signed := map[string]bool{}
	for _, k := range keys {
		text := k.Sign(f, `{"sub":"ann","exp":9999999999}`)
		head, rest, _ := strings.Cut(text, ".")
		signed[text] = true
		for _, seed := range []string{text, text[1:], head + ".." + rest, head, rest, text + ".", strings.ToUpper(text)} {
			f.Add(seed)
		}
	}
	f.Add("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.")
	trusting := bearing(f, config.JWT{Trusted: true})
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			return
		}
		trusting.claims.Of(&rules.Request{Header: http.Header{"Authorization": {"Bearer " + text}}})
		claims := s.claims.Of(&rules.Request{Header: http.Header{"Authorization": {"Bearer " + text}}})
		if claims != nil && !signed[strings.TrimSpace(text)] {
			// Signatures of ES256 and RS256 are texts in base64, whose last character
			// has bits that are not read.
			for good := range signed {
				if text := strings.TrimSpace(text); len(text) == len(good) && text[:len(text)-1] == good[:len(good)-1] {
					return
				}
			}
			t.Errorf("%q says %v", text, claims)
		}
	})
}
