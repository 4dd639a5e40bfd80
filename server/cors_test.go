package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

const app, stranger = "https://app.example.com", "https://evil.example"

// withCORS are settings in which pages of app may read answers.
func withCORS(c httplimit.CORS) func(*server.Config) {
	return func(s *server.Config) { s.Settings.CORS = &config.CORS{Policy: c} }
}

// asUpstreams are settings in which upstreams say which pages may read answers.
func asUpstreams(s *server.Config) { s.Settings.CORS = &config.CORS{Upstream: true} }

// page sends a request as a page of an origin does, by h. Headers are name: value lines.
func page(h http.Handler, origin, method, target string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	r.Header.Set("Origin", origin)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// preflight asks by h what a page of an origin may send.
func preflight(h http.Handler, origin, target string, headers ...string) *http.Response {
	return page(h, origin, "OPTIONS", target, append(headers, "Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: x-user")...)
}

// corsOf tells of who may read an answer: the origins and whether with credentials.
func corsOf(r *http.Response) string {
	who := strings.Join(r.Header.Values("Access-Control-Allow-Origin"), " AND ")
	if c := r.Header.Values("Access-Control-Allow-Credentials"); len(c) > 0 {
		who += " credentials " + strings.Join(c, " AND ")
	}
	return who
}

// exposes reports whether an answer shows pages a header.
func exposes(r *http.Response, name string) bool {
	return slices.ContainsFunc(strings.Split(strings.Join(r.Header.Values("Access-Control-Expose-Headers"), ","), ","),
		func(e string) bool { return strings.EqualFold(strings.TrimSpace(e), name) })
}

const corsRules = `
trusted_proxies: [192.0.2.0/24]
blocklist: [request.path == "/blocked"]
rules:
  - {name: api, match: '!request.path.startsWith("/free")', key: client.ip, limits: [1 per 1h]}
`

// corsServer serves corsRules, and upstreams that know CORS, that do not, and that are dead.
func corsServer(t *testing.T, options ...func(*server.Config)) http.Handler {
	t.Helper()
	knows := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Vary", "Accept")
		if origin := r.Header.Get("Origin"); origin == app || strings.HasSuffix(origin, ".echo.example") {
			h.Set("Vary", "Accept, Origin")
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Credentials", "true")
			h.Set("Access-Control-Expose-Headers", "X-Own, retry-after")
			h.Set("Access-Control-Allow-Methods", "PUT")
		}
		if r.URL.Path == "/free/all" || r.URL.Path == "/all" {
			h.Set("Access-Control-Allow-Origin", "*")
			h.Del("Access-Control-Allow-Credentials")
			h.Set("Access-Control-Expose-Headers", "*")
		}
		h.Set("X-Own", r.Method)
		fmt.Fprint(w, "hello")
	})
	plain := upstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") })
	gone := httptest.NewServer(http.NotFoundHandler())
	dead, err := config.ParseUpstream(gone.URL)
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	all := []func(*server.Config){routes(
		config.Route{Host: "example.com", Path: "/", Upstream: knows}, config.Route{Host: "example.com", Path: "/free/plain", Upstream: plain}, config.Route{Host: "example.com", Path: "/free/dead", Upstream: dead})}
	return newServer(t, corsRules, append(all, options...)...).Gateway()
}

