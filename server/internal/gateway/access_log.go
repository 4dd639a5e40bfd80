package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/door"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/internal/watch"
)

// access has the fields of the access log line of a gateway request, and is its ResponseWriter.
type access struct {
	http.ResponseWriter
	start  time.Time
	status int   // 0: none yet
	bytes  int64 // of the response's body
	x      *exchange

	outcome, rule, by, id string
	limit                 string // that decided; empty: none
	remaining, used       int64  // of it
}

type accessKey struct{}

// logAccess logs each request that next serves, at its end. It returns next if there is no access log.
func (g *Gateway) logAccess(next http.Handler) http.Handler {
	if !g.Settings.Log.Access || !g.AccessLog.Enabled(context.Background(), slog.LevelInfo) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &access{ResponseWriter: w, start: time.Now()}
		in := r.WithContext(context.WithValue(r.Context(), accessKey{}, a))
		ended := false
		defer func() { g.AccessLog.LogAttrs(in.Context(), slog.LevelInfo, "request", g.accessAttrs(a, in, ended)...) }()
		next.ServeHTTP(a, in)
		ended = true
	})
}

// accessOf returns the access of a request; nil: it is not logged.
func accessOf(r *http.Request) *access {
	a, _ := r.Context().Value(accessKey{}).(*access)
	return a
}

// decided records the decision about a's request. a may be nil.
func (a *access) decided(t *decide.Request) {
	if a == nil {
		return
	}
	a.outcome = t.Kind.String()
	if t.Err != nil {
		return
	}
	a.by, a.id = decide.SayBy(&t.Decision), t.Identify()
	if t.Rule != nil {
		a.rule = t.Rule.Name
	}
	if t.Limit != nil {
		a.limit, a.remaining, a.used = t.Limit.Terms(), t.Remaining, t.Used()
	}
}

// answersPreflight records that a's request is a preflight that passed the rules and goes no further. a may
// be nil.
func (a *access) answersPreflight() {
	if a != nil {
		a.outcome = "preflight"
	}
}

// accessAttrs are the fields of the line for r. ended: its handler returned; otherwise it panicked, to break
// off the response.
func (g *Gateway) accessAttrs(a *access, r *http.Request, ended bool) []slog.Attr {
	status, outcome, upstream := a.status, a.outcome, ""
	if x := a.x; x != nil {
		if x.upgraded {
			status = http.StatusSwitchingProtocols
		}
		if x.out != nil {
			upstream = x.out.Host
		}
	}
	switch {
	case status == 0 && ended:
		status = http.StatusOK // net/http writes it for a handler that wrote nothing
	case outcome == "" && status == http.StatusServiceUnavailable:
		outcome = kind.Overloaded.String() // there was no room for it
	case outcome == "":
		outcome = kind.Malformed.String()
	}
	attrs := append(make([]slog.Attr, 0, 20),
		slog.String("method", watch.Loggable(r.Method)), slog.String("host", watch.Loggable(r.Host)), slog.String("path", watch.Loggable(door.PathOf(r))), slog.String("proto", r.Proto),
		slog.Int("status", status), slog.Int64("bytes", a.bytes), slog.Float64("seconds", time.Since(a.start).Seconds()))
	for _, f := range [...]struct{ name, text string }{
		{"outcome", outcome}, {"rule", a.rule}, {"by", a.by}, {"upstream", upstream}, {"client", g.Watch.Refusals.Client(g.ClientOf(r))},
		{"request_id", watch.RequestID(r.Header["X-Request-Id"])}, {"decision", a.id},
	} {
		if f.text != "" {
			attrs = append(attrs, slog.String(f.name, f.text))
		}
	}
	if a.limit != "" {
		attrs = append(attrs, slog.String("limit", a.limit), slog.Int64("remaining", a.remaining), slog.Int64("used", a.used))
	}
	if !ended || r.Context().Err() != nil {
		attrs = append(attrs, slog.Bool("cut", true))
	}
	return attrs
}

// WriteHeader is for http.ResponseWriter.
func (a *access) WriteHeader(status int) {
	if a.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write is for http.ResponseWriter.
func (a *access) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(b)
	a.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (a *access) Unwrap() http.ResponseWriter { return a.ResponseWriter }
