package stint_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// slow is a Store that is away, or takes its time for calls about holds.
type slow struct {
	stint.Memory
	away atomic.Bool
	wait time.Duration
}

func (s *slow) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	if s.away.Load() {
		for i := range calls {
			calls[i].Err = errFault
		}
		return
	}
	time.Sleep(s.wait)
	s.Memory.Holds(ctx, at, calls)
}

// Many settlements that are sent again when the store is back do not keep what runs from being
// renewed in time.
func TestRepaymentsLeaveTimeToRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged(t)
		s := &slow{wait: 50 * time.Millisecond}
		l := stint.NewLimiter(s)
		budget, places := stint.MustLimit("budget: 1000000000 per 24h fixed_window hold 10m"), stint.MustLimit("place: 4 in_flight hold 3s")
		var ended []*stint.Reservation
		for i := range 20_000 {
			r, _, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: fmt.Sprint(i), Limit: budget}}})
			if err != nil {
				t.Fatal(err)
			}
			ended = append(ended, r)
		}
		release, d, err := l.Acquire(t.Context(), "k", places)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		s.away.Store(true)
		for _, r := range ended {
			if err := r.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.away.Store(false)
		for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
			if held, err := s.Held(t.Context(), "k", []*stint.Limit{places}); err != nil || len(held) != 1 {
				t.Fatalf("after %s: %v held, %v", time.Since(start), held, err)
			}
		}
		release()
	})
}
