package server_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
)

// authorize asks h about a request as a proxy at 192.0.2.1 does. Headers are
// name: value lines.
func authorize(h http.Handler, method, target string, headers ...string) answer {
	r := httptest.NewRequest(method, target, nil)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if name == "From" {
			r.RemoteAddr = value
			continue
		}
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	resp := w.Result()
	resp.Request = r
	return answer{resp, w.Body.String()}
}

var (
	asNginx = []string{"X-Original-Method: PUT", "X-Original-URI: /a%20b?q=1", "X-Original-Host: Shop.Example:443", "X-Forwarded-For: 198.51.100.7"}
	asCaddy = []string{"X-Forwarded-Method: PUT", "X-Forwarded-Uri: /a%20b?q=1", "X-Forwarded-Host: shop.example", "X-Forwarded-For: 198.51.100.7"}
)

// without is lines but for the header named, and with more.
func without(lines []string, name string, more ...string) []string {
	kept := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasPrefix(l, name+": ") })
	return append(kept, more...)
}

// What each proxy says of a request is what the rules see.
func TestAuthorizeInput(t *testing.T) {
	const rule = `{key: '"all"', limits: [1000 per 1h], name: `
	s := newServer(t, `
trusted_proxies: [192.0.2.0/24]
rules:
  - `+rule+`method, match: 'request.method == "PUT"'}
  - `+rule+`path, match: 'request.path == "/a b"'}
  - `+rule+`query, match: 'request.query.q == "1"'}
  - `+rule+`host, match: 'request.host == "shop.example"'}
  - `+rule+`client, match: 'client.ip == "198.51.100.7"'}
  - `+rule+`header, match: 'request.headers["x-api-key"] == "k"'}
  - `+rule+`dropped, match: '"connection" in request.headers || "upgrade" in request.headers || "forwarded" in request.headers || "x-real-ip" in request.headers || "x-forwarded-for" in request.headers || "x-original-uri" in request.headers || "x-forwarded-uri" in request.headers || "content-length" in request.headers'}
`, func(c *server.Config) { c.Settings.Dialect = httplimit.Draft11 })
	h := checkAPI(s)
	const all = "method path query host client"
	for _, c := range []struct {
		what    string
		headers []string
		want    string
	}{
		{"nginx", asNginx, all},
		{"caddy", asCaddy, all},
		{"the host is Host", without(asNginx, "X-Original-Host", "Host: shop.example"), all},
		{"the host is Host", without(asCaddy, "X-Forwarded-Host", "Host: shop.example"), all},
		{"nginx behind another", append(slices.Clone(asNginx), "X-Forwarded-Host: other.example", "X-Forwarded-Proto: https"), all},
		{"another method", without(asCaddy, "X-Forwarded-Method", "X-Forwarded-Method: GET"), "path query host client"},
		{"escapes", without(asCaddy, "X-Forwarded-Uri", "X-Forwarded-Uri: /%61+b?%71=1"), "method query host client"},
		{"escapes", without(asCaddy, "X-Forwarded-Uri", "X-Forwarded-Uri: /%61%20b?%71=1"), all},
		{"absolute", without(asNginx, "X-Original-URI", "X-Original-URI: http://shop.example/a%20b?q=1"), all},
		{"a list of clients", without(asNginx, "X-Forwarded-For", "X-Forwarded-For: 203.0.113.9, 198.51.100.7, 192.0.2.77"), all},
		{"another client", without(asNginx, "X-Forwarded-For", "X-Forwarded-For: 203.0.113.9"), "method path query host"},
		{"other headers", append(slices.Clone(asNginx), "X-Api-Key: k"), all + " header"},
		{"a header that Connection names", append(slices.Clone(asNginx), "X-Api-Key: k", "Connection: X-Api-Key"), all + " header"},
		{"what is not the original's", append(slices.Clone(asCaddy), "Connection: Upgrade", "Upgrade: websocket", "Forwarded: for=1.2.3.4", "X-Real-IP: 1.2.3.4", "X-Forwarded-Server: x", "Content-Length: 3"), all},
	} {
		for _, method := range []string{"GET", "POST", "HEAD", "PURGE"} {
			got := authorize(h, method, "/v1/authorize", c.headers...)
			var names []string
			for _, member := range strings.Split(got.Header.Get("RateLimit-Policy"), ", ") {
				name, _, _ := strings.Cut(member, ";")
				names = append(names, strings.Trim(name, `"`))
			}
			if got.StatusCode != 200 || got.body != "" || strings.Join(names, " ") != c.want || got.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s, %s: %s %q\n got %v\nwant %s", c.what, method, got.Status, got.body, names, c.want)
			}
		}
	}
}

