package server

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server/config"
)

// signingKey is a key of whoever makes tokens.
type signingKey struct {
	private   crypto.Signer
	algorithm jose.SignatureAlgorithm
	id        string
}

// signingKeys are one of each kind, which take a while to make.
var signingKeys = sync.OnceValue(func() map[string]*signingKey {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	e, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	_, d, err3 := ed25519.GenerateKey(rand.Reader)
	if err != nil || err2 != nil || err3 != nil {
		panic(fmt.Sprint(err, err2, err3))
	}
	return map[string]*signingKey{
		"RS256": {r, jose.RS256, "r1"}, "ES256": {e, jose.ES256, "e1"}, "EdDSA": {d, jose.EdDSA, "d1"},
	}
})

// jwks is a JWK Set of their public keys.
func jwks(t testing.TB, all ...*signingKey) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, k := range all {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Use: "sig", Algorithm: string(k.algorithm)})
	}
	data, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// sign makes a token of a payload.
func (k *signingKey) sign(t testing.TB, payload string) string {
	t.Helper()
	options := new(jose.SignerOptions).WithType("JWT")
	if k.id != "" {
		options.WithHeader("kid", k.id)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: k.algorithm, Key: k.private}, options)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// byClaims has one request an hour for each subject, and one for each client without.
const byClaims = `
trusted_proxies: [198.51.100.0/24]
rules:
  - {name: user, key: claims.sub, limits: [1 per 1h fixed_window]}
  - {name: nobody, match: '!has(claims.sub)', key: client.ip, limits: [1 per 1h fixed_window]}
`

// bearing is an opened Server of byClaims with these tokens.
func bearing(t testing.TB, j config.JWT, keys ...*signingKey) *Server {
	t.Helper()
	return bearingTo(t, nil, j, keys...)
}

func bearingTo(t testing.TB, upstream *url.URL, j config.JWT, keys ...*signingKey) *Server {
	t.Helper()
	if !j.Trusted && j.KeysURL == "" {
		j.KeysFile = filepath.Join(t.TempDir(), "jwks.json")
		keep(t, j.KeysFile, jwks(t, keys...))
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
	var m rules.Matches
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
	keys := signingKeys()
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
				if got := whose(t, s, "Bearer "+k.sign(t, c.payload)); got != c.want {
					t.Errorf("%s %s: counted by %q, want %q", name, c.payload, got, c.want)
				}
			}
		}
	}
}

// What is no token of a known key, or not borne as it should be, says nothing.
func TestTokensThatAreNone(t *testing.T) {
	keys := signingKeys()
	s := bearing(t, config.JWT{}, keys["RS256"], keys["ES256"])
	const payload = `{"sub":"ann"}`
	good := keys["RS256"].sign(t, payload)
	head, rest, _ := strings.Cut(good, ".")
	body, signature, _ := strings.Cut(rest, ".")
	part := base64.RawURLEncoding.EncodeToString
	der, err := x509.MarshalPKIXPublicKey(keys["RS256"].private.Public())
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
	embedding, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: keys["EdDSA"].private}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	own, err := embedding.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	withItsKey, _ := own.CompactSerialize()
	other := *keys["RS256"]
	other.id = "r2"
	nameless := *keys["RS256"]
	nameless.id = ""
	asES := *keys["ES256"]
	asES.id = "r1"
	for name, c := range map[string]struct {
		header []string
		want   string
	}{
		"good":                   {[]string{"Bearer " + good}, "user ann"},
		"in other letters":       {[]string{"bEARER  " + good + " "}, "user ann"},
		"that names no key":      {[]string{"Bearer " + nameless.sign(t, payload)}, "user ann"},
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
		"of an unknown key":      {[]string{"Bearer " + other.sign(t, payload)}, nobody},
		"of another's key":       {[]string{"Bearer " + asES.sign(t, payload)}, nobody},
		"too long":               {[]string{"Bearer " + keys["RS256"].sign(t, `{"sub":"ann","x":"`+strings.Repeat("x", longestToken)+`"}`)}, nobody},
	} {
		if got := whose(t, s, c.header...); got != c.want {
			t.Errorf("a token %s: counted by %q, want %q", name, got, c.want)
		}
	}
}

