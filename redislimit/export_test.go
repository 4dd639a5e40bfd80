package redislimit

import (
	"strings"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// A refund that a busy machine delays for a second is not lost, where a test compares counts.
func init() { refundTimeout = 20 * time.Second }

// ClockOfInstants makes the instants of requests stand for the server's clock, until restore: what has
// run out is dropped at once, so they must not step back. No other test may run meanwhile.
func ClockOfInstants() (restore func()) {
	before := takeScript
	text := strings.Replace(algo.TakeScript, "local given = ARGV[1] ~= ''\nlocal clock\nif given then", "local given = false\nlocal clock\nif ARGV[1] ~= '' then", 1)
	if text == algo.TakeScript {
		panic("the script reads its clock in another way")
	}
	takeScript = conn.NewScript(text)
	return func() { takeScript = before }
}

// Waiting is how many asks and calls wait until others have been answered, and how many calls of the
// server are under way.
func (s *Store) Waiting() (asks, calls int) {
	s.merger.mu.Lock()
	defer s.merger.mu.Unlock()
	if q := s.merger.queues[0]; q != nil {
		return q.asks, q.calls
	}
	return 0, 0
}

// Documents is the type that Store.Documents returns.
type Documents = documents

const MaxDocument = maxDocument