func TestAuthorizeRefuses(t *testing.T) {
	const (
		unknown  = "400 Bad Request: The original request is unknown: "
		distrust = "403 Forbidden: This proxy is not trusted: list its address in trusted_proxies of the rules."
	)
	h := checkAPI(newServer(t, `
trusted_proxies: [192.0.2.0/24]
rules: [{name: all, key: '"all"', limits: [1 per 1h]}]`))
	for _, c := range []struct {
		query   string
		headers []string
		want    string
	}{
		{"", append(slices.Clone(asNginx), "From: 198.51.100.1:1234"), distrust},
		{"", []string{"From: 198.51.100.1:1234"}, distrust},
		{"", append(slices.Clone(asNginx), "From: @"), distrust},
		{"", nil, unknown + "the proxy must send X-Original-Uri or X-Forwarded-Uri."},
		{"", append(slices.Clone(asNginx), asCaddy[1]), unknown + "X-Original-Uri and X-Forwarded-Uri are both given; the proxy must remove the one that it does not send."},
		{"", append(slices.Clone(asNginx), asNginx[1]), unknown + "X-Original-Uri is given twice."},
		{"", append(slices.Clone(asNginx), asCaddy[1], asCaddy[1]), unknown + "X-Forwarded-Uri is given twice."},
		{"", append(slices.Clone(asCaddy), asCaddy[0]), unknown + "X-Forwarded-Method is given twice."},
		{"", append(slices.Clone(asCaddy), asCaddy[2]), unknown + "X-Forwarded-Host is given twice."},
		{"", without(asNginx, "X-Original-Method", asCaddy[0]), unknown + "with X-Original-Uri, the proxy must send X-Original-Method."},
		{"", without(asCaddy, "X-Forwarded-For"), unknown + "the proxy must send the client's address in X-Forwarded-For."},
		{"", without(asCaddy, "X-Forwarded-Uri", "X-Forwarded-Uri: a b"), unknown + "X-Forwarded-Uri is not a request target, such as /a%20b?c=d."},
		{"", without(asCaddy, "X-Forwarded-Uri", "X-Forwarded-Uri: mailto:x"), unknown + "X-Forwarded-Uri is not a request target, such as /a%20b?c=d."},
		{"", without(asCaddy, "X-Forwarded-Uri", "X-Forwarded-Uri: /%zz"), unknown + "X-Forwarded-Uri is not a request target, such as /a%20b?c=d."},
		{"/", asNginx, unknown + "X-Original-Uri is given, and a target follows /v1/authorize; the proxy must send one of them."},
		{"/a", asCaddy, unknown + "X-Forwarded-Uri is given, and a target follows /v1/authorize; the proxy must send one of them."},
		{"/a%20b#c", asCaddy[3:], unknown + "what follows /v1/authorize is not a request target, such as /a%20b?c=d."},
		{"/a", nil, unknown + "the proxy must send the client's address in X-Forwarded-For."},
		{"?deny_status=401", asNginx, "400 Bad Request: deny_status must be 403."},
		{"?a=b&deny_status", asNginx, "400 Bad Request: deny_status must be 403."},
	} {
		if got := authorize(h, "GET", "/v1/authorize"+c.query, c.headers...).problem(t); got != c.want {
			t.Errorf("%s %v:\n got %s\nwant %s", c.query, c.headers, got, c.want)
		}
	}
	// None of these was counted.
	if got := authorize(h, "GET", "/v1/authorize", asNginx...); got.StatusCode != 200 {
		t.Errorf("after refusals: %s", got.Status)
	}
	none := checkAPI(newServer(t, generous))
	if got := authorize(none, "GET", "/v1/authorize", asNginx...).problem(t); got != distrust {
		t.Errorf("no trusted proxies: %s", got)
	}
}

// Where clients are in another header, it is the one that must be there, and rules
// do not see it.
func TestAuthorizeClientHeader(t *testing.T) {
	h := checkAPI(newServer(t, `
trusted_proxies: [192.0.2.0/24]
rules: [{name: client, match: 'client.ip == "203.0.113.5" && !("x-client" in request.headers)', key: client.ip, limits: [9 per 1h]}]`,
		func(c *server.Config) { c.Settings.ClientHeader = "x-client" }))
	if got := authorize(h, "GET", "/v1/authorize", asNginx...).problem(t); !strings.HasSuffix(got, "the proxy must send the client's address in x-client.") {
		t.Errorf("without: %s", got)
	}
	if got := authorize(h, "GET", "/v1/authorize", append(slices.Clone(asNginx), "X-Client: 203.0.113.5")...); got.Header.Get("X-RateLimit-Remaining") != "8" {
		t.Errorf("with: %s %v", got.Status, got.Header)
	}
}

