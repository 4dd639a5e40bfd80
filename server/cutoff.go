package server

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// cutOff is what a stop cuts off: requests that are still under way when it waits no
// longer, and connections that were upgraded.
type cutOff struct {
	begun    atomic.Bool  // what ends now was cut off
	upgraded atomic.Int64 // connections that were upgraded and are open

	mu                 sync.Mutex
	requests, upgrades int64    // that were cut off
	examples           []string // the first few of both
}

// mostExamples is how many requests that are cut off the log names.
const mostExamples = 5

// left notes that a request has ended, if that is because it was cut off. upgraded
// tells that its connection was.
func (c *cutOff) left(r *http.Request, upgraded bool) {
	if !c.begun.Load() || r.Context().Err() == nil {
		return
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	c.mu.Lock()
	defer c.mu.Unlock()
	if upgraded {
		c.upgrades++
	} else {
		c.requests++
	}
	if len(c.examples) < mostExamples {
		c.examples = append(c.examples, shown(r.Method)+" "+shown(r.Host)+" "+shown(path))
	}
}

// cutTimeout bounds how long requests that are cut off may take to end.
const cutTimeout = time.Second

// cutRest ends by cut what is still under way, and tells of it in one line.
func (s *Server) cutRest(cut context.CancelFunc) {
	s.cutOff.begun.Store(true)
	cut()
	requests := s.admission.inFlight
	for deadline := time.Now().Add(cutTimeout); requests()+s.cutOff.upgraded.Load() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	c := &s.cutOff
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests, c.upgrades = c.requests+requests(), c.upgrades+c.upgraded.Load()
	if c.requests+c.upgrades > 0 {
		s.log.Warn("stopped, and cut off what was still open", "requests", c.requests, "upgraded_connections", c.upgrades,
			"stop_timeout", s.settings.StopTimeout.String(), "among_them", strings.Join(c.examples, ", "))
	}
}