// Each answer of the gateway, its own and those of upstreams, can be read by pages of the listed origins
// alone, whatever the upstream says.
func TestCORSOfGateway(t *testing.T) {
	for _, c := range []struct {
		cors          httplimit.CORS
		app, stranger string
	}{
		{httplimit.CORS{Origins: []string{app}}, app, ""},
		{httplimit.CORS{Origins: []string{"https://*.example.com"}, Credentials: true}, app + " credentials true", ""},
		{httplimit.CORS{Origins: []string{"*"}}, "*", "*"},
	} {
		h := corsServer(t, withCORS(c.cors), func(s *server.Config) { s.Settings.DegradedHeader = true })
		for _, request := range []struct {
			target string
			status int
			shows  string
		}{
			{"/", 200, "X-Ratelimit-Remaining"},
			{"/", 429, "Retry-After"},
			{"/free/all", 200, ""},
			{"/free/plain", 200, ""},
			{"/blocked", 403, "Stint-Decision"},
			{"/a/..;/b", 400, ""},
			{"/free/dead", 502, ""},
			{"http://other.example/free", 404, ""},
		} {
			for _, from := range []struct{ origin, want string }{{app, c.app}, {stranger, c.stranger}, {app, c.app}} {
				client := "203.0.113." + fmt.Sprint(len(from.origin))
				r := page(h, from.origin, "GET", request.target, "X-Forwarded-For: "+client)
				if request.target == "/" && r.StatusCode != request.status {
					r = page(h, from.origin, "GET", request.target, "X-Forwarded-For: "+client)
				}
				if request.target != "/" && r.StatusCode != request.status || corsOf(r) != from.want {
					t.Errorf("%+v, %s from %s: %d, allows %q, want %d and %q", c.cors, request.target, from.origin, r.StatusCode, corsOf(r), request.status, from.want)
				}
				if request.shows != "" && r.Header.Get(request.shows) != "" && exposes(r, request.shows) != (from.want != "") {
					t.Errorf("%+v, %s from %s: exposes %q", c.cors, request.target, from.origin, r.Header.Values("Access-Control-Expose-Headers"))
				}
				if vary := strings.Join(r.Header.Values("Vary"), ","); c.app != "*" && strings.Count(strings.ToLower(vary), "origin") != 1 {
					t.Errorf("%s from %s: Vary %q", request.target, from.origin, vary)
				}
			}
		}
	}
}

// The names that an upstream exposes stay, each once.
func TestCORSKeepsWhatUpstreamsExpose(t *testing.T) {
	h := corsServer(t, withCORS(httplimit.CORS{Origins: []string{app}, Credentials: true}))
	r := page(h, app, "GET", "/")
	got := r.Header.Values("Access-Control-Expose-Headers")
	want := "X-Own, retry-after, X-Ratelimit-Limit, X-Ratelimit-Remaining, X-Ratelimit-Reset"
	if len(got) != 1 || got[0] != want || r.Header.Get("Vary") != "Accept, Origin" {
		t.Errorf("%q, want %q; Vary %q", got, want, r.Header.Values("Vary"))
	}
}

// Preflights do not count and do not reach the upstream. Whatever would refuse one is read at the request.
func TestPreflightsAtGateway(t *testing.T) {
	var log logged
	h := corsServer(t, withCORS(httplimit.CORS{Origins: []string{app}}), accessTo(&log))
	for _, target := range []string{"/", "/", "/", "/blocked", "/a/..;/b", "/free/dead", "http://other.example/free"} {
		r := preflight(h, app, target)
		if r.StatusCode != http.StatusNoContent || corsOf(r) != app || r.Header.Get("X-Own") != "" || r.Header.Get("Access-Control-Allow-Methods") != "GET, HEAD, POST, PUT, PATCH, DELETE" {
			t.Errorf("%s: %d %v", target, r.StatusCode, r.Header)
		}
	}
	if r := preflight(h, stranger, "/"); r.StatusCode != http.StatusNoContent || corsOf(r) != "" || r.Header.Get("Access-Control-Allow-Methods") != "" {
		t.Errorf("a stranger's: %d %v", r.StatusCode, r.Header)
	}
	if r := page(h, app, "PUT", "/"); r.StatusCode != 200 {
		t.Errorf("after preflights: %d", r.StatusCode)
	}
	if r := page(h, app, "PUT", "/"); r.StatusCode != 429 || corsOf(r) != app {
		t.Errorf("after the request: %d %v", r.StatusCode, r.Header)
	}
	var outcomes []string
	for _, l := range lines(t, log.taken(), "request") {
		outcomes = append(outcomes, fmt.Sprint(l["outcome"], " ", l["status"]))
	}
	want := []string{"preflight 204", "preflight 204", "preflight 204", "blocked 204", "malformed 204", "preflight 204", "preflight 204", "preflight 204", "allowed 200", "limited 429"}
	if !slices.Equal(outcomes, want) {
		t.Errorf("logged %q, want %q", outcomes, want)
	}
}

