package server_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// oneCallerRules count by a credential and by a cookie.
const oneCallerRules = `
trusted_proxies: [127.0.0.1/32]
rules:
  - {name: api, match: 'request.path == "/"', key: sha256(request.credential), limits: [2 per 24h fixed_window]}
  - {name: session, match: 'request.path == "/s"', key: 'sha256(request.cookies["SESSION"])', limits: [2 per 24h fixed_window]}
`

// spelledCredentials are headers by which a lenient application serves the client "ann:k".
func spelledCredentials() (all []string) {
	for _, scheme := range []string{"Bearer", "bearer", "BEARER", "BeArEr", "Token", "token"} {
		for _, blanks := range []string{" ", "  ", "\t", " \t ", "     "} {
			for _, after := range []string{"", " ", "\t"} {
				all = append(all, "Authorization: "+scheme+blanks+"ann:k"+after)
			}
		}
	}
	for _, scheme := range []string{"Basic ", "basic  ", "BASIC\t"} {
		for _, plain := range []string{"YW5uOms=", "YW5uOms", "YW5uOmt=", "YW5uOmt"} {
			all = append(all, "Authorization: "+scheme+plain)
		}
	}
	return append(all, "X-Api-Key: ann:k", "Api-Key: ann:k ", "Authorization: ann:k",
		"Authorization: Bearer ann:k, other", "Authorization: Bearer ann:k;x=1", "Authorization: Bearer ann:k 1", `Authorization: Token token="ann:k"`,
		"Authorization: Digest a=1, Bearer ann:k")
}

// spelledCookies are headers by which some application takes the client for the session "k:1".
func spelledCookies() (all []string) {
	for _, cookies := range []string{
		"SESSION=k:1", `SESSION="k:1"`, "SESSION=%6b:1", "SESSION=k%3A1", "SESSION = k:1", "a=b; SESSION=k:1", "SESSION=k:1;", `SESSION="%6B:1"`,
		"SESSION=k:1; SESSION=k:1", "SESSION=other1; SESSION=k:1", "SESSION=k:1; SESSION=other2", "a=1,SESSION=k:1", "SESSION=other3; a=1, SESSION=k:1",
		"=SESSION=k:1", `SESSION="\153:1"`, "session=k:1", "SESSION[]=k:1", "%53ESSION=k:1", "SESSION=other4; Session=k:1",
	} {
		all = append(all, "Cookie: "+cookies)
	}
	return all
}

// forgiving is an application that serves clients however they spell what they are known by, and counts
// for how many requests of one client it worked.
type forgiving struct{ served atomic.Int64 }

func (l *forgiving) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if l.knows(r.Header) {
		l.served.Add(1)
	}
}

func (l *forgiving) knows(h http.Header) bool {
	for _, name := range []string{"Authorization", "X-Api-Key", "Api-Key"} {
		words := strings.FieldsFunc(h.Get(name), func(c rune) bool { return strings.ContainsRune(" \t,;\"", c) })
		for _, word := range words {
			plain, _ := base64.RawStdEncoding.DecodeString(strings.TrimRight(word, "="))
			if strings.TrimPrefix(word, "token=") == "ann:k" || string(plain) == "ann:k" {
				return true
			}
		}
	}
	for _, part := range strings.FieldsFunc(strings.Join(h["Cookie"], ";"), func(c rune) bool { return c == ';' || c == ',' }) {
		name, value, _ := strings.Cut(strings.TrimLeft(part, "= "), "=")
		name, _ = url.PathUnescape(strings.TrimSuffix(strings.TrimSpace(name), "[]"))
		value, _ = url.PathUnescape(strings.ReplaceAll(strings.Trim(value, "\" "), `\153`, "k"))
		if strings.EqualFold(name, "SESSION") && value == "k:1" {
			return true
		}
	}
	return false
}

