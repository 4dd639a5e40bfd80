package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	limits "github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// twoPages serves an empty page at two origins: of one, pages may read answers; the other is a stranger.
func twoPages(t *testing.T) (app, stranger string) {
	t.Helper()
	empty := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><title>page</title>`)
	})
	one, other := httptest.NewServer(empty), httptest.NewServer(empty)
	t.Cleanup(one.Close)
	t.Cleanup(other.Close)
	return one.URL, other.URL
}

// apiUpstream is an API that knows nothing of Stint. It says CORS headers itself if it is to, for one
// origin, with credentials if its path begins with /me.
func apiUpstream(t *testing.T, origin string) (address string, preflights func() int) {
	t.Helper()
	seen := make(chan bool, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain")
		if origin != "" && r.Header.Get("Origin") == origin {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Credentials", "true")
			h.Set("Access-Control-Allow-Methods", "PUT")
			h.Set("Access-Control-Allow-Headers", "x-user")
			h.Set("Access-Control-Expose-Headers", "X-Own")
		}
		h.Set("X-Own", "yes")
		switch {
		case r.Method == http.MethodOptions:
			seen <- true
		case strings.HasSuffix(r.URL.Path, "/slow"):
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, "hello %s", r.Header.Get("Cookie"))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, func() int { return len(seen) }
}

// deadAddress is one where nothing listens.
func deadAddress() string {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return s.URL
}

// read is what a page reads of an answer.
type read struct {
	Status  int // 0: a network error
	Headers map[string]string
	Body    string
}

// fetch has the page fetch a URL.
func (b *tab) fetch(address, init string) (r read) {
	b.t.Helper()
	if init == "" {
		init = "{}"
	}
	return eval[read](b, fmt.Sprintf(`fetch(%q, %s).then(
		async r => ({Status: r.status, Headers: Object.fromEntries(r.headers), Body: await r.text()}),
		() => ({Status: 0}))`, address, init))
}

// shows reports whether a page reads all of these headers of a refusal, and its problem details.
func (r *read) shows(names ...string) string {
	for _, name := range names {
		if r.Headers[name] == "" {
			return "no " + name
		}
	}
	var p struct {
		Status int
		Detail string
	}
	if err := json.Unmarshal([]byte(r.Body), &p); err != nil || p.Status != r.Status || p.Detail == "" {
		return fmt.Sprintf("no problem details: %s", r.Body)
	}
	return ""
}

// corsSettings is a configuration of the gateway with these CORS settings in front of upstreams.
func corsSettings(cors, api string) string {
	return fmt.Sprintf(`
server:
  headers: [x-ratelimit, draft-11]
  violations_header: true
  cors: %s
  instance: {in_flight: 100}
  routes:
    - {path: /api, upstream: %q}
    - {path: /dead, upstream: %q}
    - {path: /late, upstream: %q, response_timeout: 200ms}
blocklist: ['request.path == "/api/blocked"']
rules:
  - name: api
    match: request.path.startsWith("/api/limited")
    key: request.path
    limits: [1 per 1h]
    penalty: {warn_after: 5}
  - {name: bodies, match: 'request.path == "/api/body"', key: 'body.name', limits: [100 per 1h], unreadable_body: refuse}
`, cors, api, deadAddress(), api)
}

// A page of a listed origin reads each answer of the gateway itself, with its headers and its body, and what
// an upstream answers that knows nothing of CORS. A page of another origin reads nothing.
func TestPagesReadRefusals(t *testing.T) {
	t.Parallel()
	app, stranger := twoPages(t)
	api, preflights := apiUpstream(t, "")
	s := serve(t, corsSettings(fmt.Sprintf("{origins: [%q], credentials: true, max_age: 1m}", app), api))
	page, other := openQuiet(t), openQuiet(t)
	page.visit(app)
	other.visit(stranger)
	const put = `{method: 'PUT', headers: {'X-User': 'ann'}, body: 'x'}`
	for _, c := range []struct {
		what, path, init string
		status           int
		headers          []string
	}{
		{"allowed", "/api/limited/1", "", 200, []string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "ratelimit-policy"}},
		{"limited", "/api/limited/1", "", 429, []string{"retry-after", "x-ratelimit-limit", "ratelimit", "ratelimit-policy", "stint-decision", "stint-violations"}},
		{"limited with credentials", "/api/limited/1", "{credentials: 'include'}", 429, []string{"retry-after", "x-ratelimit-limit", "ratelimit", "stint-decision"}},
		{"allowed after a preflight", "/api/limited/2", put, 200, []string{"x-ratelimit-limit", "ratelimit"}},
		{"limited after a preflight", "/api/limited/2", put, 429, []string{"retry-after", "ratelimit", "stint-decision"}},
		{"blocked", "/api/blocked", "", 403, []string{"stint-decision"}},
		{"blocked after a preflight", "/api/blocked", put, 403, []string{"stint-decision"}},
		{"malformed", "/api/a%2fb/..;/c", "", 400, nil},
		{"a body that is no JSON", "/api/body", `{method: 'POST', headers: {'Content-Type': 'application/json'}, body: 'x'}`, 400, nil},
		{"no route", "/nothing", "", 404, nil},
		{"an upstream that is down", "/dead", "", 502, nil},
		{"an upstream that is down, after a preflight", "/dead", put, 502, nil},
		{"an upstream that is slow", "/late/slow", "", 504, nil},
		{"no limit", "/api/free", "", 200, nil},
	} {
		r := page.fetch(s.gateway+c.path, c.init)
		if r.Status != c.status {
			t.Errorf("%s: the page reads %+v, want %d", c.what, r, c.status)
			continue
		}
		if r.Status >= 400 {
			if missing := r.shows(c.headers...); missing != "" {
				t.Errorf("%s: %s: %+v", c.what, missing, r)
			}
		} else {
			for _, name := range c.headers {
				if r.Headers[name] == "" {
					t.Errorf("%s: no %s: %+v", c.what, name, r)
				}
			}
		}
		if r := other.fetch(s.gateway+c.path, c.init); r.Status != 0 {
			t.Errorf("%s: a stranger reads %+v", c.what, r)
		}
	}
	full := serve(t, strings.Replace(corsSettings(fmt.Sprintf("{origins: [%q]}", app), api), "in_flight: 100", "limit: 1 per 1h", 1))
	for _, want := range []int{200, 503} {
		if r := page.fetch(full.gateway+"/api/free", ""); r.Status != want || want == 503 && r.shows("retry-after") != "" {
			t.Errorf("an instance with room for one: %+v, want %d", r, want)
		}
	}
	if r := page.fetch(full.gateway+"/api/free", put); r.Status != 503 {
		t.Errorf("after a preflight: %+v", r)
	}
	if n := preflights(); n > 0 {
		t.Errorf("%d preflights reached the upstream", n)
	}
}

// openQuiet is open for a page whose failed calls are not faults.
func openQuiet(t *testing.T) *tab {
	b := open(t)
	t.Cleanup(func() { b.forgive() })
	return b
}

// Without credentials in the settings, a request with them cannot be read, and one without them can. Where
// all origins may read, so can strangers.
func TestPagesWithCredentials(t *testing.T) {
	t.Parallel()
	app, stranger := twoPages(t)
	api, _ := apiUpstream(t, "")
	for _, c := range []struct {
		cors                      string
		plain, included, stranger int
	}{
		{fmt.Sprintf("{origins: [%q]}", app), 429, 0, 0},
		{fmt.Sprintf("{origins: [%q], credentials: true}", app), 429, 429, 0},
		{`{origins: ["*"]}`, 429, 0, 429},
	} {
		s := serve(t, corsSettings(c.cors, api))
		if resp, err := http.Get(s.gateway + "/api/limited/x"); err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		b := openQuiet(t)
		b.visit(app)
		plain, included := b.fetch(s.gateway+"/api/limited/x", ""), b.fetch(s.gateway+"/api/limited/x", "{credentials: 'include'}")
		b.visit(stranger)
		other := b.fetch(s.gateway+"/api/limited/x", "")
		if plain.Status != c.plain || included.Status != c.included || other.Status != c.stranger {
			t.Errorf("%s: %d, with credentials %d, a stranger %d", c.cors, plain.Status, included.Status, other.Status)
		}
		if missing := plain.shows("retry-after", "ratelimit", "x-ratelimit-limit"); missing != "" {
			t.Errorf("%s: %s", c.cors, missing)
		}
	}
}

// If the upstreams decide, a page reads refusals as soon as the upstream has allowed something to it, and
// preflights pass uncounted.
func TestPagesOfUpstreams(t *testing.T) {
	t.Parallel()
	app, stranger := twoPages(t)
	api, preflights := apiUpstream(t, app)
	s := serve(t, corsSettings("{origins: upstream}", api))
	const put = `{method: 'PUT', headers: {'X-User': 'ann'}, body: 'x', credentials: 'include'}`
	b := openQuiet(t)
	b.visit(app)
	if r := b.fetch(s.gateway+"/api/limited/1", put); r.Status != 200 || r.Headers["x-own"] != "yes" || r.Headers["ratelimit"] == "" {
		t.Errorf("it passes: %+v", r)
	}
	if preflights() != 1 {
		t.Errorf("%d preflights reached the upstream", preflights())
	}
	for _, init := range []string{put, "", "{credentials: 'include'}"} {
		r := b.fetch(s.gateway+"/api/limited/1", init)
		if missing := r.shows("retry-after", "ratelimit", "stint-decision"); r.Status != 429 || missing != "" {
			t.Errorf("%s: %s %+v", init, missing, r)
		}
	}
	if r := b.fetch(s.gateway+"/dead", ""); r.Status != 0 {
		t.Errorf("a route whose upstream never answered: %+v", r)
	}
	b.visit(stranger)
	for _, init := range []string{put, "", "{credentials: 'include'}"} {
		if r := b.fetch(s.gateway+"/api/limited/1", init); r.Status != 0 {
			t.Errorf("a stranger reads %+v", r)
		}
	}
}

// The same holds for a Middleware and a Gate in a program.
func TestPagesOfMiddleware(t *testing.T) {
	t.Parallel()
	app, stranger := twoPages(t)
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	m := httplimit.Middleware{
		Decide:  httplimit.By(nil, limits.MustLimit("api: 1 per 1h"), func(r *http.Request) string { return r.URL.Path }),
		Dialect: httplimit.XRateLimit | httplimit.Draft11,
		CORS:    &httplimit.CORS{Origins: []string{app}, Credentials: true, MaxAge: time.Minute},
	}
	gate := m.Gate()
	for name, h := range map[string]http.Handler{
		"middleware": m.Wrap(hello),
		"gate": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running, refused := gate.Begin(r)
			if refused != nil {
				for name, lines := range refused.Header {
					w.Header()[name] = lines
				}
				w.WriteHeader(refused.Status)
				_, _ = w.Write(refused.Body)
				return
			}
			defer running.End(func() int { return http.StatusOK })
			for name, lines := range running.Header {
				w.Header()[name] = lines
			}
			hello(w, running.Request)
		}),
	} {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		b := openQuiet(t)
		b.visit(app)
		const put = `{method: 'PUT', headers: {'X-User': 'ann'}, body: 'x', credentials: 'include'}`
		for i, init := range []string{"", put} {
			at := server.URL + "/" + name + fmt.Sprint(i)
			if r := b.fetch(at, init); r.Status != 200 || r.Body != "hello" || r.Headers["x-ratelimit-remaining"] != "0" || r.Headers["ratelimit"] == "" {
				t.Errorf("%s, %s: %+v", name, init, r)
			}
			r := b.fetch(at, init)
			if missing := r.shows("retry-after", "ratelimit", "ratelimit-policy", "x-ratelimit-limit"); r.Status != 429 || missing != "" {
				t.Errorf("%s, %s: %s %+v", name, init, missing, r)
			}
		}
		b.visit(stranger)
		for _, init := range []string{"", put} {
			if r := b.fetch(server.URL+"/"+name+"0", init); r.Status != 0 {
				t.Errorf("%s: a stranger reads %+v", name, r)
			}
		}
	}
}
