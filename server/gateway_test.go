package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// upstream serves h and is a route's target.
func upstream(t testing.TB, h http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, err := config.ParseUpstream(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// routes sends requests to upstreams, given as host/path and target.
func routes(all ...config.Route) func(*server.Config) {
	return func(c *server.Config) { c.Settings.Routes = all }
}

func everythingTo(u *url.URL) func(*server.Config) {
	return routes(config.Route{Path: "/", Upstream: u})
}

// running is a Server that runs on loopback.
type running struct {
	gateway, check, admin string // host:port
	stop                  func() error
}

// start runs s until the test ends.
func start(t testing.TB, s *server.Server) *running {
	t.Helper()
	l := server.Listeners{Gateway: listen(t), Check: listen(t), Admin: listen(t)}
	if err := s.Open(); err != nil { // here, before the test changes files
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	stop := sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	check := l.Check.Addr().String()
	checkListeners.Store(check, nil)
	t.Cleanup(func() { checkListeners.Delete(check) })
	return &running{l.Gateway.Addr().String(), check, l.Admin.Addr().String(), stop}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// answer is a response, read.
type answer struct {
	*http.Response
	body string
}

// send sends a request to a server as is: target goes into the request line
// untouched. Headers are name: value lines; Host is one of them.
func send(t testing.TB, addr, method, target string, headers ...string) answer {
	t.Helper()
	conn := dial(t, addr)
	defer conn.Close()
	return conn.send(t, method, target, headers...)
}

type conn struct {
	net.Conn
	*bufio.Reader
}

func (c conn) Read(b []byte) (int, error) { return c.Reader.Read(b) }

func dial(t testing.TB, addr string) conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return conn{c, bufio.NewReader(c)}
}

func (c conn) send(t testing.TB, method, target string, headers ...string) answer {
	t.Helper()
	if !slices.ContainsFunc(headers, func(h string) bool { return strings.HasPrefix(h, "Host:") }) {
		headers = append(headers, "Host: example.com")
	}
	request := fmt.Sprintf("%s %s HTTP/1.1\r\n%s\r\n\r\n", method, target, strings.Join(headers, "\r\n"))
	_, _ = io.WriteString(c, request)
	a := c.answer(t, method)
	holdToCheck(t, c.RemoteAddr(), request, a)
	return a
}

// answer reads the next response, of 1xx too.
func (c conn) answer(t testing.TB, method string) answer {
	t.Helper()
	resp, err := http.ReadResponse(c.Reader, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	defer resp.Body.Close()
	var body []byte
	if resp.StatusCode >= 200 {
		if body, err = io.ReadAll(resp.Body); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
	}
	return answer{resp, string(body)}
}

// problem is the body's problem details, without the type; empty if it is none.
func (a answer) problem(t testing.TB) string {
	t.Helper()
	if a.Header.Get("Content-Type") != "application/problem+json" || a.Request.Method == "HEAD" {
		return ""
	}
	var p struct {
		Title, Detail, Outcome string
		Status                 int
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Status != a.StatusCode || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("problem %s: %v", a.body, err)
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s: %s %s", p.Status, p.Title, p.Detail, p.Outcome))
}

// who answers with its name.
func who(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, name, " ", r.Host, " ", r.RequestURI) }
}

// allowAmbiguous lets pass what servers read in different ways.
func allowAmbiguous(c *server.Config) { c.Settings.AllowAmbiguous = rules.AnyAmbiguity }

const generous = `rules: [{name: client, key: client.ip, limits: [1000 per 1m]}]`

func TestRouting(t *testing.T) {
	a, v1, users, any := upstream(t, who("a")), upstream(t, who("v1")), upstream(t, who("users")), upstream(t, who("any"))
	based := *any
	based.Path = "/base"
	g := start(t, newServer(t, generous, routes(
		config.Route{Path: "/v1", Upstream: v1},
		config.Route{Path: "/v1/users", Upstream: users},
		config.Route{Host: "a.example", Path: "/", Upstream: a},
		config.Route{Host: "b.example", Path: "/x/", Upstream: any},
		config.Route{Host: "::1", Path: "/", Upstream: any},
		config.Route{Host: "c.example", Path: "/", Upstream: &based},
	), allowAmbiguous))
	const none = "404 Not Found: No route matches this request."
	const climbs = `400 Bad Request: The request has a segment "." or ".." in its path, which servers read in different ways; it is not accepted here.`
	for _, c := range []struct{ host, target, want string }{
		{"x", "/v1", "v1 x /v1"},
		{"x", "/v1/", "v1 x /v1/"},
		{"x", "/v1?a=b", "v1 x /v1?a=b"},
		{"x", "/v10", none}, // segments are whole
		{"x", "/v1/users", "users x /v1/users"},
		{"x", "/v1/users/7", "users x /v1/users/7"},
		{"x", "/v1/usersets", "v1 x /v1/usersets"},
		{"x", "/V1", none},
		{"x", "/", none},
		{"x", "/v1/../other", none},
		{"x", "/other/../v1", "v1 x /other/../v1"}, // found as /v1, and passed on as it came
		{"x", "//v1", "v1 x //v1"},
		{"x", "/%761", "v1 x /%761"},
		{"x", "/v1%2Fusers", "users x /v1%2Fusers"},
		{"a.example", "/v1", "a a.example /v1"}, // a host goes before any path
		{"A.EXAMPLE", "/v1", "a A.EXAMPLE /v1"},
		{"a.example:8080", "/", "a a.example:8080 /"},
		{"a.example.", "/", "a a.example. /"},
		{"A.example.:80", "/", "a A.example.:80 /"},
		{"sub.a.example", "/", none},
		{"b.example", "/x/", "any b.example /x/"},
		{"b.example", "/x/y", "any b.example /x/y"},
		{"b.example", "/x", none},
		{"b.example", "/v1", "v1 b.example /v1"}, // no path of its own leads there
		{"[::1]", "/", "any [::1] /"},
		{"[::1]:80", "/", "any [::1]:80 /"},
		{"c.example", "/", "any c.example /base/"},
		{"c.example", "/a%2Fb?c", "any c.example /base/a%2Fb?c"},
		{"c.example", "/../secret", climbs}, // out of /base, whatever is allowed
		{"c.example", "/a/%2e%2e/%2e%2e/secret", climbs},
		{"c.example", `/a/..\..\secret`, climbs},
		{"c.example", "/..;/secret", climbs},
		{"c.example", "/a/..", climbs},
		{"c.example", "/.well-known//x", "any c.example /base/.well-known//x"},
	} {
		got := send(t, g.gateway, "GET", c.target, "Host: "+c.host)
		text := got.body
		if p := got.problem(t); p != "" {
			text = p
		}
		if text != c.want {
			t.Errorf("%s %s: got %s, want %s", c.host, c.target, text, c.want)
		}
		if got.Header.Get("X-RateLimit-Limit") != "1000" { // what leads nowhere is counted, too
			t.Errorf("%s %s: no headers", c.host, c.target)
		}
	}
}

// What counts as one path for the limits cannot be written in another way.
func TestPathsCountAsOne(t *testing.T) {
	g := start(t, newServer(t, `
rules: [{name: login, match: request.path == "/login" && request.host == "example.com", key: '"all"', limits: [100 per 1h sliding_log]}]
`, everythingTo(upstream(t, who("up"))), allowAmbiguous))
	left := 100
	for _, target := range []string{"/login", "//login", "/x/../login", "/./login", "///x//..//login", "/../login", "/%6Cogin", "/%2Flogin", "/x/%2e%2e/login", "/login?a=b", "/login?", "http://other.example/login"} {
		for _, host := range []string{"example.com", "EXAMPLE.com:8080", "example.com."} {
			if strings.HasPrefix(target, "http:") {
				target = "http://" + host + "/login" // which goes before the header
			}
			left--
			if got := send(t, g.gateway, "GET", target, "Host: "+host); got.Header.Get("X-RateLimit-Remaining") != fmt.Sprint(left) {
				t.Errorf("%s %s: %v, want %d left", host, target, got.Header, left)
			}
		}
	}
	for _, target := range []string{"/login/", "/logins", "/x/login", "/Login"} {
		if got := send(t, g.gateway, "GET", target); got.Header.Get("X-RateLimit-Limit") != "" {
			t.Errorf("%s was counted", target)
		}
	}
}

// The limits are told on what passes and on what is refused, in place of what the
// upstream says of its own.
func TestHeaders(t *testing.T) {
	g := start(t, newServer(t, `
blocklist: [request.path == "/blocked"]
rules:
  - name: client
    match: request.path != "/free"
    key: client.ip
    limits: [2 per 1h sliding_log]
    message: Two are enough.
`, everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "17")
		w.Header().Add("X-RateLimit-Remaining", "16")
		w.Header().Set("X-RateLimit-Reset", "15")
		w.Header().Set("X-Own", "mine")
		fmt.Fprint(w, "hello")
	}))))
	limits := func(a answer) string {
		return strings.Join(slices.Concat(a.Header.Values("X-RateLimit-Limit"), a.Header.Values("X-RateLimit-Remaining")), ",")
	}
	for i, want := range []struct{ method, target, status, limits, body string }{
		{"GET", "/", "200 OK", "2,1", "hello"},
		{"HEAD", "/", "200 OK", "2,0", ""},
		{"GET", "/", "429 Too Many Requests", "2,0", "429 Too Many Requests: Two are enough. limited"},
		{"HEAD", "/", "429 Too Many Requests", "2,0", ""},
		{"GET", "/free", "200 OK", "17,16", "hello"}, // no limit of ours applies
		{"GET", "/blocked", "403 Forbidden", "", "403 Forbidden: This request is not accepted. blocked"},
	} {
		got := send(t, g.gateway, want.method, want.target)
		text := got.body
		if p := got.problem(t); p != "" {
			text = p
		}
		if got.Status != want.status || limits(got) != want.limits || text != want.body {
			t.Errorf("%d: %s, %s, %s", i, got.Status, limits(got), text)
		}
		if refused := got.StatusCode == 429; refused != (got.Header.Get("Retry-After") != "") || refused == (got.Header.Get("X-Own") == "mine") && got.StatusCode != 403 {
			t.Errorf("%d: %v", i, got.Header)
		}
	}
}

