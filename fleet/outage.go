package fleet

import (
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/logline"
)

// outageLog logs for a Fallback without Called and Breaker.Changed.
type outageLog struct {
	failures, openings logline.Line
	logged             atomic.Bool // the opened breaker was logged
}

// called logs why a call about r failed; a nil err: it did not.
func (l *outageLog) called(r *stint.Request, err error) {
	if err != nil && l != nil {
		l.failures.Log(slog.LevelWarn, "stint: the store does not decide; OnError decides instead", err, "key", strings.Clone(r.Asks[0].Key))
	}
}

func (l *outageLog) changed(to BreakerState, why error) {
	switch {
	case to == Open && l.openings.Log(slog.LevelError, "stint: circuit breaker open: the store is not asked until it answers again; OnError decides instead", why):
		l.logged.Store(true)
	case to == PartlyOpen && l.openings.Log(slog.LevelError, "stint: circuit breaker open: a server of the store is not asked until it answers again; OnError decides about its keys", why):
		l.logged.Store(true)
	case to == Closed && l.logged.Swap(false):
		go slog.Default().Info("stint: the store decides again")
	}
}
