package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/httpfield"
	"github.com/stintdev/stint/internal/pemfile"
	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/watch"
)

// transport connects to the upstreams of some routes, to webhooks or to the collector of traces: to all that
// differ only in address. If it has files, it is not ready until they are read.
type transport struct {
	transportKind
	settings *config.Settings
	name     string // in logs and metrics
	files    readfile.Watched
	now      atomic.Pointer[http.Transport]
	config   atomic.Pointer[tls.Config] // of now
}

// transports finds the transports of a Server.
type transports map[transportKind]*transport

type transportKind struct {
	upstream bool
	timeout  time.Duration // until an answer begins; 0: none
	h2c      bool
	tls      config.UpstreamTLS
}

func kindOf(r *config.Route, s *config.Settings) transportKind {
	k := kindOfTLS(r.TLS)
	k.upstream, k.h2c = true, r.Upstream.Scheme == "h2c"
	k.timeout, _ = s.Timeouts(r)
	return k
}

// kindOfTLS is the kind of a transport to something other than an upstream. t may be nil.
func kindOfTLS(t *config.UpstreamTLS) (k transportKind) {
	if t != nil {
		k.tls = *t
	}
	return k
}

func newTransports(s *config.Settings) transports {
	all := transports{}
	add := func(name string, kind transportKind) {
		if all[kind] != nil {
			return
		}
		t := &transport{transportKind: kind, settings: s, name: name}
		for _, path := range []string{kind.tls.CA, kind.tls.Cert, kind.tls.Key} {
			if path != "" {
				t.files.Paths = append(t.files.Paths, path)
			}
		}
		if t.files.Paths == nil {
			t.now.Store(t.with(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: kind.tls.ServerName}))
		}
		all[kind] = t
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		add("upstream "+r.Upstream.Host, kindOf(r, s))
	}
	if t := s.Traces; t != nil {
		add("traces", kindOfTLS(t.TLS))
	}
	for _, w := range s.Webhooks {
		add("webhook "+w.Name, kindOfTLS(w.TLS))
	}
	return all
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	now := t.now.Load()
	if now == nil {
		return nil, errNotRead
	}
	return now.RoundTrip(r)
}

var errNotRead = errors.New("the tls files have not been read yet")

// tlsConfig is for a connection of another protocol to the same place.
func (t *transport) tlsConfig() (*tls.Config, error) {
	if config := t.config.Load(); config != nil {
		return config, nil
	}
	return nil, errNotRead
}

// with makes a transport with this TLS configuration.
func (t *transport) with(config *tls.Config) *http.Transport {
	h := http.DefaultTransport.(*http.Transport).Clone()
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	if d := t.timeout; d > 0 {
		h.ResponseHeaderTimeout = d
		h.TLSHandshakeTimeout = min(h.TLSHandshakeTimeout, d)
		dialer.Timeout = min(dialer.Timeout, d)
	}
	h.DialContext = dialer.DialContext
	t.config.Store(config)
	h.TLSClientConfig = config.Clone() // h changes it
	h.MaxIdleConns, h.MaxIdleConnsPerHost = 0, 256
	// Compression is between an upstream and the client.
	h.DisableCompression = true
	h.Proxy = t.proxy()
	if t.h2c {
		h.Protocols = new(http.Protocols)
		h.Protocols.SetUnencryptedHTTP2(true)
	}
	return h
}

// proxy returns the function that finds the proxy for requests; nil: there is none.
func (t *transport) proxy() func(*http.Request) (*url.URL, error) {
	if t.h2c {
		return nil
	}
	return t.settings.Proxy()
}

// asksProxy reports whether a request to u is sent to a proxy as such, not through a tunnel to
// u's host.
func (t *transport) asksProxy(u *url.URL) bool {
	find := t.proxy()
	if find == nil || u.Scheme != "http" {
		return false
	}
	proxy, err := find(&http.Request{URL: u})
	return err == nil && proxy != nil && proxy.Scheme != "socks5"
}

// read reloads the files if they have changed, or if all are to be reloaded. An error changes
// nothing.
func (t *transport) read(asked bool) (taken *clientCertificate, err error) {
	contents, changed, err := t.files.Read()
	if !changed && !asked {
		return nil, nil
	}
	if err == nil {
		taken, err = t.certificate(contents)
	}
	if err != nil {
		return nil, err
	}
	if before := t.now.Swap(t.with(taken.config)); before != nil {
		before.CloseIdleConnections()
	}
	return taken, nil
}

