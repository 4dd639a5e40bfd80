package control

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/stintdev/stint/server/adminapi"
)

// clock is the time of the fleet, read from the clock of the store. Entries that are changed at
// run time begin and end by it. So a machine whose clock is wrong, or is set while it runs, does not end bans
// early or late.
//
// Between two readings it advances by the machine's monotonic clock. Its error is half the time
// that the last reading took, at most 0.5 s, and the drift of the machine's clock since:
// milliseconds while the store answers, and some seconds a day while it does not.
type clock struct {
	// wall is the machine's clock; nil: time.Now. It returns times with a monotonic reading.
	wall  func() time.Time
	read  atomic.Pointer[reading]
	apart atomic.Bool // whether they differed at the last call of newlyApart
}

// reading is a reading of the store's clock.
type reading struct {
	store time.Time // the time that it showed
	at    time.Time // when, by the machine's clock
	known bool      // this process made it; else an earlier one saved it
}

// readClockEvery is how often the clock of the store is read.
const readClockEvery = 10 * time.Second

// machine is the time by the machine's own clock.
func (c *clock) machine() time.Time {
	if c.wall == nil {
		return time.Now()
	}
	return c.wall()
}

// now is the time of the fleet or, if the store's clock was never read, the machine's.
func (c *clock) now() time.Time {
	r := c.read.Load()
	if r == nil {
		return c.machine().Round(0)
	}
	return r.store.Add(c.machine().Sub(r.at))
}

// isKnown reports whether the store's clock was read.
func (c *clock) isKnown() bool {
	r := c.read.Load()
	return r != nil && r.known
}

// ahead is how far the machine's clock is ahead of the fleet's; 0 if the store's was never
// read.
func (c *clock) ahead() time.Duration {
	if c.read.Load() == nil {
		return 0
	}
	return c.machine().Round(0).Sub(c.now())
}

// look reads the clock of the store, if that is due, and returns by how much this has changed
// the result of now.
func (c *clock) look(ctx context.Context, from Documents) (moved time.Duration, err error) {
	before := c.machine()
	if r := c.read.Load(); r != nil && r.known && before.Sub(r.at) < readClockEvery {
		return 0, nil
	}
	shown, err := from.Now(ctx)
	if err != nil {
		return 0, err
	}
	after := c.machine()
	was := c.now()
	c.read.Store(&reading{store: shown.Round(0), at: before.Add(after.Sub(before) / 2), known: true})
	return c.now().Sub(was), nil
}

// assume uses a saved difference between the clocks until the store's is read.
func (c *clock) assume(ahead time.Duration) {
	at := c.machine()
	c.read.CompareAndSwap(nil, &reading{store: at.Round(0).Add(-ahead), at: at})
}

// clockStep is how far the fleet's time must go back for entries that seemed to have ended to
// be checked again.
const clockStep = time.Second

// newlyApart reports whether the machine's clock and the store's have diverged since the last
// call, and how far the machine's is ahead.
func (c *clock) newlyApart() (ahead time.Duration, is bool) {
	ahead = c.ahead()
	apart := ahead.Abs() >= adminapi.ClockApart
	return ahead, apart != c.apart.Swap(apart) && apart
}
