package stint

import (
	"context"
	"fmt"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// Stored is what a Store keeps of a key under a limit. The zero Stored: nothing that
// still counts.
type Stored struct {
	// Held tells whether units are in use.
	Held bool
	// Idle is how long ago the key was last charged under the limit. A request that was
	// refused, a look and a refund are no charges.
	Idle time.Duration
	// Expires is how long the Store keeps the count if nothing more comes: no less than
	// the ResetAfter of the limit that was charged.
	Expires time.Duration
}

// Inspect says of each limit when key was last charged under it and when its count
// expires. It changes nothing. The error wraps ErrUnsupported where the Store cannot tell.
func (l *Limiter) Inspect(ctx context.Context, key string, limits ...*Limit) ([]Stored, error) {
	for _, limit := range limits {
		if err := (&Ask{Key: key, Limit: limit}).check(); err != nil {
			return nil, err
		}
	}
	if len(limits) == 0 || len(limits) > MaxAsks {
		return nil, fmt.Errorf("stint: %w: it asks about %d limits: want 1 to %d", ErrRequest, len(limits), MaxAsks)
	}
	if s, ok := As[Inspector](l.store()); ok {
		return s.Inspect(ctx, key, limits)
	}
	return nil, unsupported("inspect")
}

// Inspect implements Inspector.
func (m *Memory) Inspect(_ context.Context, key string, limits []*Limit) ([]Stored, error) {
	m.init()
	r := Request{Asks: []Ask{{Key: key}}}
	var few [1]uint64
	defer m.unlock(m.lock(&r, few[:0]))
	now := m.now(&r)
	stored := make([]Stored, len(limits))
	for i, l := range limits {
		var c count
		if m.look(&Ask{Key: key, Limit: l}, &c); !c.found() {
			continue
		}
		plan := planOf(c.number)
		if c.entry != nil {
			plan = c.entry.apart.plan
		}
		s := c.state()
		v := plan.Look(s, now)
		if reset := plan.Settle(s, &v, 0, true).Reset; v.Used > 0 {
			stored[i] = Stored{Held: true, Idle: algo.Duration(max(0, now-s.Last)), Expires: algo.Duration(reset)}
		}
		c.release()
	}
	return stored, nil
}
