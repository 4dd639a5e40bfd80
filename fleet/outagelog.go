package stint

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// outageLog logs with slog.Default that a Store does not decide: for a Fallback that has
// nobody else to tell.
type outageLog struct {
	failures, openings logLine
	told               atomic.Bool // that the breaker opened
}

// called is a Fallback's Called.
func (l *outageLog) called(_ time.Duration, err error) {
	if err != nil {
		l.failures.log(slog.LevelWarn, "stint: the store does not decide, so OnError does", err)
	}
}

// changed is a Breaker's Changed.
func (l *outageLog) changed(to BreakerState, why error) {
	switch {
	case to == Open && l.openings.log(slog.LevelError, "stint: the store is not asked until it answers again; OnError decides", why):
		l.told.Store(true)
	case to == PartlyOpen && l.openings.log(slog.LevelError, "stint: a server of the store is not asked until it answers again; OnError decides about its keys", why):
		l.told.Store(true)
	case to == Closed && l.told.Swap(false):
		go slog.Default().Info("stint: the store decides again")
	}
}

// logEvery bounds how often one line is logged.
const logEvery = 10 * time.Second

// logLine is a line that is logged at most once in logEvery.
type logLine struct {
	next    atomic.Int64 // when it may be logged again, in ns since 1970
	writing atomic.Bool
}

// log tells whether it logs the line, which it does not wait for: a log may hang.
func (l *logLine) log(level slog.Level, text string, err error) bool {
	now, next := time.Now().UnixNano(), l.next.Load()
	if now < next || !l.next.CompareAndSwap(next, now+int64(logEvery)) || !l.writing.CompareAndSwap(false, true) {
		return false
	}
	log := slog.Default()
	go func() {
		defer l.writing.Store(false)
		log.Log(context.Background(), level, text, "error", err)
	}()
	return true
}
