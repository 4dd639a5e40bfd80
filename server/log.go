package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint/server/internal/auth"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/rules"
)

// sampledLog logs failures that may last, and lines that clients can cause. It logs the first line of each
// kind at once, and then one in each sampleEvery, with the number of lines skipped. Otherwise a client with a
// thousand requests could write a thousand lines and hide others among them.
//
// Kinds are fixed texts and names from the settings, never parts of a request. It may be used
// from many goroutines at once.
type sampledLog struct {
	to *slog.Logger
	// hide returns a line of net/http without data that the log must not show. nil: lines are logged as they
	// are.
	hide func(line string) string

	mu    sync.Mutex
	kinds map[string]*sample
}

// sample is a kind of line.
type sample struct {
	logged   time.Time // the last one
	unlogged int64     // since then
}

// sampleEvery is how often a kind of line is logged.
const sampleEvery = 10 * time.Second

// due reports whether to log a line of a kind now, and how many were skipped since the last
// one.
func (l *sampledLog) due(kind string) (unlogged int64, ok bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kind]
	switch {
	case k == nil:
		if l.kinds == nil {
			l.kinds = map[string]*sample{}
		}
		k = new(sample)
		l.kinds[kind] = k
	case now.Sub(k.logged) < sampleEvery:
		k.unlogged++
		return 0, false
	}
	unlogged = k.unlogged
	k.logged, k.unlogged = now, 0
	return unlogged, true
}

// log logs a line of a kind, if one is due.
func (l *sampledLog) log(level slog.Level, kind, text string, args ...any) {
	unlogged, ok := l.due(kind)
	if !ok {
		return
	}
	if unlogged > 0 {
		args = append(args, "unlogged", unlogged)
	}
	l.to.Log(context.Background(), level, text, args...)
}

// failure logs a failure that may last.
func (l *sampledLog) failure(text string, err error) {
	l.log(slog.LevelError, text, text, "error", err)
}

// storeFailure logs a failure of the store.
func (l *sampledLog) storeFailure(err error) { l.failure(decide.NoStore, err) }

// upstream logs what is wrong with the upstream of r.
func (l *sampledLog) upstream(r *http.Request, what string, err error) {
	x := exchangeOf(r)
	route := x.route.String()
	l.log(slog.LevelWarn, what+" "+route, what, "route", route, "host", shown(r.Host), "path", shown(x.target.RawPath), "error", err)
}

// overloaded logs that requests are refused because this instance is overloaded. reason is as in
// the metric.
func (l *sampledLog) overloaded(reason string) {
	l.log(slog.LevelWarn, "overloaded: "+reason, "this instance is overloaded, and refuses requests", "reason", reason)
}

// ambiguity logs for which header or parameter a request was refused, if err is about that. The client does
// not see it.
func (l *sampledLog) ambiguity(err error) {
	var a *rules.AmbiguousError
	if errors.As(err, &a) {
		l.log(slog.LevelInfo, "ambiguous", "a request is refused, because servers read it in different ways", "error", a)
	}
}

// refusedCaller logs that a caller of an API was refused.
func (l *sampledLog) refusedCaller(a *auth.Authenticator, r *http.Request, who auth.Caller, err error) {
	text := "the " + a.API() + " API refused a caller"
	args := []any{"address", r.RemoteAddr, "why", err}
	if who.Name != "" {
		args = append(args, "name", who.Name)
	}
	l.log(slog.LevelWarn, text, text, args...)
}

// errorKinds are the beginnings of net/http's lines that are kinds of their own. All other lines are one
// kind.
var errorKinds = [...]string{
	"http: TLS handshake error", "http: panic serving", "http: Accept error", "http: superfluous response",
	"http: URL query contains semicolon", "http2: ", "httputil: ReverseProxy read error", "suppressing panic",
}

// Write logs a line of net/http or of another user of a log.Logger. Anyone who can connect can
// cause most of them without a token. It implements io.Writer.
func (l *sampledLog) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	kind := "net/http"
	for _, k := range errorKinds {
		if strings.HasPrefix(text, k) {
			kind = k
			break
		}
	}
	if l.hide != nil {
		text = l.hide(text)
	}
	l.log(slog.LevelWarn, kind, text)
	return len(line), nil
}
