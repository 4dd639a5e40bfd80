package httplimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// statusWriter tells the status of a response before it is written. What it does
// not have itself, http.ResponseController finds behind Unwrap.
type statusWriter struct {
	http.ResponseWriter
	ctx  context.Context
	tell func(context.Context, int) // nil: done
}

// onStatusTimeout bounds how long a response waits for what its status leads to.
const onStatusTimeout = time.Second

// final tells the status if it is the first that is final.
func (w *statusWriter) final(status int) {
	tell := w.tell
	if tell == nil || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.tell = nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), onStatusTimeout)
	defer cancel()
	tell(ctx, status)
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.final(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(b []byte) (int, error) {
	w.final(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom: with it, net/http sends a file without
// copying it through the program.
func (w *statusWriter) ReadFrom(r io.Reader) (int64, error) {
	w.final(http.StatusOK)
	return io.Copy(w.ResponseWriter, r)
}

// Flush implements http.Flusher.
func (w *statusWriter) Flush() { _ = w.FlushError() }

// FlushError is Flush for http.ResponseController.
func (w *statusWriter) FlushError() error {
	w.final(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker. What is said over the connection then is unknown.
func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.tell = nil
	}
	return conn, buffer, err
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
