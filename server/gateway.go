package server

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/rules"
)

// Gateway limits requests and passes them on to the upstreams of the routes. A
// request that no route matches is counted, too, and answered with 404.
func (s *Server) Gateway() http.Handler {
	return s.withExchange(httplimit.Middleware{
		Decide:   s.decideHTTP,
		Dialect:  s.settings.Dialect,
		MaxHeld:  int(s.settings.MaxHeld),
		MaxHold:  s.settings.MaxHold,
		Degraded: s.settings.DegradedHeader,
	}.Wrap(s.upstreams()))
}

// decideHTTP is Decide for the gateway's middleware, which can hold r for so long.
func (s *Server) decideHTTP(r *http.Request, hold time.Duration) (httplimit.Answer, error) {
	s.notice(r)
	clients := s.clients()
	in := rules.Input{
		Request: &rules.Request{
			Method:   r.Method,
			Path:     canonicalPath(r.URL.Path),
			Host:     canonicalHost(r.Host),
			Header:   r.Header,
			RawQuery: r.URL.RawQuery,
		},
		Client: clients.Addr(r),
		Cost:   1,
	}
	v, err := s.decideOne(r.Context(), &in, time.Time{}, hold)
	if err != nil {
		return httplimit.Answer{}, err
	}
	if x := exchangeOf(r); x != nil {
		x.watching, x.counters = v.watching, v.counters
	}
	return s.answer(&v), nil
}

func (s *Server) clients() httplimit.Clients {
	return httplimit.Clients{Trusted: s.Rules().TrustedProxies, Header: s.settings.ClientHeader}
}

// answer puts a verdict in the middleware's words.
func (s *Server) answer(v *Verdict) httplimit.Answer {
	a := httplimit.Answer{
		Decision:  v.Decision,
		Blocked:   v.List == rules.Blocked,
		Unlimited: v.Allowed && v.Limit == nil,
	}
	if v.Rule != nil {
		a.Message = v.Rule.Message
	}
	if a.Blocked || a.Unlimited {
		return a
	}
	a.Each = v.enforced()
	a.Delay = 0
	for i := range v.Each {
		if v.Allowed && v.Rules[i].Shape && v.Rules[i].Mode == rules.Enforce {
			a.Delay = max(a.Delay, v.Each[i].Delay)
		}
	}
	if a.Delay > 0 {
		a.Hold = true
		taken := v.taken
		a.GiveBack = func(ctx context.Context) {
			if err := s.giveBack(ctx, taken); err != nil {
				s.log.Warn("a request was dropped while held, and its units stay taken", "error", err)
			}
		}
	}
	return a
}

// upstreams is a handler for the routes, the longest path first, and those for
// one host before those for any.
func (s *Server) upstreams() http.Handler {
	type target struct {
		Route
		proxy http.Handler
	}
	var targets []target
	for _, r := range s.settings.Routes {
		targets = append(targets, target{r, s.proxy(r)})
	}
	sort.SliceStable(targets, func(i, j int) bool {
		a, b := targets[i], targets[j]
		if (a.Host == "") != (b.Host == "") {
			return a.Host != ""
		}
		return len(a.Path) > len(b.Path)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, path := canonicalHost(r.Host), canonicalPath(r.URL.Path)
		for i := range targets {
			if t := &targets[i]; t.matches(host, path) {
				takeAnswerHeaders(w, r)
				t.proxy.ServeHTTP(w, r)
				return
			}
		}
		httplimit.Problem(w, r, http.StatusNotFound, "No route leads from here.")
	})
}

// takeAnswerHeaders moves what the limits say in w's headers into r's exchange. A
// ReverseProxy would add the upstream's of the same names to them, and clears them
// when the upstream sends a 1xx first; so they go into the upstream's response
// instead, where they replace its own.
func takeAnswerHeaders(w http.ResponseWriter, r *http.Request) {
	if x := exchangeOf(r); x != nil {
		h := w.Header()
		x.headers = make(http.Header, len(h))
		maps.Copy(x.headers, h)
		clear(h)
	}
}

func (r *Route) matches(host, path string) bool {
	if r.Host != "" && r.Host != host {
		return false
	}
	rest, ok := strings.CutPrefix(path, r.Path)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(r.Path, "/"))
}

// newTransport is how upstreams are reached.
func newTransport(s *Settings) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	if d := s.UpstreamTimeout; d > 0 {
		t.ResponseHeaderTimeout = d
		t.TLSHandshakeTimeout = min(t.TLSHandshakeTimeout, d)
		dialer.Timeout = min(dialer.Timeout, d)
	}
	t.DialContext = dialer.DialContext
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 256
	// An upstream's compression is between it and the client.
	t.DisableCompression = true
	return t
}

func (s *Server) proxy(route Route) http.Handler {
	return &httputil.ReverseProxy{
		Transport: s.transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			if path := p.In.URL.Path; strings.Contains(path, "/../") || strings.HasSuffix(path, "/..") {
				// It must not climb out of the upstream's path.
				p.Out.URL.Path, p.Out.URL.RawPath = canonicalPath(path), ""
			}
			p.SetURL(route.Upstream)
			p.Out.Host = p.In.Host
			p.Out.Trailer = p.In.Trailer // the same map, which is filled when the body ends
			s.setForwarded(p)
		},
		ModifyResponse: func(r *http.Response) error {
			x := exchangeOf(r.Request)
			s.responded(r.Request.Context(), x, r.StatusCode)
			if r.StatusCode == http.StatusSwitchingProtocols {
				x.leave() // it may last for days
			}
			x.setHeaders(r.Header)
			return nil
		},
		ErrorHandler: s.upstreamFailed,
		BufferPool:   buffers{},
		ErrorLog:     s.errorLog,
	}
}

// buffers are what bodies are copied through, and lists of checks read into; without
// them, each would make one of its own.
type buffers struct{}

const bufferSize = 32 << 10

var freeBuffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

func (buffers) Get() []byte  { return freeBuffers.Get().(*[bufferSize]byte)[:] }
func (buffers) Put(b []byte) { freeBuffers.Put((*[bufferSize]byte)(b)) }

// setForwarded tells the upstream where the request comes from. What a client that
// is not trusted claims about itself ends here.
func (s *Server) setForwarded(p *httputil.ProxyRequest) {
	clients := s.clients()
	if !clients.Believes(p.In) {
		if s.settings.ClientHeader != "" {
			p.Out.Header.Del(s.settings.ClientHeader)
		}
		p.SetXForwarded()
		return
	}
	p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	p.SetXForwarded()
	for _, name := range [...]string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if lines := p.In.Header[name]; lines != nil {
			p.Out.Header[name] = lines
		}
	}
}

func (s *Server) upstreamFailed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has left
	}
	exchangeOf(r).setHeaders(w.Header())
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		s.log.Warn("upstream did not answer in time", "error", err)
		httplimit.Problem(w, r, http.StatusGatewayTimeout, "The upstream did not answer in time.")
	default:
		s.log.Warn("upstream failed", "error", err)
		httplimit.Problem(w, r, http.StatusBadGateway, "The upstream cannot be reached.")
	}
}
