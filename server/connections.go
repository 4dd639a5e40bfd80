package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint/server/internal/http2conn"
	"github.com/stintdev/stint/server/internal/watch"
)

// connectionBounds bounds connections: how many a listener keeps open, and what an HTTP/2
// client may do with one.
type connectionBounds struct {
	most          int64         // connections of each listener; 0: any number
	headerTimeout time.Duration // for a client to send the headers of a request
	metrics       *watch.Metrics
}

// boundHTTP2 bounds the memory of an HTTP/2 connection of server.
func boundHTTP2(server *http.Server) {
	server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: 250,
		// The smallest possible size: room for a whole frame is allocated when its first bytes
		// arrive.
		MaxReadFrameSize: 16 << 10,
		// This much of the bodies is buffered until a handler reads it.
		MaxReceiveBufferPerConnection: 256 << 10,
		MaxReceiveBufferPerStream:     64 << 10,
	}
}

// unencrypted is the name of net/http's handler for HTTP/2 on connections without TLS whose
// preface was read. It gets the connection in a *tls.Conn whose NetConn is an unencryptedConn.
const unencrypted = "unencrypted_http2"

type unencryptedConn interface{ UnencryptedNetConn() net.Conn }

// carried passes a connection to the handler named unencrypted.
type carried struct{ net.Conn }

// UnencryptedNetConn implements unencryptedConn.
func (c carried) UnencryptedNetConn() net.Conn { return c.Conn }

// watchHTTP2 puts a watched connection between net/http's HTTP/2 and each of its connections,
// above TLS. net/http bounds neither the time that a request's headers take nor the number of empty frames,
// and offers no hook for that. Call it after net/http has set up HTTP/2 (BaseContext is called after that)
// and before the first connection is accepted. TestAttackHTTP2Frames fails if net/http changes this.
func (b *connectionBounds) watchHTTP2(server *http.Server) {
	serve := server.TLSNextProto[unencrypted]
	if serve == nil {
		return // HTTP/2 is turned off, for example by GODEBUG=http2server=0
	}
	server.TLSNextProto[unencrypted] = func(hs *http.Server, c *tls.Conn, h http.Handler) {
		plain, ok := c.NetConn().(unencryptedConn)
		if !ok {
			_ = c.Close()
			return
		}
		w := b.frames().AfterPreface(plain.UnencryptedNetConn(), "")
		defer func() { _ = w.Close() }()
		serve(hs, tls.Client(carried{w}, nil), h)
	}
	server.TLSNextProto["h2"] = func(hs *http.Server, c *tls.Conn, h http.Handler) {
		w := b.frames().AfterPreface(c, http2conn.Preface)
		defer func() { _ = w.Close() }()
		serve(hs, tls.Client(carried{watchedTLS{w, c}}, nil), h)
	}
}

// watchedTLS also exposes the state of the TLS under it.
type watchedTLS struct {
	*http2conn.Conn
	tls *tls.Conn
}

func (w watchedTLS) ConnectionState() tls.ConnectionState { return w.tls.ConnectionState() }

// frames bounds what a client may do with a connection.
func (b *connectionBounds) frames() http2conn.Bounds {
	m := b.metrics
	return http2conn.Bounds{HeaderTimeout: b.headerTimeout, SlowHeaders: m.HTTP2Headers.Inc, Frames: m.HTTP2Frames.Inc, Resets: m.HTTP2Resets.Inc}
}

// WatchHTTP2 returns c, an HTTP/2 connection of a listener that Run does not serve, with the gateway's
// protection: the connection ends if headers do not end, or at too many useless frames or resets. That counts
// in stint_connections_ended_total.
func (s *Server) WatchHTTP2(c net.Conn) net.Conn {
	b := connectionBounds{s.settings.MaxConnections, s.headerTimeout, s.watch.Metrics}
	return b.frames().Watch(c)
}

// fullListener keeps a number of connections open, and closes further ones on arrival. In the kernel's queue
// they would wait, without an answer, until an attacker's connections time out.
type fullListener struct {
	net.Listener
	room    int64
	open    atomic.Int64
	refused prometheus.Counter
}

// atMost bounds the connections of l as the settings say. Upgraded connections count, too.
func (b *connectionBounds) atMost(name string, l net.Listener) net.Listener {
	if b.most == 0 {
		return l
	}
	return &fullListener{Listener: l, room: b.most, refused: b.metrics.ConnectionsRefused.WithLabelValues(name)}
}

// BoundConnections returns l with max_connections of the settings, for a listener that Run does not
// serve. A connection more is closed on arrival, and counts in stint_connections_refused_total
// under the listener's name.
func (s *Server) BoundConnections(listener string, l net.Listener) net.Listener {
	b := connectionBounds{s.settings.MaxConnections, s.headerTimeout, s.watch.Metrics}
	return b.atMost(listener, l)
}

// Accept is for net.Listener. It is called by one goroutine at a time.
func (l *fullListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) > l.room {
			l.open.Add(-1)
			l.refused.Inc()
			_ = c.Close()
			continue
		}
		leave := sync.OnceFunc(func() { l.open.Add(-1) })
		if tcp, ok := c.(*net.TCPConn); ok { // it can do more than a net.Conn
			return &countedTCP{tcp, leave}, nil
		}
		return &countedConn{c, leave}, nil
	}
}

type countedTCP struct {
	*net.TCPConn
	leave func()
}

func (c *countedTCP) Close() error {
	c.leave()
	return c.TCPConn.Close()
}

type countedConn struct {
	net.Conn
	leave func()
}

func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
