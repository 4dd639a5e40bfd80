package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/server"
)

// spelled is a request as a client writes it.
type spelled struct {
	method, target, host string
	headers              []string // lines, with ": " between name and value
}

// spellings are requests with the same effects at every door.
type spellings struct {
	about, file string
	change      func(*server.Config)       // nil: none
	at          func(d *spellingDoor) bool // which doors; nil: all but the real proxies

	// refused are answered with 400, and the application gets none of them. The answers of the gateway and of a check
	// contain says.
	refused []spelled
	says    string
	// fine are allowed, and the application gets each as it was sent.
	fine []spelled
	// same are groups. The requests of each are the same to an application, or one client's, where takes says so (nil:
	// all): so many of a group it gets, at the host of the first one. All others are answered with 429, or 400 if
	// orRefused.
	same      [][]spelled
	takes     func(served) bool
	served    int
	orRefused bool
}

// spellingDoor is a way in which requests reach the rules.
type spellingDoor struct {
	name string
	// open returns where s can be reached by ask. Only ask knows what it asks about if asks is true: then what is
	// allowed goes on to the application from there.
	open func(t *testing.T, s *server.Server, app *lenient) (addr string)
	asks bool
	// ask returns the status of the answer, and its problem if it shows one.
	ask func(t *testing.T, addr string, r *spelled) (status int, problem string)
}

// unsendable is the status of a request that cannot be sent through a door.
const unsendable = 0

var spellingDoors = []spellingDoor{
	{"gateway", gatewayOf, false, asHTTP1},
	{"gateway by URL", gatewayOf, false, asURL},
	{"gateway by HTTP/2", gatewayOf, false, asHTTP2},
	{"authorize as nginx", checkOf, true, asOriginal("X-Original-Method", "X-Original-Uri", "X-Original-Host")},
	{"authorize as Caddy", checkOf, true, asOriginal("X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host")},
	{"authorize as Envoy", checkOf, true, asPrefixed},
	{"check", checkOf, true, asCheck},
	{"list of checks", checkOf, true, asList},
	{"Wrap", wrapOf, false, asHTTP1},
	{"Authorizer", authorizerOf, false, asHTTP1},
	{"nginx", behind(&realProxies[0]), false, asClient},
	{"caddy", behind(&realProxies[1]), false, asClient},
	{"haproxy", behind(&realProxies[2]), false, asClient},
}

func (d *spellingDoor) isProxy() bool {
	return d.name == "nginx" || d.name == "caddy" || d.name == "haproxy"
}
func everywhere(*spellingDoor) bool { return true }

func gatewayOf(t *testing.T, s *server.Server, _ *lenient) string { return start(t, s).gateway }
func checkOf(t *testing.T, s *server.Server, _ *lenient) string   { return start(t, s).check }

func behind(p *realProxy) func(*testing.T, *server.Server, *lenient) string {
	return func(t *testing.T, s *server.Server, app *lenient) string {
		return p.start(t, start(t, s).check, app.url.Host)
	}
}

func wrapOf(t *testing.T, s *server.Server, app *lenient) string {
	return upstream(t, s.Wrap(app).ServeHTTP).Host
}

// authorizerOf is a program that calls the Authorizer for what it is sent.
func authorizerOf(t *testing.T, s *server.Server, app *lenient) string {
	authorize := s.Authorizer()
	local := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	return upstream(t, func(w http.ResponseWriter, r *http.Request) {
		call := httptest.NewRequest("POST", "/", nil).WithContext(local)
		call.RemoteAddr = "127.0.0.1:1"
		a := &server.Asked{Call: call, Original: r}
		if err := authorize(w, a); err != nil {
			t.Error(err)
		}
		if a.Passes {
			app.ServeHTTP(w, r)
		}
	}).Host
}

func asHTTP1(t *testing.T, addr string, r *spelled) (int, string) {
	got := send(t, addr, r.method, r.target, r.lines("Host: "+r.host)...)
	return got.StatusCode, got.problem(t)
}

func asURL(t *testing.T, addr string, r *spelled) (int, string) {
	if r.host == "" || strings.ContainsAny(r.host, "@/?#\n") { // it would end there, or begin
		return unsendable, ""
	}
	return send(t, addr, r.method, "http://"+r.host+r.target, r.lines("Host: x")...).StatusCode, ""
}

func asHTTP2(t *testing.T, addr string, r *spelled) (int, string) {
	var fields []hpack.HeaderField
	for _, line := range r.lines(":method: "+r.method, ":scheme: http", ":authority: "+r.host, ":path: "+r.target) {
		at := 1 + strings.Index(line[1:], ": ")
		fields = append(fields, hpack.HeaderField{Name: strings.ToLower(line[:at]), Value: line[at+2:]})
	}
	said := overHTTP2(t, addr, fields)
	if said == "PROTOCOL_ERROR" { // so net/http refuses what is malformed
		return 400, ""
	}
	status, err := strconv.Atoi(said)
	if err != nil {
		t.Errorf("%q: %s", r, said)
	}
	return status, ""
}

// asOriginal asks about r in headers with these names.
func asOriginal(method, target, host string) func(*testing.T, string, *spelled) (int, string) {
	return func(t *testing.T, addr string, r *spelled) (int, string) {
		return send(t, addr, "GET", "/v1/authorize", r.lines(method+": "+r.method, target+": "+r.target, "X-Forwarded-For: 127.0.0.1", host+": "+r.host)...).StatusCode, ""
	}
}