func TestHeadersOfDraft(t *testing.T) {
	g := start(t, newServer(t, `
rules:
  - {name: client, key: client.ip, limits: [100 per 1h sliding_log, 9 per 24h burst 3]}
  - {name: shadow, key: client.ip, limits: [1 per 24h], mode: shadow}
`, everythingTo(upstream(t, who("up"))), func(c *server.Config) { c.Settings.Dialect = httplimit.Draft11 }))
	got := send(t, g.gateway, "GET", "/")
	if policy := got.Header.Get("RateLimit-Policy"); policy != `"client";q=100;w=3600, "client-2";q=9;w=86400;stint-burst=3` {
		t.Errorf("policy %s", policy)
	}
	state := got.Header.Get("RateLimit")
	if !strings.HasPrefix(state, `"client";r=99;t=`) || !strings.HasSuffix(state, `, "client-2";r=2;t=9600`) || got.Header.Get("X-RateLimit-Limit") != "" {
		t.Errorf("state %s; %v", state, got.Header)
	}
}

// An upstream that sends early hints has not sent its headers.
func TestEarlyHints(t *testing.T) {
	g := start(t, newServer(t, generous, everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("X-RateLimit-Limit", "17")
		fmt.Fprint(w, "hello")
	}))))
	c := dial(t, g.gateway)
	defer c.Close()
	if hint := c.send(t, "GET", "/"); hint.StatusCode != 103 || hint.Header.Get("Link") == "" || len(hint.Header) != 1 {
		t.Errorf("first %s %v", hint.Status, hint.Header)
	}
	got := c.answer(t, "GET")
	if limits := got.Header.Values("X-RateLimit-Limit"); got.StatusCode != 200 || got.body != "hello" || !slices.Equal(limits, []string{"1000"}) || got.Header.Get("X-RateLimit-Remaining") != "999" {
		t.Errorf("then %s %v %s", got.Status, got.Header, got.body)
	}
}

