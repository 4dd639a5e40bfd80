package watch

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// Sampled logs failures that may last, and lines that clients can cause. It logs the first line of each
// kind at once, and then one in each sampleEvery, with the number of lines skipped. Otherwise a client with a
// thousand requests could write a thousand lines and hide others among them.
//
// Kinds are fixed texts and names from the settings, never parts of a request. It may be used
// from many goroutines at once.
type Sampled struct {
	To *slog.Logger
	// Hide returns a line of net/http without data that the log must not show. nil: lines are logged as they
	// are.
	Hide func(line string) string

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
func (l *Sampled) due(kind string) (unlogged int64, ok bool) {
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

// Log logs a line of a kind, if one is due.
func (l *Sampled) Log(level slog.Level, kind, text string, args ...any) {
	unlogged, ok := l.due(kind)
	if !ok {
		return
	}
	if unlogged > 0 {
		args = append(args, "unlogged", unlogged)
	}
	l.To.Log(context.Background(), level, text, args...)
}

// Failure logs a failure that may last.
func (l *Sampled) Failure(text string, err error) {
	l.Log(slog.LevelError, text, text, "error", err)
}

// Overloaded logs that requests are refused because this instance is overloaded. reason is as in
// the metric.
func (l *Sampled) Overloaded(reason string) {
	l.Log(slog.LevelWarn, "overloaded: "+reason, "this instance is overloaded, and refuses requests", "reason", reason)
}

// Ambiguity logs for which header or parameter a request was refused, if err is about that. The client does
// not see it.
func (l *Sampled) Ambiguity(err error) {
	var a *rules.AmbiguousError
	if errors.As(err, &a) {
		l.Log(slog.LevelInfo, "ambiguous", "a request is refused, because servers read it in different ways", "error", a)
	}
}

// errorKinds are the beginnings of net/http's lines that are kinds of their own. All other lines are one
// kind.
var errorKinds = [...]string{
	"http: TLS handshake error", "http: panic serving", "http: Accept error", "http: superfluous response",
	"http: URL query contains semicolon", "http2: ", "httputil: ReverseProxy read error", "suppressing panic",
}

// Write logs a line of net/http or of another user of a log.Logger. Anyone who can connect can
// cause most of them without a token. It implements io.Writer.
func (l *Sampled) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	kind := "net/http"
	for _, k := range errorKinds {
		if strings.HasPrefix(text, k) {
			kind = k
			break
		}
	}
	if l.Hide != nil {
		text = l.Hide(text)
	}
	l.Log(slog.LevelWarn, kind, text)
	return len(line), nil
}
