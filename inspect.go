package stint

import (
	"context"
	"fmt"
	"time"
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
