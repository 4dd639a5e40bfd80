package stint

import (
	"context"
	"slices"
	"time"
)

// Membership is a Store that counts the instances that share it. Heartbeat says that this
// instance lives, and returns how many have said so in the last seconds, itself
// among them.
type Membership interface {
	Heartbeat(ctx context.Context) (live int, err error)
}

const (
	beatEvery   = time.Second
	firstBeat   = 100 * time.Millisecond // while none has been answered: until then this instance counts as the only one
	beatTimeout = time.Second
)

// beatsLower is how many counts in a row must be lower before there are taken to be
// fewer instances. A store that comes back has forgotten them, and the first to
// beat there finds itself alone.
const beatsLower = 5

// Follow keeps count of the instances that share the Store, until ctx is done. While
// the Store does not answer, the last count stays; more are taken at once, fewer
// after five counts. It does nothing where the Store is no Membership or Instances is
// given.
func (f *Fallback) Follow(ctx context.Context) {
	census, ok := f.Store.(Membership)
	if !ok || f.Instances > 0 {
		return
	}
	var last [beatsLower]int64
	for n, every := 0, firstBeat; ; {
		bounded, cancel := context.WithTimeout(ctx, beatTimeout)
		live, err := census.Heartbeat(bounded)
		cancel()
		if err == nil {
			last[n%beatsLower] = int64(live)
			f.counted.Store(slices.Max(last[:]))
			n, every = n+1, beatEvery
		}
		if !pause(ctx, jittered(every)) {
			return
		}
	}
}
