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

// Watch decides like d, and also counts responses with the given statuses as violations
// of the key under the penalty p: 401 to ban clients that guess passwords, 404 to ban
// scanners. While a ban runs, it refuses the key's requests. It does not watch requests
// whose key is "". nil means, for d, that only bans refuse and no headers are set; for l,
// a Limiter in memory. It panics without key, p or statuses. It asks l as By does.
//
//	decide := httplimit.Watch(nil, &limiter, clients.Key, penalty, http.StatusUnauthorized)
//
// Each request costs a call of the store before d's own. Each violation costs another
// while the response waits; if that call fails, the violation is lost.
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
	l = stint.Internal().WithFallback(l)
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
				_, _ = l.Violate(ctx, k, p) // nobody could handle the error
			}
		}
		return a, err
	}
}

// statusWriter calls onStatus before it writes the status of a response. Unwrap gives
// http.ResponseController the methods that it lacks.
type statusWriter struct {
	http.ResponseWriter
	ctx      context.Context
	onStatus func(context.Context, int) // nil: already called
}

// onStatusTimeout bounds how long a response waits for Answer.OnStatus.
const onStatusTimeout = time.Second

// final calls onStatus if status is the first final one.
func (w *statusWriter) final(status int) {
	onStatus := w.onStatus
	if onStatus == nil || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.onStatus = nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), onStatusTimeout)
	defer cancel()
	onStatus(ctx, status)
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

// ReadFrom implements io.ReaderFrom, so that net/http can send a file without copying
// it through the program.
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

// Hijack implements http.Hijacker. After it the status is unknown.
func (w *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.onStatus = nil
	}
	return conn, buffer, err
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
