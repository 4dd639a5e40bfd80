package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
)

// Every answer of the admin listener, errors too, has the headers by which a browser does not
// show it in a frame, does not run or guess anything in it and does not hand it to other origins.
func TestAttackHeadersOfAnswers(t *testing.T) {
	s, _ := withTokens(t)
	b := newBrowser(t, s.Admin())
	b.signIn(secret("ops"), 201)
	check := func(what string, h http.Header) {
		t.Helper()
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := h.Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %s %q", what, name, got)
			}
		}
		policy := h.Values("Content-Security-Policy")
		if len(policy) != 1 || !strings.Contains(policy[0], "default-src 'none'") || !strings.Contains(policy[0], "frame-ancestors 'none'") || strings.Contains(policy[0], "unsafe") {
			t.Errorf("%s: policy %q", what, policy)
		}
		for _, name := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Server", "X-Powered-By"} {
			if h[name] != nil {
				t.Errorf("%s: %s %q", what, name, h[name])
			}
		}
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		headers            []string
	}{
		{"GET", "/", "", 200, nil},
		{"GET", "/static/js/main.js", "", 200, nil},
		{"GET", "/static/nothing.js", "", 404, nil},
		{"GET", "/static", "", 404, nil},
		{"GET", "/<script>", "", 404, nil},
		{"POST", "/", "", 405, nil},
		{"OPTIONS", "/v1/switches", "", 405, []string{"Origin", "http://evil.example", "Access-Control-Request-Method", "PATCH"}},
		{"GET", "/v1/status", "", 200, nil},
		{"GET", "/v1/status", "", 401, []string{"Cookie", ""}},
		{"GET", "/v1/status", "", 403, []string{"Sec-Fetch-Site", "cross-site"}},
		{"GET", "/v1/offenders?of=<script>", "", 400, nil},
		{"GET", "/v1/live?rule=<script>", "", 404, nil},
		{"POST", "/v1/session", "<script>", 400, nil},
		{"POST", "/v1/rules/preview", `{"text":"<script>"}`, 422, nil},
		{"DELETE", "/v1/silences/<script>", "", 404, nil},
	} {
		r := httptest.NewRequest(c.method, "http://127.0.0.1:8090", strings.NewReader(c.body))
		r.URL.Path = c.path
		if path, query, ok := strings.Cut(c.path, "?"); ok {
			r.URL.Path, r.URL.RawQuery = path, query
		}
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Content-Type", "application/json")
		if c.method != "GET" {
			r.Header.Set("Origin", b.origin)
		}
		for name, value := range b.jar {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Set(c.headers[i], c.headers[i+1])
		}
		w := httptest.NewRecorder()
		b.h.ServeHTTP(w, r)
		what := fmt.Sprint(c.method, " ", c.path, " ", c.headers)
		if w.Code != c.status {
			t.Errorf("%s: %d %s, want %d", what, w.Code, w.Body, c.status)
		}
		check(what, w.Header())
		if kind := w.Header().Get("Content-Type"); c.status >= 400 && strings.Contains(kind, "html") {
			t.Errorf("%s: an error of type %s", what, kind)
		}
	}
	on := httptest.NewServer(s.Admin())
	defer on.Close()
	r, err := http.NewRequest("GET", on.URL+"/v1/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret("grafana"))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	check("the stream", resp.Header)
	s.Close()
	resp.Body.Close()
}

// Over TLS, neither a page of http at the same host, which anybody on the network between can
// make, nor a cookie that such a page or another host of the domain has set, is believed.
func TestAttackPageWithoutTLS(t *testing.T) {
	s, _ := withTokens(t)
	h := overTLS(s.Admin())
	b := newBrowser(t, h)
	b.origin = "https://stint.example.com"
	b.want(403, "POST", "/v1/session", `{"token":"`+secret("ops")+`"}`, "Origin", "http://stint.example.com", "Sec-Fetch-Site", "")
	b.signIn(secret("ops"), 201)
	session := b.jar["__Host-stint-session"]
	if session == "" {
		t.Fatalf("cookies %v", b.jar)
	}
	for _, origin := range []string{"http://stint.example.com", "ws://stint.example.com", "//stint.example.com", "null", "https://stint.example.com.evil.example", "https://evil@stint.example.com:443"} {
		b.want(403, "PATCH", "/v1/switches", `{"enabled":false}`, "Origin", origin, "Sec-Fetch-Site", "")
		b.want(403, "GET", "/v1/status", "", "Origin", origin, "Sec-Fetch-Site", "")
	}
	b.want(200, "PATCH", "/v1/switches", `{"enabled":true}`)

	// A session of the attacker, which another host has planted in the victim's browser.
	b.jar = map[string]string{"stint-session": session}
	b.want(401, "GET", "/v1/status", "")
	b.want(401, "PATCH", "/v1/switches", `{"enabled":true}`)
	b.h = s.Admin() // a proxy has ended TLS
	b.want(401, "PATCH", "/v1/switches", `{"enabled":true}`)
}

// overTLS serves as if each request had come over TLS.
func overTLS(h http.Handler) http.Handler {
	with := httptest.NewRequest("GET", "https://stint.example.com/", nil).TLS
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = with
		h.ServeHTTP(w, r)
	})
}

