package live

import (
	"sync"
	"time"
)

// outageEnds is how long a store must be up until its outage is over. A store that goes up and down has one
// outage.
const outageEnds = 10 * time.Second

// Outage measures how long a store has been down. It may be used from many goroutines at once. The zero
// Outage has not begun.
type Outage struct {
	mu          sync.Mutex
	began, last time.Time // when the store was seen down; began is zero if it is up
}

// Note records whether the store is down at now, and returns for how long it has been: 0 if it is up, else at
// least 1 ms. An instant before the last one counts as the last one.
func (o *Outage) Note(now time.Time, away bool) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if away {
		if o.began.IsZero() {
			o.began = now
		}
		o.last = later(o.last, now)
	}
	if o.began.IsZero() || now.Sub(o.last) >= outageEnds {
		o.began = time.Time{}
		return 0
	}
	return max(later(now, o.last).Sub(o.began), time.Millisecond)
}
