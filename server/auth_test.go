package server_test

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// expectHidden finds no form of a token in text.
func expectHidden(t *testing.T, text, token string) {
	t.Helper()
	digest := sha256.Sum256([]byte(token))
	decimal := strings.Trim(fmt.Sprint(digest[:4]), "[]")
	for _, form := range []string{token, hex.EncodeToString([]byte(token)), hex.EncodeToString(digest[:8]), strings.ToUpper(hex.EncodeToString(digest[:8])),
		decimal, strings.ReplaceAll(decimal, " ", ", "), strings.ReplaceAll(decimal, " ", ",")} {
		if strings.Contains(text, form) {
			t.Errorf("it shows %s in:\n%s", form, text)
		}
	}
}

// Where the settings name nobody, whoever is on this machine is let in, but not the
// pages that a browser on this machine shows.
func TestAdminOfThisMachine(t *testing.T) {
	g := start(t, newServer(t, generous, func(c *server.Config) { c.Settings.Admin.Hosts = []string{"stint.internal"} }))
	port := g.admin[strings.LastIndex(g.admin, ":"):]
	for _, c := range []struct {
		what, host, origin string
		want               int
	}{
		{"curl", "127.0.0.1" + port, "", 200},
		{"by name", "localhost" + port, "", 200},
		{"without a port", "LOCALHOST.", "", 200},
		{"another address of loopback", "127.1.2.3", "", 200},
		{"IPv6", "[::1]" + port, "", 200},
		{"our own page", "localhost" + port, "http://localhost" + port, 200},
		{"a name that is listed", "Stint.internal" + port, "", 200},
		{"its page", "stint.internal" + port, "http://stint.internal" + port, 200},
		{"a name that was made to lead here", "evil.example" + port, "", 403},
		{"and its page", "evil.example" + port, "http://evil.example" + port, 403},
		{"a name like localhost", "localhost.evil.example", "", 403},
		{"a name like an address", "127.0.0.1.evil.example", "", 403},
		{"an address elsewhere", "192.0.2.1", "", 403},
		{"no host", "", "", 403},
		{"a page from elsewhere", "127.0.0.1" + port, "https://evil.example", 403},
		{"a page of another server on this machine", "127.0.0.1" + port, "http://127.0.0.1:3000", 403},
		{"a page by another name of ours", "127.0.0.1" + port, "http://localhost" + port, 403},
		{"a page of a file", "127.0.0.1" + port, "null", 403},
		{"a page of nothing that can be read", "127.0.0.1" + port, "://", 403},
	} {
		headers := []string{"Host: " + c.host}
		if c.origin != "" {
			headers = append(headers, "Origin: "+c.origin)
		}
		if got := send(t, g.admin, "GET", "/v1/status", headers...); got.StatusCode != c.want || c.want == 403 && got.problem(t) == "" {
			t.Errorf("%s: %s %s, want %d", c.what, got.Status, got.body, c.want)
		}
	}
	if got := send(t, g.admin, "GET", "/v1/status", "Host: localhost", "Origin: http://localhost", "Origin: http://localhost"); got.StatusCode != 403 {
		t.Errorf("two origins: %s", got.Status)
	}
}

