package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// text is a Base whose responses have a body.
type text struct{}

func (text) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("text")), Request: r}, nil
}

// No more responses are open at once than the limit says: 20 of a second each, two at once, take 10 seconds.
func TestTransportHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := http.Client{Transport: &httplimit.Transport{Limit: stint.MustLimit("2 in_flight"), Base: text{}}}
		start := time.Now()
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				resp, err := client.Get("http://a.example/")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				resp.Body.Close()
			})
		}
		calls.Wait()
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// broken is a Base that returns no response.
type broken struct{ panics bool }

func (b broken) RoundTrip(*http.Request) (*http.Response, error) {
	if b.panics {
		panic("a bug")
	}
	return nil, errors.New("no route")
}

// However a response ends, it has held one unit until then, and none after.
func TestTransportEndsHolds(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/text", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 1000)) })
	mux.HandleFunc("/empty", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "x")
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, c := range []struct {
		name, method, path string
		base               http.RoundTripper
		end                func(*http.Response, context.CancelFunc) // nil: it has ended when it comes
	}{
		{"closed unread", "GET", "/text", nil, func(r *http.Response, _ context.CancelFunc) { r.Body.Close() }},
		{"read to its end", "GET", "/text", nil, func(r *http.Response, _ context.CancelFunc) { _, _ = io.ReadAll(r.Body) }},
		{"closed twice", "GET", "/text", nil, func(r *http.Response, _ context.CancelFunc) { r.Body.Close(); r.Body.Close() }},
		{"closed while it is read", "GET", "/endless", nil, func(r *http.Response, _ context.CancelFunc) {
			read := make(chan struct{})
			go func() { defer close(read); _, _ = io.ReadAll(r.Body) }()
			r.Body.Close()
			<-read
		}},
		{"cut off", "GET", "/short", nil, func(r *http.Response, _ context.CancelFunc) {
			if _, err := io.ReadAll(r.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
		}},
		{"the caller's context ends", "GET", "/endless", nil, func(_ *http.Response, cancel context.CancelFunc) { cancel() }},
		{"no body", "GET", "/empty", nil, nil},
		{"a HEAD", "HEAD", "/text", nil, nil},
		{"no response", "GET", "/", broken{}, nil},
		{"a panic", "GET", "/", broken{panics: true}, nil},
	} {
		for _, refuse := range []bool{false, true} {
			for limit, used := range map[string]int64{"one: 1 in_flight": 0, "hourly: 5 per 1h fixed_window hold": 1} {
				settled := make(chan struct{}, 1)
				limiter := &stint.Limiter{ObserveHold: func(context.Context, *stint.HoldCall) { settled <- struct{}{} }}
				limit := stint.MustLimit(limit)
				tr := &httplimit.Transport{Limit: limit, Limiter: limiter, Refuse: refuse, Base: c.base,
					Key: func(*http.Request) string { return "k" }}
				ctx, cancel := context.WithCancel(t.Context())
				r, _ := http.NewRequestWithContext(ctx, c.method, server.URL+c.path, nil)
				var resp *http.Response
				func() {
					defer func() { _ = recover() }()
					resp, _ = tr.RoundTrip(r)
				}()
				if c.end != nil {
					if d := peek(t, limiter, limit); d.Held != 1 {
						t.Errorf("%s, %s: it held %d", c.name, limit, d.Held)
					}
					c.end(resp, cancel)
				}
				<-settled
				if d := peek(t, limiter, limit); d.Held != 0 || d.Used() != used {
					t.Errorf("%s, %s: it holds %d, and %d are charged", c.name, limit, d.Held, d.Used())
				}
				cancel()
				if resp != nil {
					resp.Body.Close()
				}
				tr.CloseIdleConnections()
			}
		}
	}
}

func peek(t *testing.T, l *stint.Limiter, limit *stint.Limit) stint.Decision {
	t.Helper()
	d, err := l.Peek(t.Context(), "k", limit)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A connection that has left HTTP holds until it is closed, though one direction has ended. A reverse
// proxy writes to it, and closes that direction.
func TestTransportHoldsUpgrades(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		text, err := io.ReadAll(rw) // until the client closes its direction
		if err != nil {
			t.Error(err)
		}
		_, _ = conn.Write(text)
	}))
	defer backend.Close()
	limiter, limit := new(stint.Limiter), stint.MustLimit("1 in_flight")
	target, _ := url.Parse(backend.URL)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &httplimit.Transport{Limit: limit, Limiter: limiter, Key: func(*http.Request) string { return "k" }}
	front := httptest.NewServer(proxy)
	defer front.Close()

	conn, err := net.Dial("tcp", front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	fmt.Fprint(conn, "hello")
	if d := peek(t, limiter, limit); d.Held != 1 {
		t.Errorf("it holds %d", d.Held)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(in); err != nil || string(text) != "hello" {
		t.Errorf("got %q, %v", text, err)
	}
	release, err := limiter.AcquireWait(t.Context(), "k", limit) // when the proxy has closed it
	if err != nil {
		t.Fatal(err)
	}
	release()
}
