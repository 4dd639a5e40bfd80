package redislimit_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
)

// BenchmarkWaitInFlight has 40 jobs of 20 ms, at most 4 at once, wait for their turn: by a semaphore of
// this process, and by a limit in memory and in Redis.
func BenchmarkWaitInFlight(b *testing.B) {
	places := semaphore.NewWeighted(4)
	b.Run("semaphore", func(b *testing.B) {
		benchJobs(b, func(ctx context.Context) (func(), error) {
			return func() { places.Release(1) }, places.Acquire(ctx, 1)
		})
	})
	limit := stint.MustLimit("jobs: 4 in_flight")
	acquire := func(l *stint.Limiter) func(context.Context) (func(), error) {
		return func(ctx context.Context) (func(), error) { return l.AcquireWait(ctx, "k", limit) }
	}
	b.Run("memory", func(b *testing.B) { benchJobs(b, acquire(new(stint.Limiter))) })
	b.Run("Redis", func(b *testing.B) {
		benchJobs(b, acquire(stint.NewLimiter(open(b, redistest.Start(b).URL()))))
	})
}

func benchJobs(b *testing.B, acquire func(context.Context) (func(), error)) {
	for b.Loop() {
		var jobs sync.WaitGroup
		for range 40 {
			jobs.Go(func() {
				release, err := acquire(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				time.Sleep(20 * time.Millisecond)
				release()
			})
		}
		jobs.Wait()
	}
}