// Where net/http cannot write interim responses safely, the client gets only the final one.
// The clients that leave make the race detector and the runtime find what is shared.
func TestInterimResponsesAreDropped(t *testing.T) {
	t.Parallel()
	g := start(t, newServer(t, generous, everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		for range 20 {
			w.WriteHeader(http.StatusEarlyHints)
		}
		_, _ = io.Copy(w, r.Body)
	}))))
	http1, http2 := new(http.Transport), &http.Transport{Protocols: new(http.Protocols)}
	http2.Protocols.SetUnencryptedHTTP2(true)
	defer http1.CloseIdleConnections()
	defer http2.CloseIdleConnections()
	for name, via := range map[string]*http.Transport{"Expect: 100-continue": http1, "HTTP/2": http2} {
		t.Run(name, func(t *testing.T) {
			for i := range 200 {
				ctx, cancel := context.WithCancel(context.Background())
				ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
					if code != http.StatusContinue {
						t.Errorf("the client gets %d", code)
					}
					return nil
				}})
				r, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.gateway, strings.NewReader("hello"))
				if err != nil {
					t.Fatal(err)
				}
				if via == http1 {
					r.Header.Set("Expect", "100-continue")
				}
				if i%2 == 1 {
					time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
				}
				resp, err := via.RoundTrip(r)
				if err == nil {
					body, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if i%2 == 0 && (resp.StatusCode != 200 || string(body) != "hello") {
						t.Errorf("%s %q", resp.Status, body)
					}
				} else if i%2 == 0 {
					t.Error(err)
				}
				cancel()
			}
		})
	}
}

