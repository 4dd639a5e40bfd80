package redislimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/algo"
)

// The server's clock decides in which window of a calendar a request is. The request brings three
// windows: the current one by this instance's clock, the one before and the one after. If the
// server's clock is in none of them, nothing is decided, and the request is sent again with the
// windows around that clock; later requests bring those, too.

// around returns p with the windows for a request of b.
func (s *Store) around(b *batch, p *algo.Plan) *algo.Plan {
	if p.Calendar == nil {
		return p
	}
	now := b.at.UnixMicro()
	if b.at.IsZero() {
		now = time.Now().UnixMicro() + s.ahead.Load()
	}
	return p.Around(max(0, now))
}

// mostSent is how often at most a request is sent. The second time it has the right windows, unless
// clocks of a Cluster's nodes are a window apart.
const mostSent = 4

// outsideError means that the server's clock was in none of the request's windows, so nothing
// was charged.
type outsideError struct {
	clock int64 // µs
}

func (e *outsideError) Error() string {
	return fmt.Sprintf("redislimit: the server's clock, %s, differs by more than a window of the calendar each time it is asked",
		time.UnixMicro(e.clock).UTC().Format(time.RFC3339))
}

func (e *outsideError) Unwrap() error { return fleet.ErrNotCharged }

// outside reports whether err is an outsideError, and if so, notes how far the server's clock is
// ahead.
func (s *Store) outside(err error) bool {
	if err == nil {
		return false
	}
	var e *outsideError
	if !errors.As(err, &e) {
		return false
	}
	s.ahead.Store(e.clock - time.Now().UnixMicro())
	return true
}

// takeMerged takes r, and sends it again after an outsideError.
func (s *Store) takeMerged(ctx context.Context, r *stint.Request, out []stint.Decision) (d stint.Decision, requests int, err error) {
	d, requests, err = s.takeOnce(ctx, r, out)
	if err == nil || !s.outside(err) {
		return d, requests, err
	}
	again, began := *r, time.Now()
	for sent := 1; sent < mostSent && s.outside(err); sent++ {
		if r.Deadline > 0 {
			if again.Deadline = r.Deadline - time.Since(began); again.Deadline <= 0 {
				return d, requests, notSent(context.DeadlineExceeded)
			}
		}
		d, requests, err = s.takeOnce(ctx, &again, out)
	}
	return d, requests, err
}
