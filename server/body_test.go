package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stintdev/stint/server"
)

// overH2C is an upstream that speaks HTTP/2 without TLS.
func overH2C(t *testing.T, h http.HandlerFunc) *url.URL {
	up := httptest.NewUnstartedServer(h)
	up.Config.Protocols = new(http.Protocols)
	up.Config.Protocols.SetUnencryptedHTTP2(true)
	up.Start()
	t.Cleanup(up.Close)
	return &url.URL{Scheme: "h2c", Host: up.Listener.Addr().String()}
}

// A body that does not come as its request says is its client's fault: 400, and no word
// of the upstream in the log.
func TestAttackBrokenBody(t *testing.T) {
	const malformed = "400 Bad Request: The request's body is malformed or ends too early."
	const closed = "400 Bad Request: The connection was closed before the upstream had answered."
	ups := map[string]*url.URL{"http": upstream(t, taking), "h2c": overH2C(t, taking)}
	for name, up := range ups {
		for _, patience := range []time.Duration{0, time.Minute} {
			var log logged
			g := start(t, newServer(t, generous, everythingTo(up), patient(patience), logTo(&log)))
			for _, rest := range []string{
				"zz\r\nabc\r\n0\r\n\r\n", "-1\r\n", "ffffffffffffffffff\r\n",
				"5\r\nabcdefgh\r\n0\r\n\r\n", "5\r\nabcdeX\r\n0\r\n\r\n", "3\r\nabc\r\n0\r\nno trailer\r\n\r\n",
			} {
				c := dial(t, g.gateway)
				fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"+rest)
				if got := c.answer(t, "POST"); got.problem(t) != malformed || !got.Close {
					t.Errorf("%s, body_timeout %v, %q: %s %q, close %t", name, patience, rest, got.Status, got.problem(t), got.Close)
				}
				c.Close()
			}
			for _, request := range []string{"Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n5\r\nabc"} {
				c := dial(t, g.gateway)
				fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\n"+request)
				if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
				// The end of the body is seen as such, or first as the end of the connection.
				if got := c.answer(t, "POST"); got.problem(t) != malformed && got.problem(t) != closed {
					t.Errorf("%s, body_timeout %v, %q and no more: %s %q", name, patience, request, got.Status, got.problem(t))
				}
				c.Close()
			}
			if text := log.taken(); strings.Contains(text, "upstream") {
				t.Errorf("%s, body_timeout %v: the log says\n%s", name, patience, text)
			}
		}
	}
}

// An upstream that ends while a body comes is at fault, however the reading of that body
// ends.
func TestUpstreamEndsInBody(t *testing.T) {
	for name, up := range map[string]*url.URL{
		"http": upstream(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		"h2c":  overH2C(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
	} {
		var log logged
		g := start(t, newServer(t, generous, everythingTo(up), logTo(&log)))
		for range 20 {
			c := dial(t, g.gateway)
			fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("a", 100000))
			if got := c.answer(t, "POST"); got.StatusCode != 502 {
				t.Errorf("%s: %s %q", name, got.Status, got.problem(t))
			}
			c.Close()
		}
		if text := log.taken(); !strings.Contains(text, "upstream failed") {
			t.Errorf("%s: the log says\n%s", name, text)
		}
	}
}

// A client that closes its half of the connection has left, as net/http sees it. If it
// still reads, it is not told that all is well.
func TestHalfClosed(t *testing.T) {
	asked := make(chan struct{})
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	})
	g := start(t, newServer(t, generous, everythingTo(up), func(c *server.Config) { c.Settings.UpstreamTimeout = 10 * time.Second }))
	c := dial(t, g.gateway)
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-asked // one that closes before it is decided gets 503
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := c.answer(t, "GET"); got.problem(t) != "400 Bad Request: The connection was closed before the upstream had answered." {
		t.Errorf("%s %q", got.Status, got.problem(t))
	}
}

// A request whose body breaks off gets 400 and takes nothing, also under limits that do not read it.
func TestBrokenBodyTakesNothing(t *testing.T) {
	for name, reads := range map[string]string{
		"a rule in shadow mode": `{name: seen, mode: shadow, key: body.user, limits: [5 per 1h]}`,
		"tokens":                `{name: seen, key: '"all"', tokens: openai, limits: [100000 per 1h fixed_window hold]}`,
		"what a stream reports": `{name: seen, key: '"all"', cost: "5", tokens: {api: openai, include_usage: true}, limits: [100000 per 1h fixed_window hold]}`,
	} {
		s := newServer(t, `rules: [{name: plain, key: '"all"', limits: [5 per 1h]}, `+reads+`]`, everythingTo(upstream(t, taking)))
		for range 8 {
			w := httptest.NewRecorder()
			body := io.MultiReader(strings.NewReader(`{"stream":true,"n":`), iotest.ErrReader(io.ErrUnexpectedEOF))
			s.Gateway().ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", body))
			if w.Code != 400 {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
		if got := check(s, `{"cost":0}`).Body.String(); !strings.Contains(got, `"remaining":5,`) {
			t.Errorf("%s: %s", name, got)
		}
		if got := metric(t, s, "stint_bad_requests_total"); got != 8 {
			t.Errorf("%s: %g bad requests", name, got)
		}
	}
}