// A client is served as often as the limit says, however it spells what it is known by: through the
// gateway, behind proxies, in a program's own handler, and in a check.
func TestOneCaller(t *testing.T) {
	app := &forgiving{}
	up := upstream(t, app.ServeHTTP)
	doors := map[string]func(t *testing.T) func(target, header string) int{
		"gateway": func(t *testing.T) func(string, string) int {
			g := start(t, newServer(t, oneCallerRules, everythingTo(up)))
			return func(target, header string) int { return send(t, g.gateway, "GET", target, header).StatusCode }
		},
		"check": func(t *testing.T) func(string, string) int {
			s := newServer(t, oneCallerRules)
			return func(target, header string) int {
				w := check(s, fmt.Sprintf(`{"request":{"path":%q,"headers":{%s}}}`, target, asJSON([]string{header})))
				if name, value, _ := strings.Cut(header, ": "); w.Code == 200 && app.knows(http.Header{name: {value}}) {
					app.served.Add(1)
				}
				return w.Code
			}
		},
	}
	ask := func(h http.Handler, target, header string) int {
		r := httptest.NewRequest("GET", target, nil)
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	doors["wrapped"] = func(t *testing.T) func(string, string) int {
		h := newServer(t, oneCallerRules).Wrap(app)
		return func(target, header string) int { return ask(h, target, header) }
	}
	doors["authorizer"] = func(t *testing.T) func(string, string) int {
		authorize := newServer(t, oneCallerRules).Authorizer()
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			call := httptest.NewRequest("POST", "/", nil)
			call.RemoteAddr = "127.0.0.1:1"
			call = call.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
			a := &server.Asked{Call: call, Original: r}
			if err := authorize(w, a); err != nil {
				t.Error(err)
			}
			if a.Passes {
				app.ServeHTTP(w, r)
			}
		})
		return func(target, header string) int { return ask(h, target, header) }
	}
	for _, p := range realProxies {
		doors[p.binary] = func(t *testing.T) func(string, string) int {
			addr := p.start(t, start(t, newServer(t, oneCallerRules)).check, up.Host)
			return func(target, header string) int {
				return sendFrom(t, "127.0.0.2", addr, "GET", target, "", header).StatusCode
			}
		}
	}
	for name, open := range doors {
		t.Run(name, func(t *testing.T) {
			ask := open(t)
			for target, headers := range map[string][]string{"/": spelledCredentials(), "/s": spelledCookies()} {
				app.served.Store(0)
				for _, header := range headers {
					if status := ask(target, header); status != 200 && status != 400 && status != 429 {
						t.Errorf("%q: %d", header, status)
					}
				}
				if n := app.served.Load(); n != 2 {
					t.Errorf("%s: %d of %d spellings were served, want 2", target, n, len(headers))
				}
			}
		})
	}
}

// The test can fail: where something ambiguous is let through, a client is served more often.
func TestOneCallerFinds(t *testing.T) {
	for _, kind := range []rules.Ambiguity{rules.RepeatedCookie, rules.TwinCookie, rules.UnclearCredential} {
		app := &forgiving{}
		g := start(t, newServer(t, oneCallerRules, everythingTo(upstream(t, app.ServeHTTP)), func(c *server.Config) { c.Settings.AllowAmbiguous = kind }))
		for target, headers := range map[string][]string{"/": spelledCredentials(), "/s": spelledCookies()} {
			for _, header := range headers {
				send(t, g.gateway, "GET", target, header)
			}
		}
		if n := app.served.Load(); n <= 4 {
			t.Errorf("%s: %d requests were served, and 4 are within the limits", kind, n)
		}
	}
}

// The application knows the client by every spelling, or the test would show nothing.
func TestSpellingsAreServed(t *testing.T) {
	app := &forgiving{}
	for _, header := range append(spelledCredentials(), spelledCookies()...) {
		if name, value, _ := strings.Cut(header, ": "); !app.knows(http.Header{name: {value}}) {
			t.Errorf("%q is nobody", header)
		}
	}
	if n := len(spelledCredentials()); n < 74 {
		t.Errorf("%d spellings", n)
	}
}