func asPrefixed(t *testing.T, addr string, r *spelled) (int, string) {
	if !strings.HasPrefix(r.target, "/") {
		return unsendable, ""
	}
	return send(t, addr, r.method, "/v1/authorize"+r.target, r.lines("Host: "+r.host, "X-Forwarded-For: 127.0.0.1")...).StatusCode, ""
}

func asCheck(t *testing.T, addr string, r *spelled) (int, string) {
	got := askCheck(t, addr, r.question())
	return got.StatusCode, got.problem(t)
}

func asList(t *testing.T, addr string, r *spelled) (int, string) {
	got := askCheck(t, addr, []any{r.question()})
	var list []struct{ Status int }
	if err := json.Unmarshal([]byte(got.body), &list); err != nil || len(list) != 1 {
		t.Fatalf("%s: %v, %v", got.Status, list, err)
	}
	return list[0].Status, ""
}

// asClient sends r from an address that rules do not trust.
func asClient(t *testing.T, addr string, r *spelled) (int, string) {
	head := r.lines(r.method+" "+r.target+" HTTP/1.1", "Host: "+r.host)
	return sendRaw(t, "127.0.0.2", addr, strings.Join(head, "\r\n")+"\r\n\r\n"), ""
}

// lines are some, and then the headers of r.
func (r *spelled) lines(some ...string) []string { return append(some, r.headers...) }

func (r *spelled) header() http.Header {
	h := http.Header{}
	for _, line := range r.headers {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

// question is the check of r.
func (r *spelled) question() map[string]any {
	return map[string]any{"client": "127.0.0.1", "request": map[string]any{"method": r.method, "path": r.target, "host": r.host, "headers": r.header()}}
}

// askCheck posts a check, or a list of them.
func askCheck(t *testing.T, addr string, question any) answer {
	t.Helper()
	body, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+addr+"/v1/check", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp, string(text)}
}

// lenient is an application that serves everything, and remembers it.
type lenient struct {
	url *url.URL
	mu  sync.Mutex
	got []served
}

// served is a request as an application receives it.
type served struct {
	method, target, host string
	header               http.Header
}

func (a *lenient) serve(s served) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, s)
}

// take returns what was served since it was called before.
func (a *lenient) take() []served {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := a.got
	a.got = nil
	return got
}

// ServeHTTP is the application in a program.
func (a *lenient) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	a.serve(served{r.Method, r.RequestURI, r.Host, r.Header})
}

// startLenient starts an upstream that splits request lines at spaces, as nginx, Node and Python do.
func startLenient(t *testing.T) *lenient {
	l := listen(t)
	t.Cleanup(func() { l.Close() })
	a := &lenient{url: &url.URL{Scheme: "http", Host: l.Addr().String()}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := textproto.NewReader(bufio.NewReader(c))
				first, _ := in.ReadLine()
				header, _ := in.ReadMIMEHeader()
				if words := strings.Fields(first); len(words) > 1 {
					a.serve(served{words[0], words[1], header.Get("Host"), http.Header(header)})
				}
				fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}()
		}
	}()
	return a
}

const trusting = "trusted_proxies: [127.0.0.1/32]\n"

// run sends them through a door to app, and returns how many of each group of same it served.
func (c *spellings) run(t *testing.T, d *spellingDoor, app *lenient) (n []int) {
	addr := d.open(t, newServer(t, trusting+c.file, everythingTo(app.url), func(s *server.Config) {
		for _, r := range slices.Concat(append(c.same, c.refused, c.fine)...) { // Envoy sends them to the check API
			s.Settings.Check.Hosts = append(s.Settings.Check.Hosts, httpfield.CanonicalHost(r.host))
		}
		if c.change != nil {
			c.change(s)
		}
	}), app)
	sent := 0
	ask := func(r spelled) (status int, problem string, got []served) {
		if status, problem = d.ask(t, addr, &r); status != unsendable {
			sent++
		}
		if status == 200 && d.asks {
			app.serve(served{r.method, r.target, r.host, r.header()})
		}
		return status, problem, app.take()
	}
	for _, r := range c.refused {
		status, problem, got := ask(r)
		if status != 400 && status != unsendable || len(got) > 0 {
			t.Errorf("%q: %d, and %q reached the application", r, status, got)
		}
		inGateway := strings.Contains(problem, "which servers read in different ways") || c.says == ""
		if d.name == "gateway" && !inGateway || (d.name == "gateway" || d.name == "check") && !strings.Contains(problem, c.says) {
			t.Errorf("%q: %q", r, problem)
		}
	}
	for _, r := range c.fine {
		status, _, got := ask(r)
		if status != unsendable && (status != 200 || len(got) != 1 || got[0].method != r.method || got[0].target != r.target || got[0].host != r.host) {
			t.Errorf("%q: %d, and %q reached the application", r, status, got)
		}
	}
	for _, group := range c.same {
		served := 0
		for _, r := range group {
			status, _, got := ask(r)
			if !slices.Contains([]int{200, 429, unsendable}, status) && !(c.orRefused && status == 400) {
				t.Errorf("%q: %d", r, status)
			}
			for _, s := range got {
				if host := group[0].host; c.takes == nil && s.host != host && !strings.HasPrefix(s.host, host+":") {
					t.Errorf("%q reached the application at the host %q", r, s.host)
				}
				if c.takes == nil || c.takes(s) {
					served++
				}
			}
		}
		n = append(n, served)
	}
	if sent == 0 {
		t.Error("this door takes none of them")
	}
	return n
}
