package fleet_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// counting is a Membership that says what it is told to.
type counting struct {
	stint.Memory
	live atomic.Int64 // 0: it fails
}

func (c *counting) Heartbeat(context.Context) (int, error) {
	live := c.live.Load()
	if live == 0 {
		return 0, errors.New("away")
	}
	return int(live), nil
}

// A store that comes back has forgotten who lives, and that hands nobody a larger
// share; one that is there late is asked more often until it counts.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{}
		f := &fleet.Fallback{Store: c}
		defer f.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.Follow(ctx)
		for _, step := range []struct {
			live  int64
			after time.Duration
			want  int64
		}{
			{0, 10 * time.Second, 1},
			{3, 150 * time.Millisecond, 3},
			{0, time.Minute, 3},
			{1, 2 * time.Second, 3},
			{3, 2 * time.Second, 3},
			{2, 2 * time.Second, 3},
			{2, 6 * time.Second, 2},
			{5, 2 * time.Second, 5},
		} {
			c.live.Store(step.live)
			time.Sleep(step.after)
			synctest.Wait()
			if n := f.Live(); n != step.want {
				t.Errorf("%d live for %s: %d counted, want %d", step.live, step.after, n, step.want)
			}
		}
	})
}
