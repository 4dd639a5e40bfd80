package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server"
)

// Each of these is a server and its clients in one process, over loopback.
const (
	emptyHandler = "empty handler"
	bareProxy    = "bare ReverseProxy"
	pooledProxy  = "bare ReverseProxy, buffers reused"
)

var serverSubjects = []subject{
	{name: emptyHandler, kind: floor, open: openEmpty},
	{name: "Stint /v1/check", kind: ours, beside: emptyHandler, open: openCheck},
	{name: bareProxy, kind: floor, open: proxyWith(nil)},
	{name: pooledProxy, kind: floor, open: proxyWith(buffers{})},
	{name: "Stint gateway", kind: ours, beside: pooledProxy, open: openGateway},
}

// fileOfRules is a rule that does not match and one that does, with two limits.
const fileOfRules = `
rules:
  - {name: login, match: 'request.method == "POST" && request.path == "/login"', key: client.ip, limits: [5 per 1m sliding_log]}
  - {name: client, key: client.ip, limits: [1000000000 per 1s, 1000000000 per 1m]}
`

const checkBody = `{"client":"192.0.2.1","request":{"method":"GET","path":"/v1/users?page=7","host":"example.com","headers":{"user-agent":"curl"}}}`

func newServer(routes ...server.Route) (*server.Server, error) {
	set, err := rules.Parse("rules.yaml", []byte(fileOfRules))
	if err != nil {
		return nil, err
	}
	c := server.Config{Settings: server.DefaultSettings(), Rules: set, Log: slog.New(slog.DiscardHandler)}
	c.Settings.Routes = routes
	return server.New(c), nil
}

// requests is a limiter that sends requests over loopback to a handler.
func requests(h http.Handler, method, path, body string, more ...*httptest.Server) *limiter {
	s := httptest.NewServer(h)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	client := &http.Client{Transport: transport}
	return &limiter{
		take: func(ctx context.Context, _ string) (bool, error) {
			var in io.Reader
			if body != "" {
				in = strings.NewReader(body)
			}
			r, err := http.NewRequestWithContext(ctx, method, s.URL+path, in)
			if err != nil {
				return false, err
			}
			resp, err := client.Do(r)
			if err != nil {
				return false, err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				return false, err
			}
			if resp.StatusCode != http.StatusOK {
				return false, fmt.Errorf("status %d", resp.StatusCode)
			}
			return true, nil
		},
		close: func() {
			transport.CloseIdleConnections()
			s.Close()
			for _, m := range more {
				m.Close()
			}
		},
	}
}

// empty reads the request and answers with nothing.
func empty(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusOK)
}

func openEmpty(place, spec) (*limiter, error) {
	return requests(http.HandlerFunc(empty), "POST", "/v1/check", checkBody), nil
}

func openCheck(place, spec) (*limiter, error) {
	s, err := newServer()
	if err != nil {
		return nil, err
	}
	return requests(s.Check(), "POST", "/v1/check", checkBody), nil
}

// buffers are what bodies are copied through, as in Stint's gateway; a ReverseProxy
// that is not told otherwise makes one for each response.
type buffers struct{}

var freeBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (buffers) Get() []byte  { return freeBuffers.Get().(*[32 << 10]byte)[:] }
func (buffers) Put(b []byte) { freeBuffers.Put((*[32 << 10]byte)(b)) }

func proxyWith(pool httputil.BufferPool) func(place, spec) (*limiter, error) {
	return func(place, spec) (*limiter, error) {
		up, target, err := upstream()
		if err != nil {
			return nil, err
		}
		proxy := &httputil.ReverseProxy{
			Transport:  &http.Transport{MaxIdleConnsPerHost: 64},
			Rewrite:    func(p *httputil.ProxyRequest) { p.SetURL(target) },
			BufferPool: pool,
		}
		return requests(proxy, "GET", "/v1/users?page=7", "", up), nil
	}
}

func openGateway(place, spec) (*limiter, error) {
	up, target, err := upstream()
	if err != nil {
		return nil, err
	}
	s, err := newServer(server.Route{Path: "/", Upstream: target})
	if err != nil {
		return nil, err
	}
	return requests(s.Gateway(), "GET", "/v1/users?page=7", "", up), nil
}

func upstream() (*httptest.Server, *url.URL, error) {
	s := httptest.NewServer(http.HandlerFunc(empty))
	u, err := server.ParseUpstream(s.URL)
	return s, u, err
}
