package door

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/server/internal/watch"
)

// CutOff counts what a stop cuts off: requests in flight when the wait ends, and upgraded connections.
type CutOff struct {
	Begun    atomic.Bool  // requests that end from now on were cut off
	Upgraded atomic.Int64 // open upgraded connections

	mu                 sync.Mutex
	requests, upgrades int64    // were cut off
	examples           []string // the first few of both
}

// mostExamples is the number of requests in the log line about what was cut off.
const mostExamples = 5

// Left records the end of a request, if it was cut off. upgraded: its connection was upgraded.
func (c *CutOff) Left(r *http.Request, upgraded bool) {
	if !c.Begun.Load() || r.Context().Err() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if upgraded {
		c.upgrades++
	} else {
		c.requests++
	}
	if len(c.examples) < mostExamples {
		c.examples = append(c.examples, watch.Shown(r.Method)+" "+watch.Shown(r.Host)+" "+watch.Shown(PathOf(r)))
	}
}

// PathOf is the path of a request as it was sent, without the query, which may hold secrets.
func PathOf(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return path
}

// Cut calls cut to end the requests in flight, waits until they have ended, but no longer than patience, and
// returns how many requests and upgraded connections were cut off, with a few examples.
func (c *CutOff) Cut(cut func(), inFlight func() int64, patience time.Duration) (requests, upgrades int64, examples []string) {
	c.Begun.Store(true)
	cut()
	for deadline := time.Now().Add(patience); inFlight()+c.Upgraded.Load() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests + inFlight(), c.upgrades + c.Upgraded.Load(), c.examples
}
