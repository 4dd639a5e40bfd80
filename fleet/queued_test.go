package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// queueing is a store that decides one request in a millisecond, in their order.
type queueing struct {
	stint.Memory
	turn  chan struct{} // has room for one
	hangs atomic.Bool
}

func (q *queueing) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		return stint.Decision{}, fmt.Errorf("%w: %w", fleet.ErrNotCharged, ctx.Err())
	}
	defer func() { <-q.turn }()
	if q.hangs.Load() {
		<-ctx.Done()
		return stint.Decision{}, ctx.Err()
	}
	time.Sleep(time.Millisecond)
	return q.Memory.Take(ctx, r, out)
}

// However many requests wait before a store that works, the breaker stays closed. If the store then
// hangs, it opens no later than that of a store that nobody waits for.
func TestBreakerAndQueue(t *testing.T) {
	for _, callers := range []int{1, 20, 100, 300} {
		t.Run(fmt.Sprintf("%d callers", callers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &queueing{turn: make(chan struct{}, 1)}
				var opened atomic.Bool
				f := &fleet.Fallback{Store: store, Instances: 1}
				f.Breaker.Changed = func(to fleet.BreakerState, _ error) {
					if to == fleet.Open {
						opened.Store(true)
					}
				}
				defer f.Close()
				l, limit := stint.NewLimiter(f), stint.MustLimit("1000000 per 1h")
				var over atomic.Bool
				var asking sync.WaitGroup
				defer func() {
					over.Store(true)
					asking.Wait()
					time.Sleep(3 * time.Second) // charges under way end
				}()
				for i := range callers {
					asking.Go(func() {
						for !over.Load() {
							if _, err := l.Allow(t.Context(), fmt.Sprint(i), limit); err != nil {
								t.Error(err)
							}
							time.Sleep(time.Millisecond) // also while nobody waits for the store
						}
					})
				}
				time.Sleep(5 * time.Second)
				if opened.Load() {
					t.Fatal("it opened though the store works")
				}
				store.hangs.Store(true)
				began := time.Now()
				for !opened.Load() && time.Since(began) < time.Second {
					time.Sleep(time.Millisecond)
				}
				if took := time.Since(began); took > 7*fleet.DefaultDeadline {
					t.Errorf("it opened %s after the store began to hang", took)
				}
				store.hangs.Store(false)
			})
		})
	}
}

// A request that waited too long for its turn is decided without the store, and charged later.
func TestQueuedIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &queueing{turn: make(chan struct{}, 1)}
		f := &fleet.Fallback{Store: store, Instances: 1, Called: func(time.Duration, error) {}}
		defer f.Close()
		l, limit := stint.NewLimiter(f), stint.MustLimit("1000 per 1h fixed_window")
		var asking sync.WaitGroup
		var local atomic.Int64
		for range 100 {
			asking.Go(func() {
				d, err := l.Allow(t.Context(), "k", limit)
				if err != nil || !d.Allowed {
					t.Error(d, err)
				}
				if d.By == stint.ByLocal {
					local.Add(1)
				}
			})
		}
		asking.Wait()
		time.Sleep(time.Minute)
		if _, err := l.Allow(t.Context(), "k", limit); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		d, err := stint.NewLimiter(&store.Memory).Peek(t.Context(), "k", limit)
		if err != nil || d.Used() != 101 || local.Load() == 0 {
			t.Errorf("%+v, %v, and %d were decided here", d, err, local.Load())
		}
	})
}