// A rule that says so counts preflights; refused ones are answered with 204 still. Other rules do not, and
// without cors all count.
func TestPreflightsOfRules(t *testing.T) {
	const counting = `rules: [{name: api, key: client.ip, limits: [1 per 1h], preflights: true}]`
	for door, of := range map[string]func(*server.Server) http.Handler{
		"gateway": (*server.Server).Gateway,
		"wrap":    func(s *server.Server) http.Handler { return s.Wrap(http.NotFoundHandler()) },
	} {
		h := of(newServer(t, counting, withCORS(httplimit.CORS{Origins: []string{app}})))
		for range 2 {
			if r := preflight(h, app, "/"); r.StatusCode != http.StatusNoContent {
				t.Errorf("%s: %d", door, r.StatusCode)
			}
		}
		if r := page(h, app, "GET", "/"); r.StatusCode != 429 || corsOf(r) != app {
			t.Errorf("%s: the preflight did not count: %d %v", door, r.StatusCode, r.Header)
		}
	}
	h := corsServer(t)
	if r := preflight(h, app, "/"); r.StatusCode != 200 || r.Header.Get("X-Own") != "OPTIONS" || exposes(r, "X-RateLimit-Limit") {
		t.Errorf("without cors: %d %v", r.StatusCode, r.Header)
	}
	if r := preflight(h, app, "/"); r.StatusCode != 429 || corsOf(r) != "" {
		t.Errorf("without cors, the second: %d %v", r.StatusCode, r.Header)
	}
}

// A request that the upstream does not get as a preflight is counted as any other.
func TestPreflightsThatAreNone(t *testing.T) {
	for _, hidden := range []string{"Origin", "access-control-request-method", "origin, Access-Control-Request-Method"} {
		h := corsServer(t, asUpstreams)
		for i, want := range []int{200, 429} {
			if r := preflight(h, app, "/", "Connection: "+hidden); r.StatusCode != want {
				t.Errorf("without %s, request %d: %d, want %d", hidden, i, r.StatusCode, want)
			}
		}
	}
}

// The bound of requests in flight counts preflights, too, and its 503 can be read.
func TestCORSWhenOverloaded(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) { begun <- true; <-end })
	h := newServer(t, `rules: []`, everythingTo(up), withCORS(httplimit.CORS{Origins: []string{app}}), func(c *server.Config) { c.Settings.Instance.InFlight = 1 }).Gateway()
	done := make(chan bool)
	go func() { page(h, app, "GET", "/"); close(done) }()
	<-begun
	r := page(h, app, "GET", "/")
	if r.StatusCode != 503 || corsOf(r) != app || !exposes(r, "Retry-After") {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	if r := preflight(h, app, "/"); r.StatusCode != http.StatusNoContent || corsOf(r) != app {
		t.Errorf("a preflight: %d %v", r.StatusCode, r.Header)
	}
	close(end)
	<-done
}