// A proxy that is not trusted is logged with its address, once in a while.
func TestAuthorizeLogs(t *testing.T) {
	var log bytes.Buffer
	h := checkAPI(newServer(t, generous, func(c *server.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }))
	for range 3 {
		authorize(h, "GET", "/v1/authorize", asNginx...)
	}
	if got := log.String(); strings.Count(got, "\n") != 2 || strings.Count(got, "ST001") != 1 || !strings.Contains(got, "address=192.0.2.1:1234") {
		t.Errorf("log: %s", got)
	}
}

// Decisions are told as the gateway tells them, and to nginx as 403.
func TestAuthorizeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := checkAPI(newServer(t, `
trusted_proxies: [192.0.2.0/24]
safelist: ['request.path == "/free"']
blocklist: ['request.path == "/blocked"']
rules: [{name: client, key: client.ip, limits: [3 per 1m fixed_window], message: slow down}]`))
		about := func(uri, client, method string) []string {
			return []string{"X-Forwarded-Method: " + method, "X-Forwarded-Uri: " + uri, "X-Forwarded-For: " + client}
		}
		for i, c := range []struct {
			target, uri, client, method string
			status                      int
			headers                     string // remaining, Retry-After, X-Stint-Status
			problem                     string
		}{
			{"", "/", "198.51.100.1", "GET", 200, "2  ", ""},
			{"?deny_status=403", "/", "198.51.100.1", "GET", 200, "1  ", ""},
			{"", "/", "198.51.100.1", "HEAD", 200, "0  ", ""},
			{"", "/", "198.51.100.1", "HEAD", 429, "0 60 ", `"status":429,"detail":"slow down","outcome":"limited"`},
			{"?deny_status=403", "/", "198.51.100.1", "GET", 403, "0 60 429", `"status":429,"detail":"slow down","outcome":"limited"`},
			{"?q=1;&deny=%zz", "/", "198.51.100.2", "GET", 200, "2  ", ""},
			{"", "/free", "198.51.100.1", "GET", 200, "  ", ""},
			{"", "/blocked", "198.51.100.1", "GET", 403, "  ", `"outcome":"blocked"`},
			{"?deny_status=403", "/blocked", "198.51.100.1", "GET", 403, "  403", `"outcome":"blocked"`},
			{"?deny_status=403", "a", "198.51.100.1", "GET", 403, "  400", `"status":400`},
		} {
			got := authorize(h, "GET", "/v1/authorize"+c.target, about(c.uri, c.client, c.method)...)
			hd := got.Header
			headers := hd.Get("X-RateLimit-Remaining") + " " + hd.Get("Retry-After") + " " + hd.Get("X-Stint-Status")
			if got.StatusCode != c.status || headers != c.headers || (c.problem == "") != (got.body == "") || !strings.Contains(got.body, c.problem) {
				t.Errorf("%d: %s %q %s, want %d %q %s", i, got.Status, headers, got.body, c.status, c.headers, c.problem)
			}
		}
	})
}

func TestAuthorizeUndecided(t *testing.T) {
	h := checkAPI(newServer(t, `
trusted_proxies: [192.0.2.0/24]
rules: [{name: client, key: client.ip, limits: [3 per 1m], on_store_error: deny}]`,
		over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Err: io.ErrUnexpectedEOF} }})))
	for target, want := range map[string]string{"/v1/authorize": "503 ", "/v1/authorize?deny_status=403": "403 503"} {
		got := authorize(h, "GET", target, asNginx...)
		if is := fmt.Sprint(got.StatusCode, " ", got.Header.Get("X-Stint-Status")); is != want || got.Header.Get("Retry-After") != "1" {
			t.Errorf("%s: %s %v, want %s", target, is, got.Header, want)
		}
	}
}

// Rules that shape hold a question as they hold a request.
func TestAuthorizeShapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := checkAPI(newServer(t, `
trusted_proxies: [192.0.2.0/24]
rules: [{name: even, key: '"all"', limits: [1 per 1s leaky_bucket burst 3], shape: true}]`))
		begin := time.Now()
		for i := range 3 {
			got := authorize(h, "GET", "/v1/authorize", asCaddy...)
			if after := time.Since(begin); got.StatusCode != 200 || after != time.Duration(i)*time.Second {
				t.Errorf("%d: %s after %s", i, got.Status, after)
			}
		}
	})
}

