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
	asked   atomic.Bool // since the last time; never while none runs
	mu      sync.Mutex
	running bool
}

const idleClock = time.Second

func (c *coarseClock) read(m *Memory) int64 {
	if !c.asked.Load() {
		c.ask(m)
	}
	return c.at.Load()
}

// ask notes that somebody asks, who may be the first.
func (c *coarseClock) ask(m *Memory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running {
		c.at.Store(m.exactClock())
		c.running = true
		go c.run(m)
	}
	c.asked.Store(true)
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
		} else if now-asked > idleClock.Microseconds() && c.end() {
			return
		}
	}
}

// end ends the clock, unless somebody has asked in this very moment.
func (c *coarseClock) end() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = c.asked.Load()
	return !c.running
}