// The gateway's own answers repeat what the upstream of the same route has allowed to the same origin, and
// preflights pass uncounted.
func TestCORSOfUpstreams(t *testing.T) {
	h := corsServer(t, asUpstreams)
	for range 3 {
		if r := preflight(h, app, "/"); r.StatusCode != 200 || r.Header.Get("X-Own") != "OPTIONS" || corsOf(r) != app+" credentials true" {
			t.Errorf("preflight: %d %v", r.StatusCode, r.Header)
		}
	}
	r := page(h, app, "GET", "/")
	if got := r.Header.Values("Access-Control-Expose-Headers"); r.StatusCode != 200 || corsOf(r) != app+" credentials true" || len(got) != 1 ||
		got[0] != "X-Own, retry-after, X-Ratelimit-Limit, X-Ratelimit-Remaining, X-Ratelimit-Reset" {
		t.Errorf("what passes: %d %v", r.StatusCode, r.Header)
	}
	for _, c := range []struct {
		origin, target string
		status         int
		want           string
	}{
		{app, "/", 429, app + " credentials true"},
		{app, "/blocked", 403, app + " credentials true"},
		{app, "/a/..;/b", 400, app + " credentials true"},
		{stranger, "/", 429, ""},
		{app, "/free/dead", 502, ""},
		{app, "/free/plain", 200, ""},
		{stranger, "/free/all", 200, "*"}, // from now on everybody
		{stranger, "/", 429, "*"},
		{app, "/", 429, app + " credentials true"},
		{app, "/free/dead", 502, ""}, // another route
	} {
		r := page(h, c.origin, "GET", c.target)
		if r.StatusCode != c.status || corsOf(r) != c.want {
			t.Errorf("%s from %s: %d %q, want %d %q", c.target, c.origin, r.StatusCode, corsOf(r), c.status, c.want)
		}
		if c.status == 429 && exposes(r, "Retry-After") != (c.want != "") {
			t.Errorf("%s from %s: exposes %q", c.target, c.origin, r.Header.Values("Access-Control-Expose-Headers"))
		}
		if c.target == "/free/all" && r.Header.Get("Access-Control-Expose-Headers") != "*" {
			t.Errorf("exposes %q", r.Header.Values("Access-Control-Expose-Headers"))
		}
	}
}

// A proxy that asks gets refusals that pages of the listed origins can read; what passes is its upstream's
// business, and so are preflights, which do not count.
func TestCORSOfAuthorize(t *testing.T) {
	for _, c := range []struct {
		what   string
		option func(*server.Config)
		want   string
	}{
		{"listed", withCORS(httplimit.CORS{Origins: []string{app}, Credentials: true}), app + " credentials true"},
		{"upstream", asUpstreams, ""},
	} {
		h := checkAPI(newServer(t, corsRules, c.option))
		ask := func(origin, method, target string, headers ...string) *http.Response {
			return authorize(h, "GET", "/v1/authorize", append(headers, "Host: localhost", "From: 192.0.2.1:9", "X-Forwarded-For: 203.0.113.7",
				"X-Forwarded-Method: "+method, "X-Forwarded-Uri: "+target, "X-Forwarded-Host: example.com", "Origin: "+origin)...).Response
		}
		for range 3 {
			if r := ask(app, "OPTIONS", "/", "Access-Control-Request-Method: PUT"); r.StatusCode != 200 || corsOf(r) != "" {
				t.Errorf("%s: preflight: %d %v", c.what, r.StatusCode, r.Header)
			}
		}
		if r := ask(app, "OPTIONS", "/blocked", "Access-Control-Request-Method: PUT"); r.StatusCode != 403 {
			t.Errorf("%s: blocked preflight: %d", c.what, r.StatusCode)
		}
		if r := ask(app, "GET", "/"); r.StatusCode != 200 || corsOf(r) != "" {
			t.Errorf("%s: what passes: %d %v", c.what, r.StatusCode, r.Header)
		}
		if r := ask(app, "GET", "/"); r.StatusCode != 429 || corsOf(r) != c.want || exposes(r, "Retry-After") != (c.want != "") {
			t.Errorf("%s: refused: %d %v", c.what, r.StatusCode, r.Header)
		}
		if r := ask(stranger, "GET", "/"); r.StatusCode != 429 || corsOf(r) != "" {
			t.Errorf("%s: a stranger: %d %v", c.what, r.StatusCode, r.Header)
		}
		check := httptest.NewRequest("POST", "/v1/check", strings.NewReader(`{"key":"a"}`))
		check.Header = http.Header{"Origin": {app}, "Content-Type": {"application/json"}}
		check.Host = "localhost"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, check)
		if r := w.Result(); corsOf(r) != "" || exposes(r, "Retry-After") {
			t.Errorf("%s: /v1/check answers %d %v", c.what, r.StatusCode, r.Header)
		}
	}
}