// requireProxies is the environment variable that turns the want of a proxy from a
// skipped test into a failed one.
const requireProxies = "STINT_REQUIRE_PROXIES"

// application is what proxies pass requests on to. It remembers what it saw.
type application struct {
	mu   sync.Mutex
	seen []string
}

func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, fmt.Sprintf("%s %s %s %s %s", r.Method, r.Host, r.RequestURI, body, r.Header.Get("X-Forwarded-For")))
	if r.URL.Path == "/own" {
		http.Error(w, "the application's own", http.StatusForbidden)
		return
	}
	if r.URL.Path != "/free" {
		w.Header().Set("X-RateLimit-Limit", "77") // for the proxy to replace
	}
	fmt.Fprint(w, "hello")
}

func (a *application) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := a.seen
	a.seen = nil
	return seen
}

// realProxy is a proxy that runs with its file of examples/.
type realProxy struct {
	binary  string
	folder  string   // of the files; "": examples
	files   []string // the first is the configuration
	replace func(dir, port string) []string
	args    func(conf, dir string) []string
	away    int      // the status where Stint is away
	name    string   // of a test
	swaps   []string // in its files, before those of replace
	env     []string
}

var realProxies = []realProxy{
	{
		binary: "nginx", files: []string{"nginx.conf"}, away: 500,
		replace: func(dir, port string) []string {
			paths := "access_log off;"
			for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
				paths += fmt.Sprintf(" %s_temp_path %s;", kind, filepath.Join(dir, kind))
			}
			return []string{"http {", "http { " + paths, "listen 8080", "listen 127.0.0.1:" + port}
		},
		args: func(conf, dir string) []string {
			return []string{"-p", dir, "-c", conf, "-e", "stderr", "-g", "daemon off; master_process off; pid " + filepath.Join(dir, "pid") + ";"}
		},
	},
	{
		binary: "caddy", files: []string{"Caddyfile"}, away: 502,
		replace: func(dir, port string) []string {
			return []string{":8080 {", "{\n\tadmin off\n}\n:" + port + " {\n\tbind 127.0.0.1"}
		},
		args: func(conf, _ string) []string {
			return []string{"run", "--adapter", "caddyfile", "--config", conf}
		},
	},
	{
		binary: "haproxy", files: []string{"haproxy.cfg", "haproxy.lua"}, away: 503,
		replace: func(dir, port string) []string {
			return []string{"bind :8080", "bind 127.0.0.1:" + port, "/etc/haproxy/", dir + "/"}
		},
		args: func(conf, _ string) []string { return []string{"-db", "-f", conf} },
	},
}

// start starts the proxy before Stint and the application and returns its address.
// Where it is not installed the test is skipped, or fails if requireProxies is set.
func (p *realProxy) start(t *testing.T, stint, application string) string {
	t.Helper()
	binary, err := exec.LookPath(p.binary)
	if err != nil { // Debian has some where only root looks
		binary, err = exec.LookPath("/usr/sbin/" + p.binary)
	}
	required := os.Getenv(requireProxies) != ""
	switch {
	case err != nil && required:
		t.Fatalf("%s is set, but there is no %s: install it (scripts/get nginx haproxy caddy)", requireProxies, p.binary)
	case err != nil:
		redistest.Skip(t, p.binary, "scripts/get nginx haproxy caddy")
	case runtime.GOOS != "linux" && !required:
		t.Skip("only Linux has clients at 127.0.0.2")
	}
	dir := t.TempDir()
	port := strconv.Itoa(redistest.FreePort(t))
	addr := net.JoinHostPort("127.0.0.1", port)
	for _, name := range p.files {
		text, err := os.ReadFile(filepath.Join(cmp.Or(p.folder, "../examples"), name))
		if err != nil {
			t.Fatal(err)
		}
		swap := append(p.replace(dir, port), "127.0.0.1:8082", stint, "127.0.0.1:9000", application)
		text = []byte(strings.NewReplacer(p.swaps...).Replace(string(text)))
		text = []byte(strings.NewReplacer(swap...).Replace(string(text)))
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	process := exec.Command(binary, p.args(filepath.Join(dir, p.files[0]), dir)...)
	process.Stdout, process.Stderr = log, log
	process.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	process.Env = append(process.Env, p.env...)
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("%s said:\n%s", p.binary, said)
		}
	})
	if !await.So(func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		t.Fatalf("%s does not listen", p.binary)
	}
	return addr
}