// Settings that name nobody and an address that others reach do not go together,
// whoever made them.
func TestAdminOffLoopback(t *testing.T) {
	s := newServer(t, generous, func(c *server.Config) { c.Settings.Admin.Listen = ":8090" })
	w := httptest.NewRecorder()
	s.Admin().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/v1/status", nil))
	if w.Code != http.StatusForbidden {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Where the settings have tokens, one of them is needed, on loopback, too.
func TestAdminTokens(t *testing.T) {
	log := new(logged)
	s := newServer(t, generous, logTo(log), func(c *server.Config) {
		c.Settings.Admin.Tokens = []config.Token{
			{Name: "ops", Scope: config.WriteScope, File: inFile(t, secret("ops"))}, {Name: "grafana", Scope: config.ReadScope, File: inFile(t, secret("grafana"))},
		}
	})
	// Until it is opened, no token is known, and nobody gets in without.
	for _, authorization := range []string{"", "Bearer " + secret("ops")} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "http://localhost/v1/status", nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		if s.Admin().ServeHTTP(w, r); w.Code != 401 {
			t.Errorf("before it is opened: %d", w.Code)
		}
	}
	g := start(t, s)
	for _, c := range []struct {
		what    string
		headers []string
		want    int
	}{
		{"a token", []string{"Authorization: Bearer " + secret("ops")}, 200},
		{"one that may read", []string{"Authorization: bearer  " + secret("grafana")}, 200},
		{"any host", []string{"Host: stint.example.com", "Authorization: Bearer " + secret("ops")}, 200},
		{"none", nil, 401},
		{"none, from this machine", []string{"Host: localhost"}, 401},
		{"an empty one", []string{"Authorization: Bearer "}, 401},
		{"nothing at all", []string{"Authorization: "}, 401},
		{"a wrong one", []string{"Authorization: Bearer " + secret("opt")}, 401},
		{"a password", []string{"Authorization: Basic " + secret("ops")}, 401},
		{"no scheme", []string{"Authorization: " + secret("ops")}, 401},
		{"two", []string{"Authorization: Bearer " + secret("ops"), "Authorization: Bearer " + secret("grafana")}, 401},
		{"elsewhere", []string{"Cookie: token=" + secret("ops")}, 401},
	} {
		got := send(t, g.admin, "GET", "/v1/status", c.headers...)
		if got.StatusCode != c.want || (got.Header.Get("WWW-Authenticate") == "Bearer") != (c.want == 401) {
			t.Errorf("%s: %s %v, want %d", c.what, got.Status, got.Header, c.want)
		}
		expectHidden(t, got.body, secret("ops"))
	}
	said := log.taken()
	if !strings.Contains(said, "refused a caller") {
		t.Errorf("nobody is told: %s", said)
	}
	expectHidden(t, said, secret("ops"))
	expectHidden(t, said, secret("opt"))
}

// Clients are known by a name of their certificate, if the settings name it.
func TestAdminClients(t *testing.T) {
	ca := newAuthority(t)
	files := ca.sign(t, "server").write(t, ca)
	g := start(t, newServer(t, generous, withTLS(nil, nil, files), func(c *server.Config) {
		c.Settings.Admin.Clients = []config.Client{{Name: "ops.example.com", Scope: config.WriteScope}, {Name: "spiffe://example.com/ops", Scope: config.ReadScope}}
		c.Settings.Admin.Tokens = []config.Token{{Name: "grafana", Scope: config.ReadScope, File: inFile(t, secret("grafana"))}}
	}))
	origin := "Origin: https://evil.example"
	for _, c := range []struct {
		what    string
		own     pair
		headers []string
		want    int
	}{
		{"by common name", ca.sign(t, "ops.example.com"), nil, 200},
		{"by DNS name", ca.sign(t, "x", dnsName("OPS.example.com")), nil, 200},
		{"by URI", ca.sign(t, "x", uri("spiffe://example.com/ops")), nil, 200},
		{"nobody's", ca.sign(t, "x", dnsName("ops.example.com.evil"), uri("spiffe://example.com/ops2")), nil, 401},
		{"a wildcard", ca.sign(t, "*", dnsName("*.example.com")), nil, 401},
		{"without names", ca.sign(t, ""), nil, 401},
		{"a page of another origin, in a browser that has it", ca.sign(t, "ops.example.com"), []string{origin}, 403},
		{"nobody's, with a token", ca.sign(t, "x"), []string{"Authorization: Bearer " + secret("grafana")}, 200},
		{"a wrong token beside it", ca.sign(t, "ops.example.com"), []string{"Authorization: Bearer " + secret("x")}, 401},
		{"a password beside it", ca.sign(t, "ops.example.com"), []string{"Authorization: Basic eDp5"}, 401},
	} {
		conn, _ := dialTLS(t, g.admin, ca.trusting(t, c.own))
		if got := conn.send(t, "GET", "/v1/status", c.headers...); got.StatusCode != c.want {
			t.Errorf("%s: %s %s, want %d", c.what, got.Status, got.body, c.want)
		}
	}
	// TLS alone names nobody.
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "https://localhost/v1/status", nil)
	r.TLS = new(tls.ConnectionState)
	if newServer(t, generous, func(c *server.Config) {
		c.Settings.Admin.Clients = []config.Client{{Name: "", Scope: config.WriteScope}}
	}).Admin().ServeHTTP(w, r); w.Code != 401 {
		t.Errorf("without a certificate: %d", w.Code)
	}
}
