package live

import (
	"net/http"
	"time"
)

const (
	// MaxStreams is how many streams of events there are at once.
	MaxStreams = 100
	// writeTimeout is how long a client may take to make room for an event.
	writeTimeout = 10 * time.Second
	// admitEvery is how often a stream checks whether its caller may still read it.
	admitEvery = 5 * time.Second
)

// Stream sends an event each second until the client leaves, l is closed, or admitted returns
// false. It returns false, and has sent nothing, if there are MaxStreams already. rule is as
// for Now.
func (l *Live) Stream(w http.ResponseWriter, r *http.Request, rule string, admitted func() bool) bool {
	select {
	case l.room <- struct{}{}:
	default:
		return false
	}
	defer func() { <-l.room }()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would wait for more
	to := http.NewResponseController(w)
	_ = to.SetReadDeadline(time.Time{}) // the listener's is for a request, not for a stream
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	// After the end of a stream, browsers wait this long before they ask for the next.
	first := append([]byte("retry: 2000\n"), l.eventOf(rule)...)
	for event, looked := first, time.Now(); ; event = l.eventOf(rule) {
		_ = to.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := w.Write(event); err != nil {
			return true
		}
		if err := to.Flush(); err != nil {
			return true
		}
		select {
		case <-r.Context().Done():
			return true
		case <-l.done:
			return true
		case <-ticker.C:
		}
		if time.Since(looked) >= admitEvery {
			if looked = time.Now(); !admitted() {
				return true
			}
		}
	}
}
