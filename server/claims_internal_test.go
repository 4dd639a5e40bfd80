package server

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/claims/claimstest"
	"github.com/stintdev/stint/server/rules"
)

// Every API reads the token and explains it.
func TestTokensOfEachAPI(t *testing.T) {
	keys := claimstest.Keys()
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	upstream := httptest.NewServer(ok)
	defer upstream.Close()
	to, err := config.ParseUpstream(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	bearer := func(name string) string { return "Bearer " + keys["RS256"].Sign(t, `{"sub":"`+name+`"}`) }
	asks := func(h http.Handler, authorization string, more ...string) int {
		r := httptest.NewRequest("GET", "/a", nil)
		r.RemoteAddr = "198.51.100.1:1"
		r.Header.Set("Authorization", authorization)
		for i := 0; i < len(more); i += 2 {
			r.Header.Set(more[i], more[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for name, ask := range map[string]func(s *Server, authorization string) int{
		"gateway": func(s *Server, authorization string) int { return asks(s.Gateway(), authorization) },
		"wrap":    func(s *Server, authorization string) int { return asks(s.Wrap(ok), authorization) },
		"authorize": func(s *Server, authorization string) int {
			r := httptest.NewRequest("GET", "/v1/authorize", nil)
			r.RemoteAddr = "198.51.100.1:1"
			r.Header = http.Header{"Authorization": {authorization}, "X-Original-Method": {"GET"}, "X-Original-Uri": {"/a"}, "X-Forwarded-For": {"192.0.2.1"}}
			w := httptest.NewRecorder()
			s.Check().ServeHTTP(w, r)
			return w.Code
		},
		"check": func(s *Server, authorization string) int {
			body, _ := json.Marshal(map[string]any{"client": "192.0.2.1", "request": map[string]any{"path": "/a", "headers": map[string]string{"authorization": authorization}}})
			w := httptest.NewRecorder()
			s.Check().ServeHTTP(w, localCheck(string(body)))
			return w.Code
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := bearingTo(t, to, config.JWT{}, keys["RS256"])
			for i, c := range []struct {
				authorization string
				allowed       bool
			}{{bearer("ann"), true}, {bearer("ann"), false}, {bearer("bob"), true}, {"Bearer x", true}, {bearer("ann") + "x", false}, {bearer("bob"), false}} {
				if status := ask(s, c.authorization); (status < 300) != c.allowed || status == http.StatusBadRequest {
					t.Errorf("request %d: status %d, want allowed %t", i+1, status, c.allowed)
				}
			}
		})
	}
}

// Claims that a check brings are believed; those of a token need no check.
func TestClaimsOfChecks(t *testing.T) {
	for body, want := range map[string]string{
		`{"claims":{"sub":"ann"},"client":"192.0.2.1"}`:     "user ann",
		`{"claims":{},"client":"192.0.2.1"}`:                nobody,
		`{"claims":null,"client":"192.0.2.1"}`:              nobody,
		`{"claims":{"sub":"ann"},"request":{"route":"a"}}`:  "user ann",
		`{"claims":{"sub":5},"client":"192.0.2.1"}`:         "user 5",
		`{"claims":{"sub":null},"client":"192.0.2.1"}`:      nobody, // as if it were not there
		`{"claims":["ann"],"client":"192.0.2.1"}`:           "stint: malformed request: claims: want an object",
		`{"claims":{"sub":1,"sub":2},"client":"192.0.2.1"}`: `twice`,
	} {
		s := bearing(t, config.JWT{}, claimstest.Keys()["ES256"])
		in, err := ReadInput([]byte(body))
		if err != nil {
			if want == "" || !strings.Contains(err.Error(), "claims") {
				t.Errorf("%s: %v", body, err)
			}
			continue
		}
		if got := countedBy(t, s, in); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

// Where others verify tokens, those that they did not pass on say nothing.
func TestTrustedTokens(t *testing.T) {
	part := base64.RawURLEncoding.EncodeToString
	token := func(header, payload string) string {
		return part([]byte(header)) + "." + part([]byte(payload)) + ".c2ln"
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	expired := fmt.Sprintf(`{"sub":"ann","exp":%d}`, time.Now().Unix()-60)
	for name, c := range map[string]struct {
		from, token string
		believed    bool
	}{
		"from a proxy":     {"198.51.100.1:1", token(`{"alg":"RS256"}`, `{"sub":"ann"}`), true},
		"from elsewhere":   {"203.0.113.1:1", token(`{"alg":"RS256"}`, `{"sub":"ann"}`), false},
		"not signed":       {"198.51.100.1:1", token(`{"alg":"nOne"}`, `{"sub":"ann"}`), false},
		"of no algorithm":  {"198.51.100.1:1", token(`{}`, `{"sub":"ann"}`), false},
		"expired":          {"198.51.100.1:1", token(`{"alg":"RS256"}`, expired), false},
		"no JSON":          {"198.51.100.1:1", token(`{"alg":"RS256"}`, `sub`), false},
		"of two parts":     {"198.51.100.1:1", part([]byte(`{"alg":"RS256"}`)) + "." + part([]byte(`{"sub":"ann"}`)), false},
		"no base64":        {"198.51.100.1:1", "a!.b!.c!", false},
		"for another one":  {"198.51.100.1:1", token(`{"alg":"RS256"}`, `{"sub":"ann","iss":"other"}`), true},
		"without the word": {"198.51.100.1:1", token(`{"alg":"RS256"}`, `{"sub":"ann"}`), true},
	} {
		s := bearing(t, config.JWT{Trusted: true, Header: "x-token"})
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.from
		r.Header.Set("X-Token", c.token)
		s.Wrap(ok).ServeHTTP(httptest.NewRecorder(), r)
		spent := whoSpent(t, s)
		if believed := spent == "ann"; believed != c.believed {
			t.Errorf("%s: counted by %q, want believed %t", name, spent, c.believed)
		}
	}
}

// The token of a request that a trusted proxy asks about is believed, although its client is none.
func TestTrustedTokensOfAuthorize(t *testing.T) {
	part := base64.RawURLEncoding.EncodeToString
	s := bearing(t, config.JWT{Trusted: true, Header: "x-token"})
	r := httptest.NewRequest("GET", "/v1/authorize", nil)
	r.RemoteAddr = "198.51.100.1:1"
	for name, value := range map[string]string{
		"X-Original-Method": "GET", "X-Original-Uri": "/", "X-Forwarded-For": "203.0.113.1",
		"X-Token": part([]byte(`{"alg":"RS256"}`)) + "." + part([]byte(`{"sub":"ann"}`)) + ".c2ln",
	} {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.Check().ServeHTTP(w, r)
	if spent := whoSpent(t, s); w.Code != http.StatusOK || spent != "ann" {
		t.Errorf("%d, counted by %q: %s", w.Code, spent, w.Body)
	}
}

// whoSpent is ann if a unit of hers was taken, else nobody.
func whoSpent(t *testing.T, s *Server) string {
	t.Helper()
	d, err := s.Decide(t.Context(), &rules.Input{Claims: map[string]any{"sub": "ann"}, Cost: 0}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Remaining == 0 {
		return "ann"
	}
	return "nobody"
}

// An explanation tells why there are no claims, and no token.
func TestExplainToken(t *testing.T) {
	keys := claimstest.Keys()
	s := bearing(t, config.JWT{Issuer: "me"}, keys["ES256"])
	for header, want := range map[string]string{
		"": "There is no token in the header Authorization, so there are no claims.",
		"Bearer " + keys["ES256"].Sign(t, `{"iss":"me","sub":"ann"}`):          "The token in the header Authorization is valid.",
		"Bearer " + keys["ES256"].Sign(t, `{"iss":"me","exp":2000000000000}`):  "The token in the header Authorization is valid until 65347-",
		"Bearer " + keys["ES256"].Sign(t, `{"iss":"me","exp":1000000000}`):     "not valid, so there are no claims: it expired at 2001-09-09T01:46:40Z.",
		"Bearer " + keys["ES256"].Sign(t, `{"iss":"you","exp":1000000000000}`): "its iss is not the issuer",
		"Bearer " + keys["RS256"].Sign(t, `{"iss":"me"}`):                      "it names an unknown key",
		"Bearer geheim": "it is not a signed token",
	} {
		in := &rules.Input{Client: netip.MustParseAddr("192.0.2.1"), Request: &rules.Request{Header: http.Header{}}}
		if header != "" {
			in.Request.Header.Set("Authorization", header)
		}
		x, err := s.Explain(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(x.Words, "\n"); !strings.Contains(x.Words[0], want) || strings.Contains(text, "geheim") || len(header) > 20 && strings.Contains(text, header[10:]) {
			t.Errorf("%.30s: %s, want %s", header, text, want)
		}
	}
}

func TestClaimsUnknownFinding(t *testing.T) {
	codes := func(s *Server) string {
		var all []string
		for _, f := range s.Findings() {
			all = append(all, f.Code)
		}
		return strings.Join(all, " ")
	}
	plain := New(Config{Settings: config.Default(), Rules: parsed(t, byClaims)})
	if got := codes(plain); got != rules.CodeClaimsUnknown {
		t.Errorf("without jwt: %s", got)
	}
	trusting := bearing(t, config.JWT{Trusted: true})
	if got := codes(trusting); got != "" {
		t.Errorf("trusted: %s", got)
	}
	if _, err := trusting.SetRules(parsed(t, strings.Replace(byClaims, "[198.51.100.0/24]", "[]", 1))); err != nil || codes(trusting) != rules.CodeClaimsUnknown {
		t.Errorf("trusted, of nobody: %s, %v", codes(trusting), err)
	}
	if got := codes(bearing(t, config.JWT{}, claimstest.Keys()["ES256"])); got != "" {
		t.Errorf("with keys: %s", got)
	}
}

// While the keys of tokens were never read, nobody has claims, and /readyz says so.
func TestReadyWithoutKeys(t *testing.T) {
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	for want, j := range map[string]config.JWT{
		"ready, without the keys of tokens: clients have no claims\n": {KeysURL: away.URL},
		"ready\n": {Trusted: true, Header: "x-token"},
	} {
		s := bearing(t, j)
		w := httptest.NewRecorder()
		s.Check().ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		if w.Code != http.StatusOK || w.Body.String() != want {
			t.Errorf("%d %q, want %q", w.Code, w.Body, want)
		}
	}
}
