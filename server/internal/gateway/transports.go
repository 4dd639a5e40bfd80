package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/internal/pemfile"
	"github.com/stintdev/stint/internal/readfile"
	"github.com/stintdev/stint/server/config"
)

// Transport connects to the upstreams of some routes, to webhooks or to the collector of traces: to all that
// differ only in address. If it has files, it is not ready until they are read.
type Transport struct {
	transportKind
	settings *config.Settings
	name     string // in logs and metrics
	files    readfile.Watched
	now      atomic.Pointer[http.Transport]
	config   atomic.Pointer[tls.Config] // of now
}

// Transports finds the transports of a Gateway.
type Transports map[transportKind]*Transport

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

func newTransports(s *config.Settings) Transports {
	all := Transports{}
	add := func(name string, kind transportKind) {
		if all[kind] != nil {
			return
		}
		t := &Transport{transportKind: kind, settings: s, name: name}
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

// RoundTrip is for http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	now := t.now.Load()
	if now == nil {
		return nil, errNotRead
	}
	return now.RoundTrip(r)
}

var errNotRead = errors.New("the tls files have not been read yet")

// TLSConfig is for a connection of another protocol to the same place.
func (t *Transport) TLSConfig() (*tls.Config, error) {
	if config := t.config.Load(); config != nil {
		return config, nil
	}
	return nil, errNotRead
}

// with makes a transport with this TLS configuration.
func (t *Transport) with(config *tls.Config) *http.Transport {
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
func (t *Transport) proxy() func(*http.Request) (*url.URL, error) {
	if t.h2c {
		return nil
	}
	return t.settings.Proxy()
}

// asksProxy reports whether a request to u is sent to a proxy as such, not through a tunnel to
// u's host.
func (t *Transport) asksProxy(u *url.URL) bool {
	find := t.proxy()
	if find == nil || u.Scheme != "http" {
		return false
	}
	proxy, err := find(&http.Request{URL: u})
	return err == nil && proxy != nil && proxy.Scheme != "socks5"
}

// read reloads the files if they have changed, or if all are to be reloaded. An error changes
// nothing.
func (t *Transport) read(asked bool) (taken *clientCertificate, err error) {
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

func (t *Transport) certificate(contents [][]byte) (*clientCertificate, error) {
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

// Open reads the files of all upstreams.
func (g *Gateway) Open() error {
	for _, t := range g.Transports {
		if t.files.Paths == nil {
			continue
		}
		c, err := t.read(true)
		if err != nil {
			return fmt.Errorf("%s: tls: %w", t.name, err)
		}
		g.Watch.Certificate(t.name, "ca", c.leaf, c.cas)
	}
	return nil
}

// Reload reads the files of all upstreams that have changed or, if asked, of all.
func (g *Gateway) Reload(asked bool) {
	for _, t := range g.Transports {
		if t.files.Paths == nil {
			continue
		}
		switch c, err := t.read(asked); {
		case err != nil:
			g.Watch.Metrics.CertificatesRefused.Inc()
			g.Watch.Log.Error("certificate not taken; the previous one stays in force", "listener", t.name, "error", err)
		case c != nil:
			g.Watch.Metrics.CertificatesTaken.Inc()
			g.Watch.Log.Info("certificate taken", "listener", t.name)
			g.Watch.Certificate(t.name, "ca", c.leaf, c.cas)
		}
	}
}

// CloseIdle closes idle connections.
func (all Transports) CloseIdle() {
	for _, t := range all {
		if now := t.now.Load(); now != nil {
			now.CloseIdleConnections()
		}
	}
}

// To is the transport to something other than an upstream, with these TLS settings, which may be nil.
func (all Transports) To(t *config.UpstreamTLS) *Transport { return all[kindOfTLS(t)] }