// A response without Content-Type has none at the client either: a browser would run as HTML what
// net/http takes for HTML.
func TestNoContentTypeIsGuessed(t *testing.T) {
	const page = "<html><script>alert(1)</script>"
	g := start(t, newServer(t, generous, everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hints" {
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header()["Content-Type"] = r.Header["X-Type"]
		_, _ = io.WriteString(w, page)
		if r.URL.Path == "/stream" {
			w.(http.Flusher).Flush()
		}
	}))))
	http1, http2 := new(http.Transport), &http.Transport{Protocols: new(http.Protocols)}
	http2.Protocols.SetUnencryptedHTTP2(true)
	defer http1.CloseIdleConnections()
	defer http2.CloseIdleConnections()
	for _, via := range []*http.Transport{http1, http2} {
		for _, path := range []string{"/", "/stream", "/hints"} {
			for _, want := range [][]string{nil, {"text/plain"}} {
				r, err := http.NewRequest("GET", "http://"+g.gateway+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header["X-Type"] = want
				resp, err := via.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if got := resp.Header["Content-Type"]; !slices.Equal(got, want) || string(body) != page {
					t.Errorf("%s %s: Content-Type %q, want %q; %s", resp.Proto, path, got, want, body)
				}
			}
		}
	}
}

// What goes wrong is a problem with the headers that the limits were told in.
func TestGatewayProblems(t *testing.T) {
	leave := make(chan bool)
	slow := upstream(t, func(http.ResponseWriter, *http.Request) { <-leave })
	t.Cleanup(func() { close(leave) }) // before slow is closed
	broken := upstream(t, func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	s := newServer(t, `
rules:
  - {name: client, key: client.ip, limits: [1000 per 1m]}
  - {name: user, key: 'request.headers["x-user"]', limits: [1000 per 1m]}
`, routes(
		config.Route{Path: "/slow", Upstream: slow},
		config.Route{Path: "/broken", Upstream: broken},
		config.Route{Path: "/gone", Upstream: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}, // where nobody listens
	), func(c *server.Config) { c.Settings.UpstreamTimeout = 50 * time.Millisecond })
	g := start(t, s)
	const unreachable = "502 Bad Gateway: The upstream cannot be reached."
	for _, c := range []struct{ target, header, want string }{
		{"/slow", "A: b", "504 Gateway Timeout: The upstream did not answer in time."},
		{"/gone", "A: b", unreachable},
		{"/broken", "A: b", unreachable},
		{"/gone", "X-User:", "400 Bad Request: The request cannot be counted: the value that it is counted by is missing, too long, or sent more than once."},
		{"/gone", "X-User: " + strings.Repeat("x", 5000), "400 Bad Request: The request cannot be counted: the value that it is counted by is missing, too long, or sent more than once."},
		{"/gone", "X-User: \xff\xfe", "400 Bad Request: The request has bytes that are not UTF-8 in its path or in a header, which servers read in different ways; it is not accepted here."},
	} {
		got := send(t, g.gateway, "GET", c.target, c.header)
		if p := got.problem(t); p != c.want {
			t.Errorf("%s %.20s: got %s", c.target, c.header, p)
		}
		if told := got.Header.Get("X-RateLimit-Limit") != ""; told != (got.StatusCode > 500) {
			t.Errorf("%s: %v", c.target, got.Header)
		}
	}
	if got := send(t, g.gateway, "GET", "/gone", "A: "+strings.Repeat("x", 80<<10)); got.StatusCode != 431 {
		t.Errorf("large headers: %s", got.Status)
	}
	if got := send(t, g.gateway, "GET", "/%zz"); got.StatusCode != 400 {
		t.Errorf("bad escape: %s", got.Status)
	}
}

// Where a rule says to deny, the gateway does, and says when to come back.
func TestGatewayUndecided(t *testing.T) {
	t.Parallel()
	s := newServer(t, `rules: [{name: client, key: client.ip, limits: [9 per 1m], on_store_error: deny}]`,
		over(failing()), everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it passed") })))
	got := send(t, start(t, s).gateway, "GET", "/")
	if p := got.problem(t); !strings.HasPrefix(p, "503 Service Unavailable: The server cannot check the limits") || got.Header.Get("Retry-After") != "1" {
		t.Errorf("%s %v", p, got.Header)
	}
	hangs := &limittest.Faulty{Fault: func(int) limittest.Fault { return limittest.Fault{Hang: true} }}
	s = newServer(t, generous, over(hangs), everythingTo(upstream(t, who("up"))))
	if got := send(t, start(t, s).gateway, "GET", "/"); got.StatusCode != 200 || got.Header.Get("X-RateLimit-Remaining") != "999" {
		t.Errorf("counted here: %s %v", got.Status, got.Header)
	}
}

// Out of many at once, exactly as many pass as may.
func TestManyAtOnce(t *testing.T) {
	g := start(t, newServer(t, `
rules:
  - {name: all, key: '"all"', limits: [100 per 1h sliding_log, 1000 per 24h]}
  - {name: watch, key: client.ip, limits: [50 per 1h], mode: shadow}
`, everythingTo(upstream(t, who("up")))))
	var passed, refused atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			c := dial(t, g.gateway)
			defer c.Close()
			for range 10 {
				switch got := c.send(t, "GET", "/"); got.StatusCode {
				case 200:
					passed.Add(1)
				case 429:
					refused.Add(1)
				default:
					t.Error(got.Status)
				}
			}
		})
	}
	all.Wait()
	if passed.Load() != 100 || refused.Load() != 60 {
		t.Errorf("%d passed and %d were refused", passed.Load(), refused.Load())
	}
}

// When a client leaves, the upstream learns of it, and nobody calls that a failure.
func TestClientLeavesUpstream(t *testing.T) {
	came, left := make(chan bool), make(chan bool)
	var log lockedBuffer
	g := start(t, newServer(t, generous, everythingTo(upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		came <- true
		<-r.Context().Done()
		left <- true
	})), func(c *server.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}))
	c := dial(t, g.gateway)
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-came
	c.Close()
	<-left
	if err := g.stop(); err != nil || log.String() != "" {
		t.Errorf("%v, log: %s", err, log.String())
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
