package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// browser calls an admin API as a page that it serves does: with the cookies that it was
// given, with Origin, unless the call only reads, and with Sec-Fetch-Site.
type browser struct {
	operator
	origin string
	jar    map[string]string
}

func newBrowser(t testing.TB, h http.Handler) *browser {
	return &browser{operator{t, h}, "http://127.0.0.1:8090", map[string]string{}}
}

// call sends a request; headers replace those of the page, and an empty one removes it.
func (b *browser) call(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	b.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:8090"+path, strings.NewReader(body))
	_, r.Host, _ = strings.Cut(b.origin, "://")
	r.RemoteAddr = "192.0.2.9:5000"
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if method != "GET" {
		r.Header.Set("Origin", b.origin)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range b.jar {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Del(headers[i]); headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	if r.Header.Get("Test-From") != "" {
		r.RemoteAddr = r.Header.Get("Test-From")
	}
	w := httptest.NewRecorder()
	b.h.ServeHTTP(w, r)
	b.holdsTo(r, body, w)
	for _, c := range w.Result().Cookies() {
		if c.MaxAge < 0 {
			delete(b.jar, c.Name)
		} else {
			b.jar[c.Name] = c.Value
		}
	}
	return w
}

func (b *browser) want(status int, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	b.Helper()
	w := b.call(method, path, body, headers...)
	if w.Code != status {
		b.Errorf("%s %s %q: %d %s, want %d", method, path, headers, w.Code, w.Body, status)
	}
	return w
}

func (b *browser) signIn(token string, status int) *httptest.ResponseRecorder {
	b.Helper()
	return b.want(status, "POST", "/v1/session", fmt.Sprintf(`{"token":%q}`, token))
}

// withTokens has a read token grafana and a write token ops, in files.
func withTokens(t testing.TB) (s *server.Server, opsFile string) {
	opsFile = inFile(t, secret("ops"))
	s = newServer(t, generous, func(c *server.Config) {
		c.Settings.Admin.Tokens = []config.Token{
			{Name: "ops", Scope: config.WriteScope, File: opsFile}, {Name: "grafana", Scope: config.ReadScope, File: inFile(t, secret("grafana"))},
		}
	})
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	return s, opsFile
}

// A browser signs in with a token, calls by its cookie alone within the scope of the token,
// and signs out. Another page cannot call by that cookie.
func TestSession(t *testing.T) {
	s, _ := withTokens(t)
	b := newBrowser(t, s.Admin())
	b.want(401, "GET", "/v1/session", "")
	if b.signIn(secret("nobody"), 401); len(b.jar) != 0 {
		t.Fatalf("a wrong token: cookies %v", b.jar)
	}
	signed := b.signIn(secret("grafana"), 201)
	cookie := signed.Header().Get("Set-Cookie")
	for _, part := range []string{"stint-session-8090=", "; Path=/", "; HttpOnly", "; SameSite=Strict"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("the cookie %s lacks %s", cookie, part)
		}
	}
	for _, part := range []string{"Secure", "Domain", "Max-Age", "Expires"} {
		if strings.Contains(cookie, part) {
			t.Errorf("the cookie %s has %s", cookie, part)
		}
	}
	if all := fmt.Sprint(signed.Header(), signed.Body); strings.Contains(all, "geheim") {
		t.Errorf("the answer has the token: %s", all)
	}
	if got := b.want(200, "GET", "/v1/session", "").Body.String(); !strings.HasPrefix(got, `{"name":"grafana","scope":"read","by":"session","until":"`) {
		t.Error(got)
	}
	b.want(200, "GET", "/v1/status", "")
	b.want(403, "PATCH", "/v1/switches", `{"enabled":false}`) // its scope is read
	b.signIn(secret("ops"), 201)                              // instead
	b.want(200, "PATCH", "/v1/switches", `{"enabled":false}`)

	for what, headers := range map[string][]string{
		"no origin":         {"Origin", ""},
		"another origin":    {"Origin", "http://evil.example"},
		"another port":      {"Origin", "http://127.0.0.1:3000"},
		"a file":            {"Origin", "null"},
		"another site":      {"Sec-Fetch-Site", "cross-site"},
		"a page of a port":  {"Sec-Fetch-Site", "same-site"},
		"a site of no kind": {"Sec-Fetch-Site", ""}, // plain HTTP from elsewhere: Origin suffices
	} {
		want := 403
		if what == "a site of no kind" {
			want = 200
		}
		if w := b.call("PATCH", "/v1/switches", `{"enabled":null}`, headers...); w.Code != want {
			t.Errorf("%s changes something: %d %s", what, w.Code, w.Body)
		}
		if w := b.call("DELETE", "/v1/session", "", headers...); want == 403 && w.Code != 403 {
			t.Errorf("%s signs out: %d %s", what, w.Code, w.Body)
		}
		if want == 200 {
			b.signIn(secret("ops"), 201)
		}
	}
	b.want(403, "GET", "/v1/status", "", "Sec-Fetch-Site", "same-site")
	b.want(403, "GET", "/v1/status", "", "Origin", "http://127.0.0.1:3000")
	b.want(401, "GET", "/v1/status", "", "Authorization", "Bearer "+secret("nobody")) // a wrong token is not covered up

	stolen := b.jar["stint-session-8090"]
	b.want(200, "DELETE", "/v1/session", "")
	if len(b.jar) != 0 {
		t.Errorf("signed out, it keeps %v", b.jar)
	}
	b.jar["stint-session-8090"] = stolen
	b.want(401, "GET", "/v1/status", "")
	b.want(401, "DELETE", "/v1/session", "")
}

// A sign-in over TLS sets a cookie that only this host can have set and that never travels
// unencrypted, also if a proxy ends TLS.
func TestSessionCookieOverTLS(t *testing.T) {
	s, _ := withTokens(t)
	b := newBrowser(t, s.Admin())
	for _, origin := range []string{"https://stint.example.com", "https://stint.example.com:8443"} {
		b.origin = origin
		for name := range b.jar {
			delete(b.jar, name)
		}
		cookie := b.signIn(secret("ops"), 201).Header().Get("Set-Cookie")
		want := "__Host-stint-session"
		if strings.HasSuffix(origin, "8443") {
			want += "-8443"
		}
		if !strings.HasPrefix(cookie, want+"=") || !strings.Contains(cookie, "; Secure") {
			t.Errorf("%s: %s", origin, cookie)
		}
		b.want(200, "PATCH", "/v1/switches", `{"enabled":true}`)
	}
}

// A session ends with its token, twelve hours after its start, and an hour after its last use.
func TestSessionEnds(t *testing.T) {
	s, opsFile := withTokens(t)
	b := newBrowser(t, s.Admin())
	b.signIn(secret("ops"), 201)
	put(t, opsFile, []byte(secret("new")))
	s.ReloadFiles()
	b.want(401, "GET", "/v1/status", "")
	put(t, opsFile, []byte(secret("ops"))) // what has ended does not come back
	s.ReloadFiles()
	b.want(401, "GET", "/v1/status", "")
	synctest.Test(t, func(t *testing.T) {
		s, _ := withTokens(t)
		b := newBrowser(t, s.Admin())
		b.signIn(secret("ops"), 201)
		time.Sleep(time.Hour)
		b.want(200, "GET", "/v1/status", "")
		time.Sleep(time.Hour + 1)
		b.want(401, "GET", "/v1/status", "")
		b.signIn(secret("ops"), 201)
		for range 12 {
			time.Sleep(time.Hour - time.Second)
			b.want(200, "GET", "/v1/status", "")
		}
		time.Sleep(13 * time.Second)
		b.want(401, "GET", "/v1/status", "")
	})
}

// The check API knows no cookie, and nothing signs in where the dashboard is off, or where the
// settings have no tokens.
func TestSessionsAreOfTheDashboard(t *testing.T) {
	tokens := []config.Token{{Name: "ops", Scope: config.WriteScope, File: inFile(t, secret("ops"))}}
	for _, on := range []bool{true, false} {
		s := newServer(t, generous, func(c *server.Config) {
			c.Settings.Admin.Tokens, c.Settings.Check.Tokens, c.Settings.Admin.Dashboard = tokens, tokens, on
		})
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		b := newBrowser(t, s.Admin())
		if !on {
			b.want(405, "POST", "/v1/session", `{"token":"`+secret("ops")+`"}`)
			b.want(404, "GET", "/", "")
			b.want(404, "GET", "/static/icon.svg", "")
			b.want(200, "GET", "/v1/session", "", "Authorization", "Bearer "+secret("ops"))
			continue
		}
		b.signIn(secret("ops"), 201)
		r := httptest.NewRequest("POST", b.origin+"/v1/check", strings.NewReader(`{"client":"192.0.2.1"}`))
		r.Header.Set("Content-Type", "application/json")
		for name, value := range b.jar {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		w := httptest.NewRecorder()
		if checkAPI(s).ServeHTTP(w, r); w.Code != 401 {
			t.Errorf("a check by a cookie: %d %s", w.Code, w.Body)
		}
	}
	open := newBrowser(t, newServer(t, generous).Admin())
	open.signIn(secret("ops"), 422)
	if got := open.want(200, "GET", "/v1/session", "").Body.String(); got != `{"name":"local","scope":"write","by":"local"}`+"\n" {
		t.Error(got)
	}
	open.want(404, "DELETE", "/v1/session", "")
	open.want(403, "POST", "/v1/session", `{"token":"x"}`, "Origin", "http://evil.example")
}

// A client that tries many tokens is shut out, even with the right one, for as long as it
// takes to gain another try. Others are not, and a program that repeats one wrong token is
// none that tries many.
func TestAttackGuessedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withTokens(t)
		b := newBrowser(t, s.Admin())
		for range 1000 {
			b.want(401, "GET", "/v1/status", "", "Authorization", "Bearer "+secret("outdated"))
		}
		b.want(200, "GET", "/v1/status", "", "Authorization", "Bearer "+secret("ops"))
		for i := range 29 { // the outdated one was the first
			if i%2 == 0 {
				b.signIn(secret(fmt.Sprint(i)), 401)
			} else {
				b.want(401, "GET", "/v1/status", "", "Authorization", "Bearer "+secret(fmt.Sprint(i)))
			}
		}
		for range 10 {
			if w := b.signIn(secret("ops"), 429); w.Header().Get("Retry-After") != "2" {
				t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
			}
			b.want(429, "GET", "/v1/status", "", "Authorization", "Bearer "+secret("ops"))
		}
		b.want(401, "GET", "/v1/status", "") // without a token nothing was tried
		elsewhere := newBrowser(t, s.Admin())
		elsewhere.want(200, "GET", "/v1/status", "", "Authorization", "Bearer "+secret("ops"), "Test-From", "192.0.2.10:1")
		time.Sleep(2 * time.Second)
		b.signIn(secret("ops"), 201)
		b.want(401, "GET", "/v1/status", "", "Authorization", "Bearer "+secret("another"))
		b.want(200, "GET", "/v1/status", "") // its session goes on
		b.want(429, "GET", "/v1/status", "", "Authorization", "Bearer "+secret("ops"))
	})
}