// A token of an algorithm that is not allowed is none, whatever the keys.
func TestAlgorithmsOfTokens(t *testing.T) {
	keys := signingKeys()
	s := bearing(t, config.JWT{Algorithms: []string{"ES256"}}, keys["RS256"], keys["ES256"])
	if got := whose(t, s, "Bearer "+keys["RS256"].sign(t, `{"sub":"ann"}`)); got != nobody {
		t.Errorf("RS256: %s", got)
	}
	if got := whose(t, s, "Bearer "+keys["ES256"].sign(t, `{"sub":"ann"}`)); got != "user ann" {
		t.Errorf("ES256: %s", got)
	}
}

// A token is valid until it expires, remembered or not.
func TestTokensExpire(t *testing.T) {
	keys := signingKeys()
	synctest.Test(t, func(t *testing.T) {
		s := bearing(t, config.JWT{}, keys["ES256"])
		token := "Bearer " + keys["ES256"].sign(t, fmt.Sprintf(`{"sub":"ann","exp":%d}`, time.Now().Unix()+60))
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
	keys := signingKeys()
	s := bearing(t, config.JWT{}, keys["RS256"])
	before, after := "Bearer "+keys["RS256"].sign(t, `{"sub":"ann"}`), "Bearer "+keys["EdDSA"].sign(t, `{"sub":"bob"}`)
	file := s.claims.KeysFile
	for _, step := range []struct {
		file []byte
		want [2]string
	}{
		{nil, [2]string{"user ann", nobody}},
		{jwks(t, keys["RS256"], keys["EdDSA"]), [2]string{"user ann", "user bob"}},
		{[]byte(`{"keys":`), [2]string{"user ann", "user bob"}},
		{[]byte(`{"keys":[]}`), [2]string{"user ann", "user bob"}},
		{[]byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"r1"}]}`), [2]string{"user ann", "user bob"}},
		{jwks(t, keys["EdDSA"]), [2]string{nobody, "user bob"}},
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

// What is remembered of tokens is bounded.
func TestSeenTokensAreBounded(t *testing.T) {
	var seen seenTokens
	for i := range 3 * mostSeen {
		seen.put([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, token{notBefore: int64(i)})
		if is, ok := seen.get([32]byte{}); !ok || is.notBefore != 0 { // which is shown again and again
			t.Fatalf("forgotten after %d", i)
		}
	}
	if n := len(seen.young) + len(seen.old); n > 2*mostSeen {
		t.Errorf("%d remembered", n)
	}
}

// Nothing but what a key has signed says anything, and nothing panics.
func FuzzTokenOfClient(f *testing.F) {
	keys := signingKeys()
	s := bearing(f, config.JWT{}, keys["RS256"], keys["ES256"], keys["EdDSA"])
	signed := map[string]bool{}
	for _, k := range keys {
		text := k.sign(f, `{"sub":"ann","exp":9999999999}`)
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
		trusting.claims.claimsOf(&rules.Request{Header: http.Header{"Authorization": {"Bearer " + text}}})
		claims := s.claims.claimsOf(&rules.Request{Header: http.Header{"Authorization": {"Bearer " + text}}})
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

// What a token costs, the first time and from then on.
func BenchmarkTokenOfClient(b *testing.B) {
	for name, k := range signingKeys() {
		s := bearing(b, config.JWT{}, k)
		r := &rules.Request{Header: http.Header{"Authorization": {"Bearer " + k.sign(b, `{"sub":"ann","iss":"https://id.example.com/","aud":["api","web"],"exp":9999999999,"scope":"read write","roles":["a","b","c"]}`)}}}
		b.Run(name+"/seen", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if s.claims.claimsOf(r) == nil {
					b.Fatal("not valid")
				}
			}
		})
		b.Run(name+"/new", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.claims.keys.Load().seen.young = nil
				if s.claims.claimsOf(r) == nil {
					b.Fatal("not valid")
				}
			}
		})
	}
}
