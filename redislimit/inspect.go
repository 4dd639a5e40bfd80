package redislimit

import (
	"context"
	"fmt"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

// Inspect implements stint.Inspector: one round trip, which writes nothing.
func (s *Store) Inspect(ctx context.Context, key string, limits []*stint.Limit) ([]stint.Stored, error) {
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = s.key(key, l.ID())
	}
	reply, err := s.inspect.eval(ctx, s.client, names)
	if err != nil {
		if isWrongType(err) {
			return nil, fmt.Errorf("redislimit: inspect: a count of key %q: %w", key, stint.ErrBroken)
		}
		return nil, fmt.Errorf("redislimit: inspect: %w", advise(err))
	}
	parts, _ := reply.([]any)
	if len(parts) != 2+2*len(limits) {
		return nil, fmt.Errorf("redislimit: the script replied %T, not what is kept of %d counts", reply, len(limits))
	}
	now, err := instant(parts[:2])
	if err != nil {
		return nil, fmt.Errorf("redislimit: inspect: %w", err)
	}
	stored := make([]stint.Stored, len(limits))
	for i := range stored {
		text, _ := parts[2+2*i].(string)
		left, _ := parts[3+2*i].(int64)
		if text == "" {
			continue
		}
		last, ok := algo.ReadLast(text, kit.Plan(limits[i]).Kind)
		if !ok {
			return nil, brokenKey(names[i], false)
		}
		stored[i] = stint.Stored{Held: true, Idle: algo.Duration(max(0, now-last)), Expires: time.Duration(max(0, left)) * time.Millisecond}
	}
	return stored, nil
}
