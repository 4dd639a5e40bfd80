package live

import (
	"sync"
	"time"
)

// outageEnds is how long a store must have been there until its outage is over. One that comes and
// goes has one outage.
const outageEnds = 10 * time.Second

// Outage tells for how long a store has been away. It may be used from many goroutines at once. The
// zero Outage is one that has not begun.
type Outage struct {
	mu          sync.Mutex
	began, last time.Time // that the store was seen to be away; began is zero if it is not
}

// Note notes whether the store is away at now, and returns for how long it has been: 0 if it is
// there, else at least 1 ms. An instant before the last one counts as that.
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
