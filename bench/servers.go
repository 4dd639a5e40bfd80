package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// Each is a server process, called over loopback. Clients and upstreams are in the worker's process.
const (
	emptyHandler = "empty handler"
	emptyService = "empty grpc-go service, one connection"
	emptyApart   = "empty grpc-go service, 16 connections"
	bareProxy    = "bare ReverseProxy"
	pooledProxy  = "bare ReverseProxy, buffers reused"
	checkRow     = "Stint /v1/check"
	listRow      = "Stint /v1/check, a list of 100"
	gatewayRow   = "Stint gateway"
)

const inList = 100

// site is a server process: how it serves, and how it is called.
type site struct {
	open    func(upstream string) (service, error)
	proxies bool // it wants an upstream
	dial    func(addr string) (asker, error)
}

// service serves a listener.
type service func(net.Listener) error

// asker is a client. ask may be called by all callers at once.
type asker struct {
	ask   func(context.Context) (allowed bool, err error)
	close func()
}

var sites = map[string]site{
	emptyHandler: {open: web(func(string) (http.Handler, error) { return http.HandlerFunc(empty), nil }), dial: posting(checkBody)},
	emptyService: {open: emptyGRPC, dial: calling(1)},
	emptyApart:   {open: emptyGRPC, dial: calling(serverCallers)},
	checkRow:     {open: web(checkHandler), dial: posting(checkBody)},
	listRow:      {open: web(checkHandler), dial: posting(listBody())},
	bareProxy:    {open: web(func(up string) (http.Handler, error) { return proxyTo(up, nil) }), proxies: true, dial: getting},
	pooledProxy:  {open: web(func(up string) (http.Handler, error) { return proxyTo(up, buffers{}) }), proxies: true, dial: getting},
	gatewayRow:   {open: web(gatewayHandler), proxies: true, dial: getting},
}

var serverSubjects = []subject{
	{name: emptyHandler, kind: floor, open: serving(emptyHandler)},
	{name: checkRow, kind: ours, beside: emptyHandler, open: serving(checkRow)},
	{name: listRow, kind: ours, beside: checkRow, open: serving(listRow)},
	{name: emptyService, kind: floor, open: serving(emptyService)},
	{name: emptyApart, kind: floor, open: serving(emptyApart)},
	{name: bareProxy, kind: floor, open: serving(bareProxy)},
	{name: pooledProxy, kind: floor, open: serving(pooledProxy)},
	{name: gatewayRow, kind: ours, beside: pooledProxy, open: serving(gatewayRow)},
}

// serverCallers is how many callers a server has at once; emptyApart has a connection for each.
const serverCallers = 16

const fileOfRules = `
rules:
  - {name: login, match: 'request.method == "POST" && request.path == "/login"', key: client.ip, limits: [5 per 1m sliding_log]}
  - {name: client, key: client.ip, limits: [1000000000 per 1s, 1000000000 per 1m]}
`

const checkBody = `{"client":"192.0.2.1","request":{"method":"GET","path":"/v1/users?page=7","host":"example.com","headers":{"user-agent":"curl"}}}`

func listBody() string {
	all := make([]string, inList)
	for i := range all {
		all[i] = strings.Replace(checkBody, "192.0.2.1", fmt.Sprint("192.0.2.", i), 1)
	}
	return "[" + strings.Join(all, ",") + "]"
}

func web(open func(upstream string) (http.Handler, error)) func(string) (service, error) {
	return func(upstream string) (service, error) {
		h, err := open(upstream)
		return func(l net.Listener) error { return http.Serve(l, h) }, err
	}
}

func newServer(routes ...config.Route) (*server.Server, error) {
	set, err := rules.Parse("rules.yaml", []byte(fileOfRules))
	if err != nil {
		return nil, err
	}
	c := server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.DiscardHandler)}
	c.Settings.Routes = routes
	return server.New(c), nil
}

func empty(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusOK)
}

func checkHandler(string) (http.Handler, error) {
	s, err := newServer()
	if err != nil {
		return nil, err
	}
	return s.Check(), nil
}

func gatewayHandler(upstream string) (http.Handler, error) {
	target, err := config.ParseUpstream(upstream)
	if err != nil {
		return nil, err
	}
	s, err := newServer(config.Route{Path: "/", Upstream: target})
	if err != nil {
		return nil, err
	}
	return s.Gateway(), nil
}

// buffers are for copying bodies; without them, a ReverseProxy makes one for each response.
type buffers struct{}

var freeBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (buffers) Get() []byte  { return freeBuffers.Get().(*[32 << 10]byte)[:] }
func (buffers) Put(b []byte) { freeBuffers.Put((*[32 << 10]byte)(b)) }

func proxyTo(upstream string, pool httputil.BufferPool) (http.Handler, error) {
	target, err := config.ParseUpstream(upstream)
	return &httputil.ReverseProxy{
		Transport:  &http.Transport{MaxIdleConnsPerHost: 64},
		Rewrite:    func(p *httputil.ProxyRequest) { p.SetURL(target) },
		BufferPool: pool,
	}, err
}

func serving(name string) func(place, spec) (*limiter, error) {
	return func(place, spec) (*limiter, error) {
		var up string
		end := func() {}
		if sites[name].proxies {
			s := httptest.NewServer(http.HandlerFunc(empty))
			up, end = s.URL, s.Close
		}
		var addr string
		p, err := startChild(&addr, siteVariable+"="+name, siteUpstream+"="+up)
		if err != nil {
			end()
			return nil, fmt.Errorf("the server process of %s: %w", name, err)
		}
		a, err := sites[name].dial(addr)
		if err != nil {
			p.end()
			end()
			return nil, err
		}
		return &limiter{
			take: func(ctx context.Context, _ string) (bool, error) { return a.ask(ctx) },
			used: p.used,
			close: func() {
				a.close()
				p.end()
				end()
			},
		}, nil
	}
}

// posting calls the check API by POST.
func posting(body string) func(addr string) (asker, error) {
	return func(addr string) (asker, error) {
		return asking("POST", "http://"+addr+"/v1/check", func() io.Reader { return strings.NewReader(body) }), nil
	}
}

func getting(addr string) (asker, error) {
	return asking("GET", "http://"+addr+"/v1/users?page=7", func() io.Reader { return nil }), nil
}

func asking(method, url string, body func() io.Reader) asker {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	client := &http.Client{Transport: transport}
	return asker{
		ask:   func(ctx context.Context) (bool, error) { return true, ask(ctx, client, method, url, body()) },
		close: transport.CloseIdleConnections,
	}
}

func ask(ctx context.Context, client *http.Client, method, url string, body io.Reader) error {
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}