// What is sent to sign in is bounded before anything is known of the caller.
func TestSignInRefuses(t *testing.T) {
	s, _ := withTokens(t)
	b := newBrowser(t, s.Admin())
	b.want(413, "POST", "/v1/session", `{"token":"`+strings.Repeat("a", 16<<10)+`"}`)
	b.want(415, "POST", "/v1/session", `token=a`, "Content-Type", "application/x-www-form-urlencoded")
	b.want(415, "POST", "/v1/session", `{"token":"a"}`, "Content-Type", "text/plain")
	b.want(400, "POST", "/v1/session", `{"token":1}`)
	b.want(400, "POST", "/v1/session", `{"tokens":"a"}`)
	b.want(401, "POST", "/v1/session", `{}`)
	for _, headers := range [][]string{{"Origin", ""}, {"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		b.want(403, "POST", "/v1/session", `{"token":"`+secret("ops")+`"}`, headers...)
	}
	if len(b.jar) > 0 {
		t.Error(b.jar)
	}
}

// The dashboard is at / and below /static/ of the admin listener, for everybody. Every other
// path is answered as before.
func TestDashboardIsMounted(t *testing.T) {
	s, _ := withTokens(t)
	g := start(t, s)
	for target, want := range map[string]int{
		"/": 200, "/static/icon.svg": 200, "/?x=1": 200, "/static/nothing.js": 404, "/static/": 404, "/static": 404, "/index.html": 404,
		"//": 404, "/.": 404, "/x/..": 404, "/static/../": 404, "/static/%2e%2e/x": 404, "/v1": 404, "/v1/nothing": 404, "/v1/status": 401,
	} {
		got := send(t, g.admin, "GET", target)
		if got.StatusCode != want {
			t.Errorf("GET %s: %s, want %d", target, got.Status, want)
		}
		if page := strings.Contains(got.body, "<html"); page != (target == "/" || target == "/?x=1") {
			t.Errorf("GET %s: %.200s", target, got.body)
		}
		if want == 404 && !strings.HasPrefix(target, "/static/n") && !strings.Contains(target, "%") && got.problem(t) == "" {
			t.Errorf("GET %s: no problem: %s", target, got.body)
		}
	}
	page := send(t, g.admin, "GET", "/")
	if policy := page.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	if got := send(t, g.admin, "HEAD", "/"); got.StatusCode != 200 || got.body != "" {
		t.Errorf("HEAD /: %s %q", got.Status, got.body)
	}
	if got := send(t, g.admin, "POST", "/"); got.StatusCode != 405 || got.Header.Get("Allow") != "GET, HEAD" || got.problem(t) == "" {
		t.Errorf("POST /: %s %v", got.Status, got.Header)
	}
	if got := send(t, g.check, "GET", "/"); got.StatusCode != 404 {
		t.Errorf("the check API: %s", got.Status)
	}
}
