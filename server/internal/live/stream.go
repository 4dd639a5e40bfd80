package live

import (
	"net/http"
	"sync"
	"time"
)

const (
	// MaxStreams is how many streams of events there are at once.
	MaxStreams = 100
	// maxStreamsOfOne is how many of them one caller may have, so that there is room for others.
	maxStreamsOfOne = MaxStreams * 3 / 4
	// writeTimeout is how long a client may take to make room for an event.
	writeTimeout = 10 * time.Second
	// admitEvery is how often a stream checks whether its caller may still read it.
	admitEvery = 5 * time.Second
)

// streams counts the open streams by their callers.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// begin takes a place for a stream of a caller, and reports whether there was one.
func (s *streams) begin(caller string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= MaxStreams || s.of[caller] >= maxStreamsOfOne {
		return false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[caller]++
	return true
}

// end frees the place of a stream of a caller.
func (s *streams) end(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[caller]--; s.of[caller] == 0 {
		delete(s.of, caller)
	}
}

// Stream sends an event each second until the client leaves, l is closed, or admitted returns
// false. It returns false, and has sent nothing, if there are MaxStreams already, or if three
// quarters of them are this caller's. rule is as for Now.
func (l *Live) Stream(w http.ResponseWriter, r *http.Request, caller, rule string, admitted func() bool) bool {
	if !l.streams.begin(caller) {
		return false
	}
	defer l.streams.end(caller)
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
