package server

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// connectionBounds bounds connections: how many a listener keeps open, and what an HTTP/2
// client may do with one.
type connectionBounds struct {
	most          int64         // connections of each listener; 0: any number
	headerTimeout time.Duration // for a client to send the headers of a request
	metrics       *metrics
}

// An HTTP/2 client may send spareFrames that carry nothing, such as a PING or empty DATA, and
// sparePerSecond more each second. Each request and each frame of a response earns it
// framesEarned more, up to mostSpare. That is far more than clients use to acknowledge what
// they read.
const (
	spareFrames    = 1_000
	sparePerSecond = 100
	framesEarned   = 10
	mostSpare      = 10_000
)

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
// above TLS. net/http bounds neither the time that the headers of a request take, nor the
// number of frames that carry nothing, and offers no hook for that. It must be called after
// net/http has set up HTTP/2, which it has when it calls BaseContext, and before the first
// connection is accepted. TestAttackHTTP2Frames fails if net/http does this in another way.
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
		w := b.watch(plain.UnencryptedNetConn(), "")
		defer w.stop()
		serve(hs, tls.Client(carried{w}, nil), h)
	}
	server.TLSNextProto["h2"] = func(hs *http.Server, c *tls.Conn, h http.Handler) {
		w := b.watch(c, clientPreface)
		defer w.stop()
		serve(hs, tls.Client(carried{watchedTLS{w, c}}, nil), h)
	}
}

// clientPreface precedes the first frame of a client.
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// watched is an HTTP/2 connection whose frames are counted.
type watched struct {
	net.Conn
	buffered *bufio.Reader // frames are read in pieces of 9 bytes and the rest
	metrics  *metrics

	headerTimeout time.Duration

	// What was read. One goroutine at a time uses these.
	preface string // the part of it that has not arrived
	in      frames
	block   bool      // headers have begun and not ended
	blocks  int       // number of header blocks that began
	timed   int       // the block that the timer is for
	spare   int64     // frames that may still carry nothing
	refills time.Time // when spare was last refilled by time

	out    frames       // what was written; one goroutine at a time uses it
	earned atomic.Int64 // by what was written

	timer struct {
		sync.Mutex
		*time.Timer
	}
}

// watchedTLS also exposes the state of the TLS under it.
type watchedTLS struct {
	*watched
	tls *tls.Conn
}

func (w watchedTLS) ConnectionState() tls.ConnectionState { return w.tls.ConnectionState() }

// watch watches c. preface is the part that precedes the first frame and has not arrived.
func (b *connectionBounds) watch(c net.Conn, preface string) *watched {
	w := &watched{Conn: c, preface: preface, metrics: b.metrics, headerTimeout: b.headerTimeout, spare: spareFrames, refills: time.Now()}
	w.buffered = bufio.NewReaderSize(wire{w}, 4<<10)
	return w
}

// Read is for net.Conn.
func (w *watched) Read(b []byte) (int, error) { return w.buffered.Read(b) }

// wire reads what buffered has not read.
type wire struct{ w *watched }

func (r wire) Read(b []byte) (int, error) {
	n, err := r.w.Conn.Read(b)
	if k := min(n, len(r.w.preface)); k > 0 {
		if string(b[:k]) != r.w.preface[:k] {
			return 0, errPreface
		}
		r.w.preface = r.w.preface[k:]
		n = copy(b, b[k:n])
	}
	if !r.w.came(b[:n]) {
		return 0, errFrames
	}
	return n, err
}

var (
	errFrames  = errors.New("too many frames without effect")
	errPreface = errors.New("not the HTTP/2 preface")
)

// came counts the frames in b, and reports whether the connection may go on.
func (w *watched) came(b []byte) bool {
	w.in.read(b, w.frameCame, w.frameEnded)
	w.time()
	if w.spare = min(w.spare+w.earned.Swap(0), mostSpare); w.spare >= 0 {
		return true
	}
	now := time.Now()
	w.spare += int64(min(now.Sub(w.refills), time.Minute) * sparePerSecond / time.Second)
	if w.refills = now; w.spare >= 0 {
		return true
	}
	w.metrics.http2Frames.Inc()
	return false
}