// sendFrom sends a request to addr from a client's address on loopback.
func sendFrom(t *testing.T, client, addr, method, target, body string, headers ...string) answer {
	t.Helper()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(client), 0))}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "shop.example"
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp, string(read)}
}

// aWait tells whether a header is a single number of seconds.
func aWait(lines []string) bool {
	if len(lines) != 1 {
		return false
	}
	n, err := strconv.Atoi(lines[0])
	return err == nil && n > 0
}

// With its file of examples/, each proxy asks about the request that the client
// sent, from where it was sent, and tells the client what was decided.
func TestRealProxies(t *testing.T) {
	const file = `
trusted_proxies: [127.0.0.1/32]
blocklist: ['request.path == "/blocked"']
rules:
  - name: orders
    match: request.method == "POST" && request.path == "/a b" && request.query.q == "1" && request.host == "shop.example" && request.headers["x-api-key"] == "k" && client.ip in cidr("127.0.0.2/31")
    key: client.ip
    limits: [3 per 1h]
`
	// What clients may write to be counted as another, or not at all.
	lies := []string{"X-Api-Key: k", "X-Forwarded-For: 203.0.113.1", "X-Real-IP: 203.0.113.1", "Forwarded: for=203.0.113.1",
		"X-Original-Method: GET", "X-Original-URI: /free", "X-Original-Host: x",
		"X-Forwarded-Method: GET", "X-Forwarded-Uri: /free", "X-Forwarded-Host: x"}
	for _, p := range realProxies {
		t.Run(p.binary, func(t *testing.T) {
			app := &application{}
			up := upstream(t, app.ServeHTTP)
			stint := start(t, newServer(t, file, asByDefault))
			addr := p.start(t, stint.check, up.Host)
			for _, client := range []string{"127.0.0.2", "127.0.0.3"} {
				for i := range 5 {
					got := sendFrom(t, client, addr, "POST", "/a%20b?q=1", "the body", lies...)
					h := got.Header
					headers := fmt.Sprint(h["X-Ratelimit-Limit"], h["X-Ratelimit-Remaining"], aWait(h["X-Ratelimit-Reset"]), aWait(h["Retry-After"]))
					seen := fmt.Sprintf("%q", app.take())
					if i < 3 {
						want := fmt.Sprintf("[3] [%d] true false", 2-i)
						if got.StatusCode != 200 || got.body != "hello" || headers != want || seen != fmt.Sprintf("%q", []string{"POST shop.example /a%20b?q=1 the body " + client}) {
							t.Errorf("%s, %d: %s %s %s, want %s; the application saw %s", client, i, got.Status, got.body, headers, want, seen)
						}
						continue
					}
					if got.StatusCode != 429 || headers != "[3] [0] true true" || !decisionID.MatchString(h.Get("Stint-Decision")) || seen != "[]" || h.Get("Content-Type") != "application/problem+json" || !strings.Contains(got.body, `"status":429`) {
						t.Errorf("%s, %d: %s %v %s; the application saw %s", client, i, got.Status, h, got.body, seen)
					}
				}
			}
			got := sendFrom(t, "127.0.0.2", addr, "HEAD", "/free", "")
			if h := got.Header; got.StatusCode != 200 || h["X-Ratelimit-Limit"] != nil || h["X-Ratelimit-Remaining"] != nil || len(app.take()) != 1 {
				t.Errorf("not limited: %s %v", got.Status, h)
			}
			if got := sendFrom(t, "127.0.0.2", addr, "GET", "/own", ""); got.StatusCode != 403 || got.body != "the application's own\n" || len(app.take()) != 1 {
				t.Errorf("refused by the application: %s %s", got.Status, got.body)
			}
			if got := sendFrom(t, "127.0.0.2", addr, "GET", "/x/../blocked", ""); got.StatusCode != 400 || !strings.Contains(got.body, `"status":400`) || len(app.take()) != 0 {
				t.Errorf("ambiguous: %s %s", got.Status, got.body)
			}
			if got := sendFrom(t, "127.0.0.2", addr, "GET", "/%62locked", ""); got.StatusCode != 403 || !strings.Contains(got.body, `"status":403`) || len(app.take()) != 0 {
				t.Errorf("blocked: %s %s", got.Status, got.body)
			}
			if err := stint.stop(); err != nil {
				t.Fatal(err)
			}
			if got := sendFrom(t, "127.0.0.2", addr, "GET", "/free", ""); got.StatusCode != p.away || len(app.take()) != 0 {
				t.Errorf("without Stint: %s %s", got.Status, got.body)
			}
		})
	}
}

