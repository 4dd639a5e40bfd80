package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/rules"
)

const shaped = `
trusted_proxies: [192.0.2.99]
blocklist: ['request.path == "/blocked"']
errors:
  headers: {X-Error: "{outcome}"}
  bodies:
    application/json: '{"error": {"code": "{outcome}", "message": "{message}", "wait": {retry_after_seconds}}}'
    text/html: '<h1>{status}</h1><p>{message}</p>'
refusal:
  bodies:
    application/json: {text: '{"errors": [{"message": "{message}", "limit": "{limit}", "of": [{violations}, {ban_after}]}]}', status: 200}
    text/html: '<h1>Too many</h1>{message}'
rules:
  - name: login
    match: request.path == "/login"
    key: client.ip
    limits: [1 per 1h fixed_window]
    penalty: {ban_after: 2, ban_for: 30m}
    message: {en: 'No "{limit}" more.', de: 'Schluss <{violations}>'}
    refusal:
      status: 420
      headers: {X-Error: "login {retry_after_seconds}"}
      grpc: {code: aborted, message: "slow down"}
  - name: rest
    match: request.path == "/rest"
    limits: [1 per 1h fixed_window]
`

// shapedDoors are the ways to a refusal, each with counts of its own.
func shapedDoors(t *testing.T, text string) map[string]func(path, accept string) answer {
	ask := func(h http.Handler, path, accept string, authorize bool) answer {
		headers := []string{"Accept: " + accept, "Accept-Language: de", "From: 192.0.2.1:1"}
		if !authorize {
			return askBy(h, path, headers)
		}
		return askBy(h, "/v1/authorize", append(headers, "From: 192.0.2.99:1", "X-Forwarded-Method: GET", "X-Forwarded-Uri: "+path, "X-Forwarded-For: 192.0.2.1"))
	}
	gateway, checks := newServer(t, text).Gateway(), checkAPI(newServer(t, text))
	wrapped := newServer(t, text).Wrap(http.NotFoundHandler())
	return map[string]func(path, accept string) answer{
		"gateway":   func(path, accept string) answer { return ask(gateway, path, accept, false) },
		"wrap":      func(path, accept string) answer { return ask(wrapped, path, accept, false) },
		"authorize": func(path, accept string) answer { return ask(checks, path, accept, true) },
	}
}

func askBy(h http.Handler, target string, headers []string) answer {
	return authorize(h, "GET", target, headers...)
}

// Each door refuses in the formats of the file: that of the rule, of all rules, and of other answers.
func TestErrorFormats(t *testing.T) {
	const (
		browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
		js      = "application/json"
		page    = "text/html; charset=utf-8"
	)
	for door, ask := range shapedDoors(t, shaped) {
		graph := 200
		if door == "authorize" {
			graph = 420 // a proxy would let it pass
		}
		rest := min(graph, 200)
		if door == "authorize" {
			rest = 429
		}
		for i, c := range []struct {
			path, accept string
			status       int
			contentType  string
			body, header string
		}{
			{"/login", "", 0, "", "", ""},
			{"/login", "", graph, js, `{"errors": [{"message": "Schluss \u003c1\u003e", "limit": "1 per 1h fixed_window", "of": [1, 2]}]}`, "login"},
			{"/login", browser, 420, page, "<h1>Too many</h1>Schluss &lt;2&gt;", "login"},
			{"/login", "application/problem+json", 420, "application/problem+json", `"detail":"Schluss \u003c2\u003e"`, "login"},
			{"/rest", "", 0, "", "", ""},
			{"/rest", "", rest, js, `"limit": "1 per 1h fixed_window", "of": [null, null]`, "limited"},
			{"/rest", browser, 429, page, "<h1>Too many</h1>Too many requests.", "limited"},
			{"/blocked", "", 403, js, `{"error": {"code": "blocked", "message": "This request is not accepted.", "wait": null}}`, "blocked"},
			{"/blocked", browser, 403, page, "<h1>403</h1><p>This request is not accepted.</p>", "blocked"},
			{"/x/../login", "", 400, js, `{"error": {"code": "bad_request", "message": "`, "bad_request"},
		} {
			got := ask(c.path, c.accept)
			if c.status == 0 {
				if got.Header.Get("X-Ratelimit-Remaining") != "0" || got.Header.Get("X-Error") == "limited" {
					t.Errorf("%s, %d: not allowed: %s %v", door, i, got.Status, got.Header)
				}
				continue
			}
			header, _, _ := strings.Cut(got.Header.Get("X-Error"), " ")
			if got.StatusCode != c.status || got.Header.Get("Content-Type") != c.contentType || !strings.Contains(got.body, c.body) || header != c.header || got.Header.Get("Vary") != "Accept" {
				t.Errorf("%s, %d: %s %v\n%s\nwant %d %s %s", door, i, got.Status, got.Header, got.body, c.status, c.contentType, c.body)
			}
			if strings.HasSuffix(c.contentType, "json") && !json.Valid([]byte(got.body)) {
				t.Errorf("%s, %d: no JSON: %s", door, i, got.body)
			}
			if is := got.Header.Get("Retry-After") != ""; is != (c.path == "/login" || c.path == "/rest") {
				t.Errorf("%s, %d: Retry-After %q", door, i, got.Header.Get("Retry-After"))
			}
		}
	}
}

