package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/stintdev/stint"
)

const (
	heartbeatEvery   = time.Second
	firstHeartbeats  = 100 * time.Millisecond // apart, while none has been answered: until then this instance counts as the only one
	heartbeatTimeout = time.Second
)

// lowerCounts is how many counts in a row must be lower: after a restart of the store, the first
// heartbeat counts only itself.
const lowerCounts = 5

// Follow counts the instances that share the Store, again and again, until ctx is done.
// While the Store does not answer, the last count stays. A higher count is used at once, a lower
// one after five counts. Follow does nothing if the Store is not a Membership or Instances is
// given.
func (f *Fallback) Follow(ctx context.Context) {
	members, ok := stint.As[Membership](f.Store)
	if !ok || f.Instances > 0 {
		return
	}
	var last [lowerCounts]int64
	for n, every := 0, firstHeartbeats; ; {
		bounded, cancel := context.WithTimeout(ctx, heartbeatTimeout)
		live, err := members.Heartbeat(bounded)
		cancel()
		if err == nil {
			last[n%lowerCounts] = int64(live)
			f.counted.Store(slices.Max(last[:]))
			n, every = n+1, heartbeatEvery
		}
		if !pause(ctx, jittered(every)) {
			return
		}
	}
}
