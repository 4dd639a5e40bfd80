package httplimit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint/internal/usage"
)

// Response describes a response when its request has ended; see Answer.OnEnd.
type Response struct {
	// Status is the final status; 101 if the handler hijacked the connection; 0 if there was
	// none, because the handler panicked first.
	Status int
	// Header has the headers of the response and its trailers.
	Header http.Header
	// Bytes is how many bytes of the body were written, or of a hijacked connection.
	Bytes int64
	// Took is how long the request ran since it was decided.
	Took time.Duration

	usage *usage.Reader // nil: nothing was to be read
}

// JSON returns the last value that the response had at one of Answer.Usage: a string, bool, int64
// or float64, or a []any or map[string]any of those. A path has names of object members and indices
// of list elements. The response is one JSON value, several in a row, in lines or otherwise, or
// server-sent events, whatever its content type; it may be compressed by gzip, deflate, br or zstd.
// If it is a list, path is also looked up in each of its objects. JSON is not ok if the response had
// no value or only null there, or one of more than 64 KiB, or could not be read.
func (r *Response) JSON(path []string) (value any, ok bool) {
	if r.usage == nil {
		return nil, false
	}
	return r.usage.Value(path)
}

// Passed returns how much of the response JSON has read: the bytes without compression, and the
// number of server-sent events, lines or other parts that are JSON, or of objects if it is a list.
// Both are 0 if JSON reads nothing.
func (r *Response) Passed() (bytes, events int64) {
	if r.usage == nil {
		return 0, 0
	}
	return r.usage.Passed()
}

// Unreadable returns why JSON could not read the response to its end. nil: it could, or had
// nothing to read.
func (r *Response) Unreadable() error {
	if r.usage == nil {
		return nil
	}
	return r.usage.Err()
}

// watchedWriter calls an Answer's OnStatus and OnEnd. Unwrap gives http.ResponseController
// the methods that it lacks.
type watchedWriter struct {
	http.ResponseWriter
	ctx      context.Context
	onStatus func(context.Context, int)       // nil: already called
	onEnd    func(context.Context, *Response) // nil: nothing is called
	paths    [][]string
	start    time.Time

	mu       sync.Mutex // guards the rest
	running  int        // the handler, and the connection that it hijacked
	response Response
}

// callTimeout bounds how long a response waits for Answer.OnStatus and Answer.OnEnd.
const callTimeout = time.Second

func watch(w http.ResponseWriter, r *http.Request, a *Answer) *watchedWriter {
	watched := &watchedWriter{ResponseWriter: w, ctx: r.Context(), onStatus: a.OnStatus, onEnd: a.OnEnd, paths: a.Usage, running: 1}
	if a.OnEnd != nil {
		watched.start = time.Now()
	}
	return watched
}

// final calls onStatus if status is the first final one.
func (w *watchedWriter) final(status int) {
	if status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	if onStatus := w.onStatus; onStatus != nil {
		w.onStatus = nil
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), callTimeout)
		defer cancel()
		onStatus(ctx, status)
	}
	if w.onEnd == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.response.Status != 0 {
		return
	}
	w.response.Status = status
	if h := w.Header(); len(w.paths) > 0 && w.running > 0 {
		w.response.usage = usage.New(w.paths, h.Get("Content-Type"), strings.Join(h.Values("Content-Encoding"), ","))
	}
}

// passed records that b was written.
func (w *watchedWriter) passed(b []byte) {
	if w.onEnd == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.response.Bytes += int64(len(b))
	if w.response.usage != nil {
		w.response.usage.Write(b)
	}
}

// leave records that the handler has returned, or that the connection it hijacked is closed. It
// calls onEnd after both.
func (w *watchedWriter) leave() {
	if w.onEnd == nil {
		return
	}
	w.mu.Lock()
	w.running--
	ended := w.running == 0
	response := w.response // another goroutine may still write to a connection that this one closes
	w.mu.Unlock()
	if !ended {
		return
	}
	if response.usage != nil {
		response.usage.Close()
	}
	response.Header, response.Took = withTrailers(w.Header()), time.Since(w.start)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), callTimeout)
	defer cancel()
	w.onEnd(ctx, &response)
}

// withTrailers returns h with the trailers that were not announced under their own names, after the
// headers of these. net/http has them under http.TrailerPrefix.
func withTrailers(h http.Header) http.Header {
	var all http.Header
	for name, lines := range h {
		trailer, ok := strings.CutPrefix(name, http.TrailerPrefix)
		if !ok {
			continue
		}
		if all == nil {
			all = maps.Clone(h)
		}
		delete(all, name)
		name = http.CanonicalHeaderKey(trailer)
		all[name] = slices.Concat(all[name], lines)
	}
	if all == nil {
		return h
	}
	return all
}

// WriteHeader implements http.ResponseWriter.
func (w *watchedWriter) WriteHeader(status int) {
	w.final(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *watchedWriter) Write(b []byte) (int, error) {
	w.final(http.StatusOK)
	n, err := w.ResponseWriter.Write(b)
	w.passed(b[:n])
	return n, err
}

// ReadFrom implements io.ReaderFrom, so that net/http can send a file without copying
// it through the program.
func (w *watchedWriter) ReadFrom(r io.Reader) (int64, error) {
	w.final(http.StatusOK)
	if w.onEnd != nil && len(w.paths) > 0 {
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	n, err := io.Copy(w.ResponseWriter, r)
	if w.onEnd != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.response.Bytes += n
	}
	return n, err
}

// Flush implements http.Flusher.
func (w *watchedWriter) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *watchedWriter) FlushError() error {
	w.final(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker. After it the status is unknown.
func (w *watchedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return conn, buffer, err
	}
	w.onStatus = nil
	if w.onEnd == nil {
		return conn, buffer, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running++
	w.response.Status = http.StatusSwitchingProtocols
	conn = &watchedConn{Conn: conn, of: w}
	return conn, bufio.NewReadWriter(buffer.Reader, bufio.NewWriterSize(conn, buffer.Writer.Size())), nil
}

// Unwrap is for http.ResponseController.
func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// watchedConn is a connection that a handler hijacked. The request goes on until it is closed.
type watchedConn struct {
	net.Conn
	of     *watchedWriter
	closed sync.Once
}

// Write implements net.Conn.
func (c *watchedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.of.passed(b[:n])
	return n, err
}

// CloseWrite closes the connection for writing, where it can be half closed.
func (c *watchedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(c.of.leave)
	return err
}