// An attacker has no use of a session that it plants, guesses, repeats or reads from an answer.
func TestAttackSessionOfAnother(t *testing.T) {
	s, _ := withTokens(t)
	b := newBrowser(t, s.Admin())
	b.jar["stint-session-8090"] = strings.Repeat("A", 26) // planted before the sign-in
	b.signIn(secret("ops"), 201)
	id := b.jar["stint-session-8090"]
	if id == strings.Repeat("A", 26) || len(id) < 26 {
		t.Fatalf("the session %q", id)
	}
	for what, cookie := range map[string]string{
		"two":          "stint-session-8090=" + id + "; stint-session-8090=" + id,
		"quoted":       `stint-session-8090="` + id + `x"`,
		"lower case":   "stint-session-8090=" + strings.ToLower(id),
		"empty":        "stint-session-8090=",
		"another name": "stint-session=" + id,
		"another port": "stint-session-3000=" + id,
		"a bearer":     "",
	} {
		headers := []string{"Cookie", cookie}
		if what == "a bearer" {
			headers = []string{"Cookie", "", "Authorization", "Bearer " + id}
		}
		b.want(401, "GET", "/v1/status", "", headers...)
	}
	for _, path := range []string{"/v1/session", "/v1/status", "/v1/audit", "/v1/instances"} {
		if w := b.call("GET", path, ""); w.Code != 200 || strings.Contains(fmt.Sprint(w.Body, w.Header()), id) {
			t.Errorf("GET %s has the session: %d %s", path, w.Code, w.Body)
		}
	}
	b.want(200, "GET", "/v1/status", "")
	old := b.jar["stint-session-8090"]
	b.signIn(secret("grafana"), 201) // the former session has ended
	b.jar["stint-session-8090"] = old
	b.want(401, "GET", "/v1/status", "")
}

// One caller that opens all the streams it can leaves places to others.
func TestAttackStreamsOfOneCaller(t *testing.T) {
	t.Parallel()
	s, _ := withTokens(t)
	h := httptest.NewServer(s.Admin())
	defer h.Close()
	defer s.Close()
	open := func(token string) int {
		r, err := http.NewRequest("GET", h.URL+"/v1/live", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.StatusCode
	}
	opened := 0
	for range 150 {
		if open(secret("grafana")) == 200 {
			opened++
		}
	}
	if opened != 75 {
		t.Errorf("%d streams of one caller", opened)
	}
	for range 25 {
		if got := open(secret("ops")); got != 200 {
			t.Fatalf("another caller: %d", got)
		}
	}
	if got := open(secret("ops")); got != 503 {
		t.Errorf("the stream 101: %d", got)
	}
}

// A client that does not read what it asked for loses its connection in the end: at the admin
// listener and at the probes, whose connections are bounded, and with a token or without one.
func TestAttackUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withTokens(t)
		admin, probes := newPipes(), newPipes()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, server.Listeners{Admin: admin, Probes: probes}) }()
		read := " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + secret("grafana") + "\r\n\r\n"
		for what, c := range map[string]struct {
			at  *pipes
			ask string
		}{
			"a file of the page": {admin, "GET /static/vendor/uPlot.iife.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"},
			"a refusal":          {admin, "GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"},
			"a call":             {admin, "GET /v1/status" + read},
			"the stream":         {admin, "GET /v1/live" + read},
			"the metrics":        {probes, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"},
		} {
			client := c.at.dial()
			if _, err := client.Write([]byte(c.ask)); err != nil {
				t.Fatal(what, err)
			}
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			// The server has closed the connection, or closes it after this read.
			_ = client.SetReadDeadline(time.Now().Add(time.Second))
			in := bufio.NewReader(client)
			if line, err := in.ReadString('\n'); err == nil {
				t.Errorf("%s: after three minutes it still gets %q", what, line)
			} else if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Errorf("%s: after three minutes the connection is open", what)
			}
			client.Close()
		}
		// One that reads slowly gets its stream for as long as it likes.
		client := admin.dial()
		if _, err := client.Write([]byte("GET /v1/live" + read)); err != nil {
			t.Fatal(err)
		}
		in, events := bufio.NewReaderSize(client, 16), 0
		for began := time.Now(); time.Since(began) < 10*time.Minute; {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("after %v and %d events: %v", time.Since(began), events, err)
			}
			if strings.HasPrefix(line, "data: ") {
				events++
				time.Sleep(9 * time.Second)
			}
		}
		if events < 50 {
			t.Errorf("%d events in ten minutes", events)
		}
		client.Close()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	})
}

// pipes is a net.Listener of connections in memory, without buffers, for synctest.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	close sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8090} }

// The ID of a decision is the server's: neither a client nor an upstream chooses the one that the
// answer and the log have, no two are equal, and they do not count requests.
func TestAttackDecisionID(t *testing.T) {
	var log logged
	s := newServer(t, `rules: [{name: one, key: client.ip, limits: [1 per 1h]}]`, logJSON(&log), everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Stint-Decision", "beefbeefbeefbeef")
	})))
	gateway, seen := s.Gateway(), map[string]bool{}
	for i := range 200 {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "192.0.2.1:1"
		r.Header.Set("Stint-Decision", "deaddeaddeaddead")
		w := httptest.NewRecorder()
		gateway.ServeHTTP(w, r)
		if i == 0 {
			continue // allowed
		}
		id := w.Header().Values("Stint-Decision")
		if w.Code != 429 || len(id) != 1 || len(id[0]) != 16 || strings.Trim(id[0], "0123456789abcdef") != "" || seen[id[0]] || id[0] == "deaddeaddeaddead" {
			t.Fatalf("%d %q", w.Code, id)
		}
		seen[id[0]] = true
	}
	if out := log.taken(); strings.Contains(out, "deaddead") || strings.Contains(out, "beefbeef") || !strings.Contains(out, `"decision":"`) {
		t.Error(out)
	}
}
