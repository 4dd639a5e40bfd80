// Package logline logs a line with slog.Default no more often than is useful, and without
// waiting for the log.
package logline

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// every bounds how often one line is logged.
const every = 10 * time.Second

// Line is a line that is logged at most once in 10 s. The zero Line is ready; it must not
// be copied, and may be used from many goroutines at once.
type Line struct {
	next    atomic.Int64 // when it may be logged again, in ns since 1970
	writing atomic.Bool
}

// Log reports whether it logs the line, with err and further attributes as for slog. It does not wait for the
// log, which may hang.
func (l *Line) Log(level slog.Level, text string, err error, attributes ...any) bool {
	now, next := time.Now().UnixNano(), l.next.Load()
	if now < next || !l.next.CompareAndSwap(next, now+int64(every)) || !l.writing.CompareAndSwap(false, true) {
		return false
	}
	log := slog.Default()
	go func() {
		defer l.writing.Store(false)
		log.Log(context.Background(), level, text, append([]any{"error", err}, attributes...)...)
	}()
	return true
}
