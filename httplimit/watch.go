package httplimit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/stintdev/stint"
)

// Watch is d, and beside it takes responses with certain statuses for violations
// of a key under a penalty: such as 401, to ban who guesses passwords, or 404, to
// ban who looks for holes. While a ban runs, requests of the key are refused; else d
// decides. d may be nil: nothing but a ban refuses then, and no headers tell of
// limits. Where the key is "", nobody is watched. l may be nil: one in memory. It
// panics if key, p or statuses are missing. l is asked as By does.
//
//	decide := httplimit.Watch(nil, &limiter, clients.Key, penalty, http.StatusUnauthorized)
//
// To see whether a ban runs takes a call of the store, before d's own. Counting a
// violation takes another, while the response waits; if it fails, that violation is
// lost.
func Watch(d Decide, l *stint.Limiter, key Key, p *stint.Penalty, statuses ...int) Decide {
	if key == nil || p == nil || len(statuses) == 0 {
		panic("httplimit: Watch needs a key, a penalty and statuses")
	}
	if d == nil {
		d = func(*http.Request, time.Duration) (Answer, error) { return Answer{Unlimited: true}, nil }
	}
	if l == nil {
		l = new(stint.Limiter)
	}
	l = l.WithFallback()
	return func(r *http.Request, hold time.Duration) (Answer, error) {
		k := key(r)
		if k == "" {
			return d(r, hold)
		}
		ban, err := l.Take(r.Context(), &stint.Request{Asks: []stint.Ask{{Key: k, Penalty: p}}}, nil)
		if err != nil {
			return Answer{}, fmt.Errorf("penalty %s: %w", p.Spec().Name, err)
		}
		if !ban.Allowed {
			return Answer{Decision: ban}, nil
		}
		a, err := d(r, hold)
		before := a.OnStatus
		a.OnStatus = func(ctx context.Context, status int) {
			if before != nil {
				before(ctx, status)
			}
			if slices.Contains(statuses, status) {
				_, _ = l.Violate(ctx, k, p) // nobody is there to be told
			}
		}
		return a, err
	}
}

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
