package server

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/server/config"
)

// slowest is how many bytes a second a client must keep up in the long run, where it
// sends a body or takes a response.
const slowest = 500

// pace cuts off a client that makes no progress. A client may keep the gateway waiting
// for as long as its patience. Each byte that moves gives 1/slowest of a second of that
// back, and never more than was used. So a client that stops is cut off after patience,
// and so is one that falls behind slowest by patience, however it divides its bytes. Only
// the time of reads and writes counts, in which the gateway waits for the client, and not
// what an upstream takes. With a nil pace, a client has all the time there is.
type pace struct {
	patience time.Duration
	cut      func() // is called once at most, and never after stop

	mu      sync.Mutex
	left    time.Duration // of patience
	since   time.Time     // when the wait began that goes on; zero: none does
	timer   *time.Timer   // nil: there was no wait yet
	expired bool          // cut was called
	stopped bool
}

func newPace(patience time.Duration, cut func()) *pace {
	return &pace{patience: patience, left: patience, cut: cut}
}

// wait notes that a call waits for the client from now on.
func (p *pace) wait() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.since = time.Now()
	if p.timer == nil {
		p.timer = time.AfterFunc(p.left, p.check)
	} else {
		p.timer.Reset(p.left)
	}
}

// moved notes that the call is over, and how many bytes have moved.
func (p *pace) moved(bytes int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return
	}
	p.timer.Stop()
	p.left = min(p.patience, p.left-time.Since(p.since)+time.Duration(bytes)*time.Second/slowest)
	p.since = time.Time{}
}

// check cuts the client off, if the wait for which the timer was set goes on.
func (p *pace) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() || p.expired || time.Since(p.since) < p.left {
		return
	}
	p.expired = true
	p.cut()
}

// stop ends the supervision.
func (p *pace) stop() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped, p.since = true, time.Time{}
	if p.timer != nil {
		p.timer.Stop()
	}
}

// isExpired tells whether the client was cut off.
func (p *pace) isExpired() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.expired
}

// upload is the body of a request that goes to an upstream. One goroutine reads it.
type upload struct {
	io.ReadCloser
	pace   *pace
	ended  atomic.Bool // all of it has come
	closed atomic.Bool // nobody wants more of it
	broken atomic.Bool // it is malformed, or ended before its length
}

// Read is for io.Reader.
func (b *upload) Read(to []byte) (int, error) {
	b.pace.wait()
	n, err := b.ReadCloser.Read(to)
	b.pace.moved(n)
	switch {
	case errors.Is(err, io.EOF):
		b.ended.Store(true)
	case err != nil && !b.closed.Load():
		b.broken.Store(true)
	}
	return n, err
}

// Close is for io.Closer. A transport calls it also while Read goes on, which that ends.
func (b *upload) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// pacedWriter is a ResponseWriter whose client must keep pace. Bytes count when a Write
// ends: a client must take what is written at once, at most a buffer, within patience.
type pacedWriter struct {
	http.ResponseWriter
	*pace
}

// Write is for http.ResponseWriter.
func (w *pacedWriter) Write(b []byte) (int, error) {
	w.wait()
	n, err := w.ResponseWriter.Write(b)
	w.moved(n)
	return n, err
}

// FlushError is for http.ResponseController.
func (w *pacedWriter) FlushError() error {
	w.wait()
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.moved(0)
	return err
}

// Unwrap is for http.ResponseController.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// longAgo is a deadline that makes what waits return at once.
var longAgo = time.Unix(1, 0)

// keepPace has the client of r keep pace with route's body_timeout. What it returns is
// to be served instead of w and r, and to be stopped by x.
func (s *Server) keepPace(route *config.Route, x *exchange, w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	patience := s.settings.BodyTimeout
	if route.BodyTimeout != nil {
		patience = *route.BodyTimeout
	}
	control := http.NewResponseController(w)
	if r.Body != nil && r.Body != http.NoBody {
		x.http1 = r.ProtoMajor == 1
		x.body = &upload{ReadCloser: r.Body}
		r.Body = x.body
	}
	if patience == 0 {
		return w
	}
	if x.body != nil {
		x.body.pace = newPace(patience, func() {
			s.metrics.stalledUploads.Inc()
			_ = control.SetReadDeadline(longAgo)
		})
	}
	x.response = &pacedWriter{w, newPace(patience, func() {
		s.metrics.stalledResponses.Inc()
		_ = control.SetWriteDeadline(longAgo)
	})}
	return x.response
}

// stopPace ends that, before the connection serves another request.
func (x *exchange) stopPace() {
	if x.body != nil {
		x.body.pace.stop()
	}
	if x.response != nil {
		x.response.stop()
	}
}

// answersEarly notes that an upstream answers. From here on the body may be a
// conversation, such as gRPC's, in which a client is silent for as long as both like. With
// HTTP/1 it cannot be: net/http would wait for the rest of the body before it sends the
// answer, unless the connection is closed.
func (x *exchange) answersEarly(r *http.Response) {
	if x.body == nil || x.body.pace == nil || x.body.ended.Load() || r.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	x.body.pace.stop()
	if x.http1 {
		r.Header["Connection"] = []string{"close"}
	}
}

// boundRest is next with an end to what net/http waits for once a request of HTTP/1 has
// been answered: the rest of its body, up to 256 KiB of it. The request is not under way
// then any more; its connection is. net/http itself ends the deadline when the next
// request comes.
func (s *Server) boundRest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if r.ProtoMajor != 1 || r.ContentLength == 0 || s.settings.BodyTimeout == 0 {
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.settings.BodyTimeout))
	})
}