// Handlers behind Wrap are treated as upstreams are.
func TestCORSOfWrap(t *testing.T) {
	served := 0
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served++
		w.Header().Add("Access-Control-Allow-Origin", stranger)
		_, _ = io.WriteString(w, "hello")
	})
	h := newServer(t, corsRules, withCORS(httplimit.CORS{Origins: []string{app}})).Wrap(next)
	if r := preflight(h, app, "/"); r.StatusCode != http.StatusNoContent || corsOf(r) != app || served != 0 {
		t.Errorf("preflight: %d %v", r.StatusCode, r.Header)
	}
	if r := page(h, app, "GET", "/"); r.StatusCode != 200 || corsOf(r) != app || !exposes(r, "X-RateLimit-Limit") {
		t.Errorf("what passes: %d %v", r.StatusCode, r.Header)
	}
	if r := page(h, app, "GET", "/"); r.StatusCode != 429 || corsOf(r) != app || !exposes(r, "Retry-After") {
		t.Errorf("refused: %d %v", r.StatusCode, r.Header)
	}
	if r := page(h, stranger, "GET", "/free"); r.StatusCode != 200 || corsOf(r) != "" {
		t.Errorf("a stranger: %d %v", r.StatusCode, r.Header)
	}
	h = newServer(t, corsRules, asUpstreams).Wrap(next)
	for range 3 {
		if r := preflight(h, app, "/"); r.StatusCode != 200 {
			t.Errorf("a preflight for the handler: %d", r.StatusCode)
		}
	}
}

// A preflight whose body does not arrive is not waited for longer than that of another request.
func TestPreflightStalls(t *testing.T) {
	s := newServer(t, `rules: [{name: api, match: body.a == 1, key: client.ip, limits: [1 per 1h], preflights: true}]`,
		withCORS(httplimit.CORS{Origins: []string{app}}), func(c *server.Config) { c.Settings.BodyTimeout = 1 })
	g := start(t, s)
	conn := dial(t, g.gateway)
	fmt.Fprintf(conn, "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: %s\r\nAccess-Control-Request-Method: PUT\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{", app)
	var answer []byte
	await.So(func() bool {
		b := make([]byte, 1024)
		n, err := conn.Read(b)
		answer = append(answer, b[:n]...)
		return err != nil || strings.Contains(string(answer), "\r\n\r\n")
	})
	if !strings.HasPrefix(string(answer), "HTTP/1.1 204 ") {
		t.Errorf("%s", answer)
	}
}

// Upstreams that are asked for their CORS and do not exist are a finding.
func TestCORSInVain(t *testing.T) {
	up, err := config.ParseUpstream("http://localhost:9000")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		options []func(*server.Config)
		found   bool
	}{
		"upstreams and no routes": {[]func(*server.Config){asUpstreams}, true},
		"upstreams and a route":   {[]func(*server.Config){asUpstreams, everythingTo(up)}, false},
		"listed and no routes":    {[]func(*server.Config){withCORS(httplimit.CORS{Origins: []string{app}})}, false},
		"no cors":                 {nil, false},
	} {
		found := slices.ContainsFunc(newServer(t, "rules: []", c.options...).Findings(), func(f rules.Finding) bool { return f.Code == rules.CodeCORS })
		if found != c.found {
			t.Errorf("%s: found %t", what, found)
		}
	}
}

// An explanation of a preflight says why rules do not count it, where the gateway would not.
func TestExplainsPreflights(t *testing.T) {
	const preflight = `{"client":"203.0.113.9","request":{"method":"OPTIONS","path":"/","headers":{"Origin":"https://app.example.com","Access-Control-Request-Method":"PUT"}}}`
	for want, options := range map[string][]func(*server.Config){
		"the request is a CORS preflight": {withCORS(httplimit.CORS{Origins: []string{app}})},
		`"outcome":"allowed"`:             nil,
	} {
		r := httptest.NewRequest("POST", "http://localhost/v1/explain", strings.NewReader(preflight))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		newServer(t, corsRules, options...).Admin().ServeHTTP(w, r)
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d, no %s: %s", w.Code, want, w.Body)
		}
	}
}