// clientCertificate has the contents of an upstream's files.
type clientCertificate struct {
	config *tls.Config
	leaf   *x509.Certificate // nil: none is presented
	cas    []*x509.Certificate
}

func (t *transport) certificate(contents [][]byte) (*clientCertificate, error) {
	c := &clientCertificate{config: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.tls.ServerName}}
	if t.tls.CA != "" {
		cas, err := pemfile.Certificates(contents[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.tls.CA, err)
		}
		c.cas, c.config.RootCAs = cas, pemfile.Pool(cas)
		contents = contents[1:]
	}
	if t.tls.Cert != "" {
		chain, err := pemfile.Certificates(contents[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.tls.Cert, err)
		}
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", t.tls.Cert, t.tls.Key, err)
		}
		c.leaf, c.config.Certificates = chain[0], []tls.Certificate{pair}
	}
	return c, nil
}

// openUpstreams reads the files of all upstreams.
func (s *Server) openUpstreams() error {
	for _, t := range s.transports {
		if t.files.Paths == nil {
			continue
		}
		c, err := t.read(true)
		if err != nil {
			return fmt.Errorf("%s: tls: %w", t.name, err)
		}
		s.tellOf(t.name, "ca", c.leaf, c.cas)
	}
	return nil
}

func (s *Server) reloadUpstreams(asked bool) {
	for _, t := range s.transports {
		if t.files.Paths == nil {
			continue
		}
		switch c, err := t.read(asked); {
		case err != nil:
			s.watch.Metrics.CertificatesRefused.Inc()
			s.log.Error("certificate not taken; the previous one stays in force", "listener", t.name, "error", err)
		case c != nil:
			s.watch.Metrics.CertificatesTaken.Inc()
			s.log.Info("certificate taken", "listener", t.name)
			s.tellOf(t.name, "ca", c.leaf, c.cas)
		}
	}
}

func (all transports) closeIdle() {
	for _, t := range all {
		if now := t.now.Load(); now != nil {
			now.CloseIdleConnections()
		}
	}
}

// proxy is a handler that forwards requests to route's upstream.
func (s *Server) proxy(route *config.Route) http.Handler {
	t := s.transports[kindOf(route, &s.settings)]
	proxy := &httputil.ReverseProxy{
		Transport: t,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = exchangeOf(p.In).out
			p.Out.Host = p.In.Host
			p.Out.Trailer = p.In.Trailer // the same map; it is filled when the body ends
			// The client gets 100 Continue when its body is read. An upstream that answers without reading
			// the body would get no body, and may wait for it. While the body is unread, net/http does not
			// notice that the client has left.
			p.Out.Header.Del("Expect")
			p.Out.Body = exchangeOf(p.In).closable(p.Out.Body)
			s.setForwarded(p)
			s.watch.Tracing.Pass(p.In.Context(), p.Out.Header)
		},
		ModifyResponse: func(r *http.Response) error {
			x := exchangeOf(r.Request)
			switching := r.StatusCode == http.StatusSwitchingProtocols
			if switching {
				if err := wrongSwitch(r); err != nil {
					return err
				}
				if !x.timer.stop() {
					return errResponseTimeout
				}
			} else if x.timer != nil {
				r.Body = x.timer.watch(r, s.watch.Sampled)
			}
			s.watch.Tracing.Answered(r)
			s.endGRPC(r)
			x.status = r.StatusCode
			s.responded(r.Request.Context(), x, r.StatusCode)
			x.answersEarly(r)
			if switching {
				x.leave() // it may last for days
				x.upgraded = true
				s.cutOff.upgraded.Add(1)
			}
			x.setHeaders(r.Header)
			s.cors.Passed(x.route, r.Request, r.Header, x.headers)
			if _, ok := r.Header["Content-Type"]; !ok {
				x.body.writer.Header()["Content-Type"] = nil // or net/http would guess one from the body
			}
			return nil
		},
		ErrorHandler: s.upstreamFailed,
		BufferPool:   door.Buffers{},
		ErrorLog:     s.errorLog,
	}
	_, timeout := s.settings.Timeouts(route)
	proxied := t.asksProxy(&url.URL{Scheme: route.Upstream.Scheme, Host: route.Upstream.Host})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		var err error
		if x.out, err = outgoing(route, &x.target, proxied); err != nil {
			httplimit.Problem(w, r, http.StatusBadRequest, err.Error())
			return
		}
		t.keepUpgrade(r)
		x.takeHeaders(w.Header())
		if ctx, span := s.watch.Tracing.StartUpstream(r.Context(), route.Upstream.Host, r); span != nil {
			defer span.End()
			r = r.WithContext(ctx)
		}
		if timeout > 0 {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			x.timer = newResponseTimer(timeout, cancel)
			defer x.timer.stop()
			r = r.WithContext(ctx)
		}
		proxy.ServeHTTP(forwardsInterim(s.keepPace(route, x, w, r), r), r)
	})
}

