package stint

import (
	"sync"
	"sync/atomic"
	"time"
)

// coarseClock is the clock of a Memory with a Precision: an instant that a goroutine
// writes down now and then, because reading one costs a nanosecond and reading the
// clock twenty. The goroutine ends when nobody has asked for idleClock.
type coarseClock struct {
	at      atomic.Int64
	running atomic.Bool
	asked   atomic.Bool
	mu      sync.Mutex
}

const idleClock = time.Second

func (c *coarseClock) read(m *Memory) int64 {
	if !c.running.Load() {
		return c.start(m)
	}
	if !c.asked.Load() {
		c.asked.Store(true)
	}
	return c.at.Load()
}

func (c *coarseClock) start(m *Memory) int64 {
	now := m.exactClock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running.Load() {
		c.at.Store(now)
		c.asked.Store(true)
		c.running.Store(true)
		go c.run(m)
	}
	return now
}

func (c *coarseClock) run(m *Memory) {
	t := time.NewTicker(m.Precision)
	defer t.Stop()
	for asked := c.at.Load(); ; {
		<-t.C
		now := m.exactClock()
		c.at.Store(now)
		if c.asked.Swap(false) {
			asked = now
		} else if now-asked > idleClock.Microseconds() {
			c.running.Store(false)
			return
		}
	}
}
