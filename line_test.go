package stint_test

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
)

// Who waits for a place in flight gets it as soon as one is free, in the order in which they came, by
// each way to wait, and a hint is no promise that a deadline cannot keep.
func TestWaitInFlight(t *testing.T) {
	limit := stint.MustLimit("jobs: 4 in_flight")
	for name, wait := range map[string]func(l *stint.Limiter, ctx context.Context, work func()) error{
		"Guard": func(l *stint.Limiter, ctx context.Context, work func()) error {
			guard := stint.Guard[int, int]{Limiter: l, Limit: limit, Wait: true, Key: func(context.Context, int) string { return "k" }}
			_, err := guard.Wrap(func(context.Context, int) (int, error) { work(); return 0, nil })(ctx, 0)
			return err
		},
		"AcquireWait": func(l *stint.Limiter, ctx context.Context, work func()) error {
			release, err := l.AcquireWait(ctx, "k", limit)
			if err == nil {
				work()
			}
			release()
			return err
		},
		"ReserveWait": func(l *stint.Limiter, ctx context.Context, work func()) error {
			r, err := l.ReserveWait(ctx, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}, {Key: "k", Limit: stint.MustLimit("starts: 1000 per 1h")}}})
			if err == nil {
				work()
			}
			_ = r.Settle(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := new(stint.Limiter)
				ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
				defer cancel()
				var jobs sync.WaitGroup
				var mu sync.Mutex
				var began []int
				start := time.Now()
				for i := range 40 {
					jobs.Go(func() {
						err := wait(l, ctx, func() {
							mu.Lock()
							began = append(began, i)
							mu.Unlock()
							time.Sleep(20 * time.Millisecond)
						})
						if err != nil {
							t.Errorf("job %d: %v", i, err)
						}
					})
					synctest.Wait() // they come in order
				}
				jobs.Wait()
				if took := time.Since(start); took != 200*time.Millisecond {
					t.Errorf("40 jobs of 20 ms, 4 at once, took %s", took)
				}
				for i, job := range began {
					if job/4 != i/4 {
						t.Errorf("in the order %v", began)
						break
					}
				}
			})
		})
	}
}

// However long they wait: a hold that ends wakes the first, also after many polls.
func TestWaitInFlightForLong(t *testing.T) {
	limit := stint.MustLimit("jobs: 2 in_flight")
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			l, start := new(stint.Limiter), time.Now()
			var jobs sync.WaitGroup
			for range 20 {
				jobs.Go(func() {
					release, err := l.AcquireWait(t.Context(), "k", limit)
					if err != nil {
						t.Error(err)
					}
					time.Sleep(time.Minute)
					release()
				})
			}
			jobs.Wait()
			if took := time.Since(start); took != 10*time.Minute {
				t.Errorf("20 jobs of a minute, 2 at once, took %s", took)
			}
		})
	}
}

// What other processes hold is asked about again from 5 ms up, by one caller for all; who gives up lets
// the next one ask.
func TestWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := stint.MustLimit("jobs: 1 in_flight")
		var shared stint.Memory
		theirs, ours := stint.NewLimiter(&shared), stint.NewLimiter(&shared)
		var asked atomic.Int64
		ours.Observe = func(context.Context, *stint.Request, *stint.Answer) { asked.Add(1) }
		release, d, err := theirs.Acquire(t.Context(), "k", limit)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		start := time.Now()
		var waiting sync.WaitGroup
		for i := range 10 {
			waiting.Go(func() {
				ctx := t.Context()
				if i == 0 {
					short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
					defer cancel()
					ctx = short
				}
				done, err := ours.AcquireWait(ctx, "k", limit)
				if i == 0 {
					var refused *stint.RefusedError
					if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &refused) || time.Since(start) != 30*time.Millisecond {
						t.Errorf("after %s: %v", time.Since(start), err)
					}
				} else if err != nil {
					t.Error(err)
				}
				done()
			})
			synctest.Wait()
		}
		time.Sleep(60 * time.Millisecond)
		if n := asked.Load(); n > 25 {
			t.Errorf("asked %d times in 60 ms", n)
		}
		before := time.Now()
		release()
		waiting.Wait()
		if took := time.Since(before); took > 200*time.Millisecond {
			t.Errorf("after %s", took)
		}
	})
}

// TakeWait waits for all limits of a request, and holds nothing.
func TestTakeWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(stint.Limiter)
		r := &stint.Request{Asks: []stint.Ask{
			{Key: "k", Limit: stint.MustLimit("minute: 2 per 1m fixed_window")},
			{Key: "k", Limit: stint.MustLimit("pace: 1 per 1s leaky_bucket burst 3")},
		}}
		var left []string
		start := time.Now()
		for range 4 {
			if err := l.TakeWait(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			left = append(left, fmt.Sprint(time.Since(start)))
		}
		if got := fmt.Sprint(left); got != "[0s 1s 1m0s 1m1s]" {
			t.Error(got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var refused *stint.RefusedError
		if err := l.TakeWait(ctx, r); !errors.As(err, &refused) || refused.Limit.Spec().Name != "minute" || time.Since(start) != 61*time.Second {
			t.Errorf("%v", err)
		}
		if err := l.TakeWait(t.Context(), &stint.Request{}); !errors.Is(err, stint.ErrRequest) {
			t.Error(err)
		}
		if release, err := l.AcquireWait(t.Context(), "k", stint.MustLimit("1 per 1s")); !errors.Is(err, stint.ErrRequest) {
			t.Error(err)
		} else {
			release()
		}
	})
}
