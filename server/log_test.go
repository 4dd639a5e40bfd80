package server_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// However often callers make something go wrong, the log has a line of it now and then:
// malformed bodies, an upstream that breaks off or panics, handshakes, tokens that are
// wrong, proxies that nobody trusts, targets and headers that are ambiguous.
func TestAttackLog(t *testing.T) {
	t.Parallel()
	var log logged
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			w.Header().Set("Content-Length", "100")
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/gone" {
			panic(http.ErrAbortHandler)
		}
	})
	files := newAuthority(t).sign(t, "server").write(t, nil)
	g := start(t, newServer(t, trusting+repeatedRules, everythingTo(up), logTo(&log), withTLS(nil, nil, files)))
	const times = 200
	for name, attack := range map[string]func(){
		"chunks that are none": func() {
			send(t, g.gateway, "POST", "/x", "Host: x", "Transfer-Encoding: chunked\r\n\r\nzz")
		},
		"an upstream that breaks off": func() { send(t, g.gateway, "GET", "/gone") },
		"an upstream that says half":  func() { half(g.gateway) },
		"a client that leaves":        func() { leave(g.gateway) },
		"an ambiguous target":         func() { send(t, g.gateway, "GET", "/a/..;/b") },
		"a header twice":              func() { send(t, g.gateway, "GET", "/", "X-Api-Key: a", "X-Api-Key: b") },
		"a check that is no JSON": func() {
			send(t, g.check, "POST", "/v1/check", "Host: localhost", "Content-Type: application/json", "Content-Length: 1\r\n\r\n{")
		},
		"a check that ends too soon":      func() { leave(g.check) },
		"a question without the original": func() { send(t, g.check, "GET", "/v1/authorize") },
		"no TLS":                          func() { send(t, g.admin, "GET", "/") },
		"what is no request":              func() { send(t, g.gateway, "GET GET", "/") },
		"a body that is no JSON, and lists": func() {
			send(t, g.check, "POST", "/v1/check", "Host: localhost", "Content-Type: application/json", "Content-Length: 3\r\n\r\n[{]")
		},
	} {
		log.taken()
		for range times {
			attack()
		}
		time.Sleep(10 * time.Millisecond) // what is logged afterwards
		if lines := strings.Count(log.taken(), "\n"); lines > 3 {
			t.Errorf("%s: %d lines for %d requests", name, lines, times)
		}
	}
}

// half asks for more than it is sent.
func half(addr string) {
	resp, err := http.Get("http://" + addr + "/half")
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// leave begins to send a body, and closes the connection.
func leave(addr string) {
	if c, err := net.Dial("tcp", addr); err == nil {
		_, _ = io.WriteString(c, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		c.Close()
	}
}

// Which header or parameter a request was refused for is in the log, now and then: its
// client is not told.
func TestAmbiguousIsLogged(t *testing.T) {
	var log logged
	g := start(t, newServer(t, repeatedRules, logTo(&log)))
	for range 3 {
		if got := send(t, g.gateway, "GET", "/", "X-Api-Key: secret", "X-Api-Key: secret"); got.StatusCode != 400 || strings.Contains(got.body, "api") {
			t.Fatalf("%s: %s", got.Status, got.body)
		}
	}
	text := log.taken()
	if strings.Count(text, "servers read it in different ways") != 1 || !strings.Contains(text, "x-api-key") || strings.Contains(text, "secret") {
		t.Errorf("the log says:\n%s", text)
	}
}