// setForwarded sets the headers that describe where the request comes from. It removes such headers of an
// untrusted client, also under names that upstreams take for them, such as X_Forwarded_For.
func (s *Server) setForwarded(p *httputil.ProxyRequest) {
	clients := s.door.Clients()
	httpfield.DropTwins(p.Out.Header, "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", http.CanonicalHeaderKey(s.settings.ClientHeader))
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

const notInTime = "upstream did not answer in time"

func (s *Server) upstreamFailed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r)
	s.watch.Tracing.Failed(r.Context())
	x.setHeaders(w.Header())
	var op *net.OpError
	x.unsent = errors.As(err, &op) && op.Op == "dial"
	gone := r.Context().Err() != nil // net/http reports this also for a client that was too slow
	switch {
	case x.upload != nil && x.upload.pace.isExpired():
		x.clientFailed = true
		if x.http1 {
			w.Header()["Connection"] = []string{"close"}
		}
		httplimit.Problem(w, r, http.StatusRequestTimeout, "The request's body did not arrive in time.")
		return
	case x.timer.isOver():
		logUpstream(s.watch.Sampled, r, notInTime, errResponseTimeout)
		httplimit.Problem(w, r, http.StatusGatewayTimeout, "The upstream did not answer in time.")
		return
	case gone && s.cutOff.begun.Load():
		httplimit.Problem(w, r, http.StatusGatewayTimeout, "This server is stopping, and the upstream has not answered.")
		return
	case x.upload != nil && x.upload.broken.Load():
		x.clientFailed = true
		httplimit.Problem(w, r, http.StatusBadRequest, "The request's body is malformed or ends too early.")
		return
	case gone: // or it has closed its half of the connection, and still reads
		x.clientFailed = true
		httplimit.Problem(w, r, http.StatusBadRequest, "The connection was closed before the upstream had answered.")
		return
	}
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		logUpstream(s.watch.Sampled, r, notInTime, err)
		httplimit.Problem(w, r, http.StatusGatewayTimeout, "The upstream did not answer in time.")
	default:
		logUpstream(s.watch.Sampled, r, "upstream failed", err)
		httplimit.Problem(w, r, http.StatusBadGateway, "The upstream cannot be reached.")
	}
}

// keepUpgrade leaves in r the upgrade that may pass, or none: the first protocol that the
// client offers and the settings name. Without one, the request goes on in HTTP/1.1, as in RFC
// 9110. So clients that offer h2c with their first request, such as curl --http2 and Java's
// HttpClient, are served.
//
// After an upgrade, the gateway forwards bytes. So a protocol in which a client could send more
// requests must not pass.
func (t *transport) keepUpgrade(r *http.Request) {
	r.Header.Del("Http2-Settings")
	lines := r.Header["Upgrade"]
	if lines == nil {
		return
	}
	r.Header.Del("Upgrade")
	if t.h2c || !httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade") {
		return // HTTP/2 has no upgrades
	}
	for _, line := range lines {
		for offered := range strings.SplitSeq(line, ",") {
			if i := slices.IndexFunc(t.settings.Upgrades, func(name string) bool { return strings.EqualFold(name, strings.TrimSpace(offered)) }); i >= 0 {
				r.Header["Upgrade"] = []string{t.settings.Upgrades[i]}
				return
			}
		}
	}
}

// wrongSwitch returns an error if a response switches protocols wrongly. An upstream may switch to the
// protocol that it was offered.
func wrongSwitch(r *http.Response) error {
	offered, to := r.Request.Header.Get("Upgrade"), r.Header["Upgrade"]
	switch {
	case offered == "":
		return errors.New("it switched protocols, but was offered none")
	case len(to) != 1 || !strings.EqualFold(to[0], offered):
		return fmt.Errorf("it switched to %.60q, but was offered %s", to, offered)
	}
	return nil
}

// logUpstream logs what is wrong with the upstream of r.
func logUpstream(l *watch.Sampled, r *http.Request, what string, err error) {
	x := exchangeOf(r)
	route := x.route.String()
	l.Log(slog.LevelWarn, what+" "+route, what, "route", route, "host", watch.Shown(r.Host), "path", watch.Shown(x.target.RawPath), "error", err)
}