// Write is for net.Conn.
func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	var earned int64
	w.out.read(b[:n], func(f *frames) {
		if f.head[3] == frameData {
			earned += framesEarned
		}
	}, func(f *frames) {
		// Undo what the headers of a malformed request earned. A request that was answered
		// before its body arrived is reset without an error.
		if f.head[3] == frameReset && f.last != noError {
			earned -= framesEarned + 1
		}
	})
	if earned != 0 {
		w.earned.Add(earned)
	}
	return n, err
}

func (w *watched) frameCame(f *frames) {
	padded := f.has(flagPadded)
	switch f.head[3] {
	case frameData:
		if f.left > 0 && !(padded && f.left <= 256) { // all of which may be padding
			return
		}
	case frameHeaders:
		w.block = true
		w.blocks++
		least := 3 // method, scheme and path
		if f.has(flagPriority) {
			least += 5
		}
		if padded {
			least += 256
		}
		if f.left >= least {
			w.spare += framesEarned
			return
		}
	}
	w.spare--
}

func (w *watched) frameEnded(f *frames) {
	switch f.head[3] {
	case frameHeaders, frameContinuation:
		if f.has(flagEndHeaders) {
			w.block = false
		}
	}
}

// time starts the timer for headers that have begun and not ended. That is rare, because most
// arrive in one piece.
func (w *watched) time() {
	switch {
	case w.block && w.timed != w.blocks:
		w.stop()
		w.timed = w.blocks
		w.timer.Lock()
		defer w.timer.Unlock()
		w.timer.Timer = time.AfterFunc(w.headerTimeout, func() {
			w.metrics.http2Headers.Inc()
			_ = w.Close()
		})
	case !w.block && w.timed != 0:
		w.stop()
		w.timed = 0
	}
}

func (w *watched) stop() {
	w.timer.Lock()
	defer w.timer.Unlock()
	if w.timer.Timer != nil {
		w.timer.Stop()
	}
}

// Kinds of frames, and their flags; see RFC 9113.
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameContinuation = 9

	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 32

	noError = 0 // of a reset, whose payload is its code: all are below 256
)

// frames finds the frames in a stream of bytes.
type frames struct {
	head [9]byte
	have int  // bytes of head
	left int  // bytes of the frame, after the head
	last byte // of those that have been read
}

func (f *frames) has(flag byte) bool { return f.head[4]&flag != 0 }

// read reads on with b. It calls began when the head of a frame is complete, and ended when the
// whole frame is.
func (f *frames) read(b []byte, began, ended func(*frames)) {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(f.left, len(b))
			f.left -= n
			f.last = b[n-1]
			if b = b[n:]; f.left == 0 && f.have == len(f.head) {
				f.have = 0
				ended(f)
			}
			continue
		}
		n := copy(f.head[f.have:], b)
		f.have += n
		if b = b[n:]; f.have < len(f.head) {
			return
		}
		f.left = int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
		if began(f); f.left == 0 {
			f.have = 0
			ended(f)
		}
	}
}

// fullListener keeps a number of connections open, and closes any more on arrival. In the
// kernel's queue they would wait, without an answer, until connections that an attacker holds
// time out.
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
	return &fullListener{Listener: l, room: b.most, refused: b.metrics.connectionsRefused.WithLabelValues(name)}
}

// BoundConnections returns l with max_connections of the settings, for a listener that Run does not
// serve. A connection more is closed on arrival, and counts in stint_connections_refused_total
// under the listener's name.
func (s *Server) BoundConnections(listener string, l net.Listener) net.Listener {
	b := connectionBounds{s.settings.MaxConnections, s.headerTimeout, s.metrics}
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
		if tcp, ok := c.(*net.TCPConn); ok { // which can do more than a net.Conn
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
