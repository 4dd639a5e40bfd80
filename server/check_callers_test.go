package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

const jsonBody = "Content-Type: application/json"

// ofCheck changes who may use the check API, which otherwise is as by default.
func ofCheck(change func(*config.CheckAPI)) func(*server.Config) {
	return func(c *server.Config) {
		asByDefault(c)
		change(&c.Settings.Check)
	}
}

// Clients of the check API are known by their certificates: by every one of the
// authority, or by the names that the settings list.
func TestCheckClients(t *testing.T) {
	ca := newAuthority(t)
	files := ca.sign(t, "server").write(t, ca)
	const body = `{"client":"192.0.2.1"}`
	length := "Content-Length: 22\r\n\r\n" + body
	const proxied = "trusted_proxies: [127.0.0.1]\n" + generous
	origin, wrong := "Origin: https://evil.example", "Authorization: Bearer "+secret("x")
	named := func(c *config.CheckAPI) { c.Clients = []config.Client{{Name: "shop.example.com"}} }
	token := func(c *config.CheckAPI) {
		c.Tokens = []config.Token{{Name: "shop", File: inFile(t, secret("shop"))}}
	}
	for _, c := range []struct {
		what    string
		callers func(*config.CheckAPI)
		name    string
		headers []string
		want    int
		asProxy int
	}{
		{"any of the authority", func(*config.CheckAPI) {}, "x", nil, 200, 200},
		{"without a name", func(*config.CheckAPI) {}, "", nil, 200, 200},
		{"a page, in a browser that has it", func(*config.CheckAPI) {}, "x", []string{origin}, 403, 200},
		{"a token that nobody gave", func(*config.CheckAPI) {}, "x", []string{wrong}, 401, 200},
		{"by name", named, "shop.example.com", nil, 200, 200},
		{"not by name", named, "x", nil, 401, 403},
		{"a certificate in place of a token", token, "x", nil, 401, 403},
		{"a token beside it", token, "x", []string{"Authorization: Bearer " + secret("shop"), "Stint-Token: " + secret("shop")}, 200, 200},
		{"a wrong one beside it", token, "x", []string{wrong, "Stint-Token: " + secret("x")}, 401, 403},
	} {
		g := start(t, newServer(t, proxied, withTLS(nil, files, nil), ofCheck(c.callers), func(c *server.Config) { c.Settings.CheckListen = ":8082" }))
		headers := append([]string{"Host: any.example"}, c.headers...)
		conn, _ := dialTLS(t, g.check, ca.trusting(t, ca.sign(t, c.name)))
		if got := conn.send(t, "GET", "/v1/authorize", append(headers, asCaddy...)...); got.StatusCode != c.asProxy {
			t.Errorf("%s, as a proxy: %s %s, want %d", c.what, got.Status, got.body, c.asProxy)
		}
		if got := conn.send(t, "POST", "/v1/check", append(headers, jsonBody, length)...); got.StatusCode != c.want {
			t.Errorf("%s: %s %s, want %d", c.what, got.Status, got.body, c.want)
		}
	}
}

// Under which hosts it is asked without a token.
func TestCheckHosts(t *testing.T) {
	listed := func(c *config.CheckAPI) { c.Hosts = []string{"stint.internal"} }
	open := func(c *config.CheckAPI) { c.Open = true }
	for _, c := range []struct {
		what    string
		callers func(*config.CheckAPI)
		host    string
		want    int
	}{
		{"by default", func(*config.CheckAPI) {}, "127.0.0.1:8082", 200},
		{"by default", func(*config.CheckAPI) {}, "localhost", 200},
		{"by default", func(*config.CheckAPI) {}, "[::1]:8082", 200},
		{"by default", func(*config.CheckAPI) {}, "stint.internal", 403},
		{"by default", func(*config.CheckAPI) {}, "", 403},
		{"listed", listed, "Stint.Internal.:8082", 200},
		{"listed", listed, "localhost:8082", 200},
		{"listed", listed, "evil.example", 403},
		{"open", open, "evil.example", 200},
		{"open, under hosts", func(c *config.CheckAPI) { listed(c); open(c) }, "stint.internal", 200},
		{"open, under hosts", func(c *config.CheckAPI) { listed(c); open(c) }, "evil.example", 403},
	} {
		s := newServer(t, "trusted_proxies: [192.0.2.0/24]\n"+generous, ofCheck(c.callers))
		for path, r := range map[string]*http.Request{
			"/v1/check":     checkRequest(`{"client":"192.0.2.1"}`),
			"/metrics":      httptest.NewRequest("GET", "/metrics", nil),
			"/v1/authorize": httptest.NewRequest("GET", "/v1/authorize", nil),
		} {
			r.Host = c.host
			for _, line := range asCaddy {
				name, value, _ := strings.Cut(line, ": ")
				r.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			if checkAPI(s).ServeHTTP(w, r); w.Code != c.want {
				t.Errorf("%s, %s of %q: %d %s, want %d", c.what, path, c.host, w.Code, w.Body, c.want)
			}
		}
	}
}

// Settings that name nobody and an address that others reach do not go together,
// in a program as in a file.
func TestCheckOffLoopback(t *testing.T) {
	s := newServer(t, generous, func(c *server.Config) { c.Settings.CheckListen = ":8082" })
	w := httptest.NewRecorder()
	if checkAPI(s).ServeHTTP(w, checkRequest(`{"client":"192.0.2.1"}`)); w.Code != 403 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Tokens are read again while it serves.
func TestCheckTokensReload(t *testing.T) {
	file := inFile(t, secret("old"))
	log := new(logged)
	s := newServer(t, generous, logTo(log), ofCheck(func(c *config.CheckAPI) { c.Tokens = []config.Token{{Name: "shop", File: file}} }))
	ask := func(token string) int {
		r := checkRequest(`{"client":"192.0.2.1"}`)
		r.Header.Set("Authorization", "Bearer "+secret(token))
		w := httptest.NewRecorder()
		checkAPI(s).ServeHTTP(w, r)
		return w.Code
	}
	if got := ask("old"); got != 401 {
		t.Errorf("before it is opened: %d", got)
	}
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	if old, new := ask("old"), ask("new"); old != 200 || new != 401 {
		t.Errorf("at first: the old one %d, the new one %d", old, new)
	}
	put(t, file, []byte(secret("new")))
	s.ReloadFiles()
	if old, new := ask("old"), ask("new"); old != 401 || new != 200 {
		t.Errorf("then: the old one %d, the new one %d", old, new)
	}
	said := log.taken()
	if !strings.Contains(said, "the check API refused a caller") {
		t.Errorf("nobody is told: %s", said)
	}
	expectHidden(t, said, secret("old"))
}