// Each proxy passes on the status, the headers and the body of the rules' formats; nginx the status and what
// its file names.
func TestRealProxiesPassErrorFormats(t *testing.T) {
	const file = `
trusted_proxies: [127.0.0.1/32]
blocklist: ['request.path == "/blocked"']
errors: {bodies: {application/json: '{"code": "{outcome}"}'}}
refusal:
  status: 420
  headers: {X-Error-Code: "{outcome} {limit_name}"}
  bodies:
    application/json: {text: '{"code": "{outcome}", "wait": {retry_after_seconds}, "é": "{message}"}', status: 200}
    text/html: '<p>{message}</p>'
rules:
  - {name: all, key: client.ip, limits: [1 per 1h fixed_window], message: 'No "more".'}
`
	for _, p := range realProxies {
		t.Run(p.binary, func(t *testing.T) {
			app := &application{}
			up := upstream(t, app.ServeHTTP)
			stint := start(t, newServer(t, file, asByDefault))
			addr := p.start(t, stint.check, up.Host)
			if got := sendFrom(t, "127.0.0.2", addr, "GET", "/a", ""); got.StatusCode != 200 || got.body != "hello" || len(app.take()) != 1 {
				t.Fatalf("%s %s", got.Status, got.body)
			}
			for _, c := range []struct {
				path, accept string
				status       int
				contentType  string
				body         string
			}{
				{"/a", "text/html", 420, "text/html; charset=utf-8", "<p>No &#34;more&#34;.</p>"},
				{"/a", "application/json", 420, "application/json", `"é": "No \"more\"."}`},
				{"/a", "application/problem+json", 420, "application/problem+json", `"detail":"No \"more\"."`},
				{"/blocked", "text/html", 403, "application/json", `{"code": "blocked"}`},
			} {
				if p.binary == "nginx" {
					c.contentType, c.body = "application/problem+json", fmt.Sprintf(`"status":%d`, c.status)
					if c.status == 420 { // which the file does not name
						c.body = `"status":403`
						c.status = 403
					}
				}
				got := sendFrom(t, "127.0.0.2", addr, "GET", c.path, "", "Accept: "+c.accept)
				h := got.Header
				if got.StatusCode != c.status || h.Get("Content-Type") != c.contentType || !strings.Contains(got.body, c.body) || len(app.take()) != 0 {
					t.Errorf("%s, %s: %s %v %s", c.path, c.accept, got.Status, h, got.body)
				}
				if p.binary == "nginx" {
					continue
				}
				code := ""
				if c.status == 420 {
					code = "limited all"
				}
				if h.Get("X-Error-Code") != code || h.Get("Cache-Control") != "no-store" || h.Get("Vary") != "Accept" || aWait(h["Retry-After"]) != (c.status == 420) {
					t.Errorf("%s, %s: %v", c.path, c.accept, h)
				}
			}
		})
	}
}

// A proxy that sends its client's Host, and a caller under an unknown name, are told what
// to set, and so is the operator in the log.
func TestHostRefused(t *testing.T) {
	var log logged
	g := start(t, newServer(t, "trusted_proxies: [127.0.0.1]\n"+generous, asByDefault, logTo(&log)))
	const only = `This API accepts the hosts localhost, 127.0.0.1 and those in server.check.hosts, not "shop.example".`
	const remedy = ` The proxy must send another Host: in nginx "proxy_set_header Host localhost", in Caddy "header_up Host localhost".`
	got := send(t, g.check, "GET", "/v1/authorize", append([]string{"Host: Shop.example:80"}, asNginx...)...)
	if got.problem(t) != "403 Forbidden: "+only+remedy {
		t.Error(got.problem(t))
	}
	if text := log.taken(); !strings.Contains(text, strconv.Quote(only+remedy)) {
		t.Errorf("the log says %s", text)
	}
	if got := send(t, g.check, "POST", "/v1/check", "Host: shop.example", "Content-Type: application/json"); got.problem(t) != "403 Forbidden: "+only {
		t.Error(got.problem(t))
	}
	if got := send(t, g.admin, "GET", "/v1/status", "Host: shop.example"); got.problem(t) != "403 Forbidden: "+strings.Replace(only, "check", "admin", 1) {
		t.Error(got.problem(t))
	}
}