// Other answers of the gateway have the format, too; those to callers of the check API do not.
func TestErrorFormatOfTheGateway(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	address := gone.URL
	gone.Close()
	up := upstream(t, func(http.ResponseWriter, *http.Request) {})
	up.Host = strings.TrimPrefix(address, "http://")
	s := newServer(t, shaped, everythingTo(up))
	if got := askBy(s.Gateway(), "/x", nil); got.StatusCode != 502 || got.body != `{"error": {"code": "bad_gateway", "message": "The upstream cannot be reached.", "wait": null}}` || got.Header.Get("X-Error") != "bad_gateway" {
		t.Errorf("%s %v %s", got.Status, got.Header, got.body)
	}
	if got := askBy(newServer(t, shaped).Gateway(), "/x", []string{"Accept: text/html"}); got.StatusCode != 404 || got.body != "<h1>404</h1><p>No route matches this request.</p>" {
		t.Errorf("%s %s", got.Status, got.body)
	}
	for _, h := range []http.Handler{checkAPI(s), s.Admin()} {
		if got := authorize(h, "POST", "/v1/check", "Content-Type: text/plain", "Accept: text/html"); got.StatusCode < 400 || strings.Contains(got.body, "<h1>") {
			t.Errorf("%s %s", got.Status, got.body)
		}
	}
}

// A gRPC client gets the code and the message of the rule, and through /v1/authorize the proxy a status
// that refuses.
func TestErrorFormatOfGRPC(t *testing.T) {
	for name, h := range map[string]http.Handler{"gateway": newServer(t, shaped).Gateway(), "wrap": newServer(t, shaped).Wrap(http.NotFoundHandler())} {
		var got http.Header
		for range 2 {
			r, w := httptest.NewRequest("POST", "/login", nil), httptest.NewRecorder()
			r.ProtoMajor, r.ProtoMinor, r.Proto = 2, 0, "HTTP/2.0"
			r.Header.Set("Content-Type", "application/grpc")
			h.ServeHTTP(w, r)
			got = w.Header()
		}
		if got.Get("Grpc-Status") != "10" || got.Get("Grpc-Message") != "slow down" || !strings.HasPrefix(got.Get("X-Error"), "login ") || got.Get("Grpc-Retry-Pushback-Ms") == "" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The formats change with the rules, whose version changes with them.
func TestErrorFormatReloads(t *testing.T) {
	s := newServer(t, shaped)
	h := s.Gateway()
	versions := map[string]bool{s.Rules().Version: true}
	for i, text := range []string{
		strings.Replace(shaped, "<h1>{status}</h1>", "<h2>{status}</h2>", 1),
		shaped[:strings.Index(shaped, "errors:")] + shaped[strings.Index(shaped, "refusal:"):],
	} {
		set, err := rules.Parse("rules.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if taken, err := s.SetRules(set); !taken || err != nil {
			t.Fatal(taken, err)
		}
		versions[set.Version] = true
		want := []string{"<h2>403</h2>", `"status":403`}[i]
		if got := askBy(h, "/blocked", []string{"Accept: text/html"}); !strings.Contains(got.body, want) {
			t.Errorf("%d: %s", i, got.body)
		}
	}
	if len(versions) != 3 {
		t.Errorf("versions %v", versions)
	}
}

// A ban of a network, which no rule decides, refuses in the format of all rules; a change made at run time
// loses no format.
func TestErrorFormatOfBansByHand(t *testing.T) {
	s := newServer(t, shaped)
	operator{t, s.Admin()}.want(201, "POST", "/v1/bans", `{"network":"192.0.2.0/24"}`)
	got := askBy(s.Gateway(), "/x", []string{"Accept: text/html"})
	if got.StatusCode != 429 || got.body != "<h1>Too many</h1>This network is banned by the operator of this service." || got.Header.Get("X-Error") != "banned" {
		t.Errorf("%s %v %s", got.Status, got.Header, got.body)
	}
}
