package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/watch"
)

// slowest is the rate in bytes a second that a client must sustain when it sends a body or
// reads a response.
const slowest = 500

// pace cuts off a client that makes no progress. A client may keep the gateway waiting for a total of
// patience. Each byte that moves gives back 1/slowest of a second, but never more than was used. So a client
// that stops is cut off after patience, and so is one that falls behind slowest by patience, in whatever
// pieces it sends. Only the time in which the gateway waits for the client counts, not the upstream's. A nil
// pace has no time limit.
type pace struct {
	patience time.Duration
	cut      func() // is called at most once, and never after stop

	mu      sync.Mutex
	left    time.Duration // of patience
	since   time.Time     // when the current wait began; zero: there is none
	timer   *time.Timer   // nil: there was no wait yet
	expired bool          // cut was called
	stopped bool
}

func newPace(patience time.Duration, cut func()) *pace {
	return &pace{patience: patience, left: patience, cut: cut}
}

// wait records that a call starts to wait for the client.
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

// moved records the end of the call, and how many bytes it moved.
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

// check cuts off the client, if the wait for which the timer was set still lasts.
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

// isExpired reports whether the client was cut off.
func (p *pace) isExpired() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.expired
}

// upload is the body of a request to an upstream. One goroutine reads it.
type upload struct {
	io.ReadCloser
	pace   *pace
	rest   int64       // the rest of its Content-Length; 0: it ends by itself
	ended  atomic.Bool // all of it was read
	closed atomic.Bool // nobody reads it any more
	broken atomic.Bool // it is malformed, or ended before its length
}

// Read is for io.Reader. It returns io.EOF with the last byte: a transport would read on to find the end, and
// break the connection of an upstream that answers meanwhile, because net/http closes the body of an HTTP/1
// request when its answer begins.
func (b *upload) Read(to []byte) (int, error) {
	if b.ended.Load() {
		return 0, io.EOF
	}
	b.pace.wait()
	n, err := b.ReadCloser.Read(to)
	b.pace.moved(n)
	if b.rest > 0 {
		if b.rest -= int64(n); b.rest == 0 && err == nil {
			err = io.EOF
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		b.ended.Store(true)
	case err != nil && !b.closed.Load():
		b.broken.Store(true)
	}
	return n, err
}

// Close is for io.Closer. A transport may call it during Read, which then ends.
func (b *upload) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// closable wraps body, the upload as a ReverseProxy passes it on, so that Close ends a Read. The
// ReverseProxy's Close does not, so a stream whose upstream is gone would go on until its client sends more.
// With HTTP/1, Close would wait for the rest of the body.
func (x *exchange) closable(body io.ReadCloser) io.ReadCloser {
	if body == nil || x.upload == nil || x.http1 {
		return body
	}
	return &closableUpload{body, x.upload}
}

type closableUpload struct {
	io.ReadCloser
	upload *upload
}

// Close is for io.Closer.
func (b *closableUpload) Close() error { return errors.Join(b.ReadCloser.Close(), b.upload.Close()) }

// pacedWriter is a ResponseWriter whose client must keep pace. Bytes count at the end of a Write: a client
// must read each Write, at most a buffer, within patience.
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

// longAgo is a deadline that makes blocked calls return at once.
var longAgo = time.Unix(1, 0)

// keepPace enforces route's body_timeout on the client of r. The caller must serve the returned values
// instead of w and r, and x must stop the pace.
func (g *Gateway) keepPace(route *config.Route, x *exchange, w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	patience := g.Settings.BodyTimeout
	if route.BodyTimeout != nil {
		patience = *route.BodyTimeout
	}
	control := http.NewResponseController(w)
	if r.Body != nil && r.Body != http.NoBody {
		x.http1 = r.ProtoMajor == 1
		x.upload = &upload{ReadCloser: r.Body}
		if x.http1 {
			x.upload.rest = max(0, r.ContentLength)
		}
		r.Body = x.upload
	}
	if patience == 0 {
		return w
	}
	if x.upload != nil {
		x.upload.pace = newPace(patience, func() {
			g.Watch.Metrics.StalledUploads.Inc()
			_ = control.SetReadDeadline(longAgo)
		})
	}
	x.response = &pacedWriter{w, newPace(patience, func() {
		g.Watch.Metrics.StalledResponses.Inc()
		_ = control.SetWriteDeadline(longAgo)
	})}
	return x.response
}

// stopPace ends keepPace before the connection serves another request.
func (x *exchange) stopPace() {
	if x.upload != nil {
		x.upload.pace.stop()
	}
	if x.response != nil {
		x.response.stop()
	}
}

// answersEarly records that an upstream answers. From then on the body may be a conversation, as in gRPC, in
// which a client may be silent. Not with HTTP/1: net/http would wait for the rest of the body before it sends
// the answer, unless the connection is closed.
func (x *exchange) answersEarly(r *http.Response) {
	if x.upload == nil || x.upload.pace == nil || x.upload.ended.Load() || r.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	x.upload.pace.stop()
	if x.http1 {
		r.Header["Connection"] = []string{"close"}
	}
}

// boundRest bounds the time that net/http waits for the rest of the body of an answered HTTP/1
// request, up to 256 KiB of it. The request is no longer in flight then, but its connection still exists.
// net/http removes the deadline when the next request arrives.
func (g *Gateway) boundRest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if r.ProtoMajor != 1 || r.ContentLength == 0 || g.Settings.BodyTimeout == 0 {
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.Settings.BodyTimeout))
	})
}

// responseTimer cancels a request to an upstream when its response takes longer than
// response_timeout. A nil responseTimer has no time limit.
type responseTimer struct {
	timer *time.Timer
	over  atomic.Bool                   // the time is over
	http2 atomic.Pointer[io.ReadCloser] // the body of the response; nil: none yet, or not of HTTP/2
}

func newResponseTimer(timeout time.Duration, cancel context.CancelFunc) *responseTimer {
	t := new(responseTimer)
	t.timer = time.AfterFunc(timeout, func() {
		t.over.Store(true)
		cancel()
		t.end()
	})
	return t
}

// end closes the body of an HTTP/2 response. net/http does not notice a cancelled request while it waits for
// more of the request's body.
func (t *responseTimer) end() {
	if body := t.http2.Load(); body != nil {
		_ = (*body).Close()
	}
}

// watch returns the body of r for a response that the timer may break off.
func (t *responseTimer) watch(r *http.Response, log *watch.Sampled) io.ReadCloser {
	if r.ProtoMajor == 2 {
		body := r.Body
		t.http2.Store(&body)
		if t.isOver() {
			t.end()
		}
	}
	return &timedBody{r.Body, r.Request, t, log}
}

// stop ends the time limit, and reports whether the response kept it.
func (t *responseTimer) stop() bool { return t == nil || t.timer.Stop() }

func (t *responseTimer) isOver() bool { return t != nil && t.over.Load() }

var errResponseTimeout = errors.New("the response took longer than response_timeout")

// timedBody is the body of a response that response_timeout breaks off. ReverseProxy then ends the
// connection or the stream before the end of the body, so that no client takes it for whole.
type timedBody struct {
	io.ReadCloser
	request *http.Request
	timer   *responseTimer
	log     *watch.Sampled
}

// Read is for io.Reader.
func (b *timedBody) Read(to []byte) (int, error) {
	n, err := b.ReadCloser.Read(to)
	if err == nil || errors.Is(err, io.EOF) || !b.timer.isOver() {
		return n, err
	}
	logUpstream(b.log, b.request, "upstream did not end its response in time", errResponseTimeout)
	return n, context.Canceled // a ReverseProxy does not log it again
}
