package httplimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// limitedServer serves h behind a limit of two for each path, over HTTP/1 or 2.
func limitedServer(t *testing.T, http2 bool, h http.HandlerFunc) *httptest.Server {
	byPath := func(r *http.Request) string { return r.URL.Path }
	m := httplimit.Middleware{Decide: httplimit.By(nil, stint.MustLimit("2 per 1h"), byPath), Dialect: httplimit.XRateLimit | httplimit.Draft11}
	s := httptest.NewUnstartedServer(m.Wrap(h))
	if http2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// eachProtocol runs a test over real sockets, once for each version of HTTP.
func eachProtocol(t *testing.T, f func(t *testing.T, http2 bool)) {
	t.Run("HTTP/1.1", func(t *testing.T) { f(t, false) })
	t.Run("HTTP/2", func(t *testing.T) { f(t, true) })
}

func do(t *testing.T, s *httptest.Server, method, path string) *http.Response {
	t.Helper()
	r, err := http.NewRequest(method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func read(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOverTheWire(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		s := limitedServer(t, http2, pong)
		slow := strings.NewReplacer("1799", "1800", "1798", "1800", "3599", "3600", "3598", "3600") // the clock runs on
		for i, want := range []struct {
			method, status, shown, body string
		}{
			{"GET", "200 OK", `Limit=2 Remaining=1 Reset=1800 Policy="2 per 1h";q=2;w=3600 State="2 per 1h";r=1;t=1800`, "pong"},
			{"HEAD", "200 OK", `Limit=2 Remaining=0 Reset=3600 Policy="2 per 1h";q=2;w=3600 State="2 per 1h";r=0;t=1800`, ""},
			{"HEAD", "429 Too Many Requests", `Limit=2 Remaining=0 Reset=3600 Policy="2 per 1h";q=2;w=3600 State="2 per 1h";r=0;t=1800 Retry-After=1800`, ""},
			{"GET", "429 Too Many Requests", `Limit=2 Remaining=0 Reset=3600 Policy="2 per 1h";q=2;w=3600 State="2 per 1h";r=0;t=1800 Retry-After=1800`,
				`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many requests. The limit is 2 per 1h. Retry after 1800 seconds.","outcome":"limited","limit":"2 per 1h","retry_after":1800}` + "\n"},
		} {
			resp := do(t, s, want.method, "/")
			if resp.ProtoMajor == 2 != http2 {
				t.Fatalf("it is %s", resp.Proto)
			}
			body, headers := slow.Replace(read(t, resp.Body)), slow.Replace(shown(resp.Header))
			if resp.Status != want.status || headers != want.shown || body != want.body {
				t.Errorf("request %d: %s\n%s\n%s", i, resp.Status, headers, body)
			}
			if resp.StatusCode == 429 && resp.ContentLength <= 0 {
				t.Errorf("request %d: Content-Length %d", i, resp.ContentLength)
			}
		}
	})
}

// A flush reaches the client while the handler still runs.
func TestStreaming(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		seen := make(chan bool)
		s := limitedServer(t, http2, func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			for i := range 3 {
				fmt.Fprintf(w, "event %d\n", i)
				w.(http.Flusher).Flush()
				<-seen // the client has it, or the handler never ends
			}
		})
		resp := do(t, s, "GET", "/")
		lines := bufio.NewScanner(resp.Body)
		for i := range 3 {
			if !lines.Scan() || lines.Text() != fmt.Sprintf("event %d", i) {
				t.Fatalf("got %q, %v", lines.Text(), lines.Err())
			}
			seen <- true
		}
		if shown(resp.Header) == "" {
			t.Error("no headers")
		}
	})
}

func TestTrailers(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		s := limitedServer(t, http2, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Sum")
			fmt.Fprint(w, "body")
			w.Header().Set("Sum", "42")
		})
		resp := do(t, s, "GET", "/")
		if body := read(t, resp.Body); body != "body" || resp.Trailer.Get("Sum") != "42" || len(resp.Trailer) != 1 {
			t.Errorf("got %q, trailers %v", body, resp.Trailer)
		}
	})
}

// upgrade speaks a protocol that is not HTTP after a handshake as a websocket's.
func upgrade(t *testing.T, s *httptest.Server) (status string, echo func(string) string) {
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status, func(line string) string {
		fmt.Fprintln(conn, line)
		answer, err := br.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(answer)
	}
}

func echoServer(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "echo" {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprint(conn, line)
	}
}

func TestUpgrade(t *testing.T) {
	s := limitedServer(t, false, echoServer)
	for range 2 {
		status, echo := upgrade(t, s)
		if status != "101 Switching Protocols" {
			t.Fatal(status)
		}
		for _, line := range []string{"hello", "again"} {
			if got := echo(line); got != line {
				t.Errorf("said %q, heard %q", line, got)
			}
		}
	}
	if status, _ := upgrade(t, s); status != "429 Too Many Requests" {
		t.Error(status)
	}
}

// The gateway's way: everything above, and a proxy behind it.
func TestReverseProxy(t *testing.T) {
	step := make(chan bool)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/chat" {
			echoServer(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-step
		fmt.Fprint(w, "data: 2\n\n")
	}))
	defer backend.Close()
	to, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := limitedServer(t, false, httputil.NewSingleHostReverseProxy(to).ServeHTTP)

	resp := do(t, s, "GET", "/events")
	events := bufio.NewReader(resp.Body)
	if line, err := events.ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	close(step)
	if rest := read(t, events); rest != "\ndata: 2\n\n" {
		t.Errorf("then %q", rest)
	}
	if got := shown(resp.Header); !strings.HasPrefix(got, "Limit=2 Remaining=1") {
		t.Errorf("headers %s", got)
	}
	status, echo := upgrade(t, s)
	if status != "101 Switching Protocols" || echo("hello") != "hello" {
		t.Errorf("upgrade through the proxy: %s", status)
	}
}

// A refused request's body is not waited for, nor asked for.
func TestRefusalBeforeTheBody(t *testing.T) {
	s := limitedServer(t, false, pong)
	for range 2 {
		do(t, s, "GET", "/upload")
	}
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "POST /upload HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000000\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 429 {
		t.Fatalf("%v, %v", resp, err)
	}
}

// A client that leaves while its request is held frees its place and its units.
func TestClientLeavesWhileHeld(t *testing.T) {
	eachProtocol(t, func(t *testing.T, http2 bool) {
		deciding, back := make(chan bool), make(chan bool)
		m := httplimit.Middleware{Decide: func(*http.Request, time.Duration) (httplimit.Answer, error) {
			close(deciding)
			a := httplimit.Answer{Shape: true, Refund: refundTo(back)}
			a.Allowed, a.Outcome, a.Delay = true, stint.Allowed, 9*time.Second
			return a, nil
		}}
		s := httptest.NewUnstartedServer(m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it passed") })))
		s.EnableHTTP2 = http2
		s.StartTLS()
		defer s.Close()
		ctx, leave := contextWithCancel(t)
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-deciding
			leave()
		}()
		if _, err := s.Client().Do(r); !errors.Is(err, ctx.Err()) {
			t.Errorf("the client got %v", err)
		}
		select {
		case <-back:
		case <-time.After(5 * time.Second):
			t.Error("nothing was refunded")
		}
	})
}
