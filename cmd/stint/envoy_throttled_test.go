package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stintdev/stint/internal/redistest"
)

// BenchmarkThrottled reports how many calls stint envoy decides without Redis, in percent, and how long
// the slowest takes, if one of the two stands still for a part of each period, as by a limit of a
// container or a slow command. Eight callers with a deadline of 10 s ask 40 times a second each.
func BenchmarkThrottled(b *testing.B) {
	redis := redistest.Start(b)
	for _, c := range []struct {
		who             string
		stopped, period time.Duration
	}{
		{"nobody", 0, 100 * time.Millisecond}, {"stint", 80 * time.Millisecond, 100 * time.Millisecond}, {"stint", 95 * time.Millisecond, 100 * time.Millisecond},
		{"redis", 60 * time.Millisecond, 400 * time.Millisecond}, {"redis", 200 * time.Millisecond, 800 * time.Millisecond},
	} {
		for _, timeout := range []string{"25ms", "100ms", "250ms", "500ms"} {
			b.Run(fmt.Sprintf("%s=%s/timeout=%s", c.who, c.stopped, timeout), func(b *testing.B) {
				throttled(b, redis, timeout, func(s *answering) {
					time.Sleep(c.period - c.stopped)
					switch c.who {
					case "stint":
						s.signal(b, syscall.SIGSTOP)
						time.Sleep(c.stopped)
						s.signal(b, syscall.SIGCONT)
					case "redis":
						thaw := redis.Freeze(b)
						time.Sleep(c.stopped)
						thaw()
					}
				})
			})
		}
	}
}

func throttled(b *testing.B, redis *redistest.Server, timeout string, throttle func(*answering)) {
	variables, _ := runtimeDirectory(b, map[string]string{"d.yaml": "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: day, requests_per_unit: 100000000}}\n"})
	s := asEnvoy(b, append(variables, "REDIS_URL="+redis.Addr, "STINT_DECISION_TIMEOUT="+timeout)...)
	ask := func() *rls.RateLimitResponse {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r, err := s.client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}},
		}})
		if err != nil {
			b.Error(err)
		}
		return r
	}
	ask()
	done := make(chan struct{})
	var throttling sync.WaitGroup
	throttling.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				throttle(s)
			}
		}
	})
	var local, all, slowest atomic.Int64
	for b.Loop() {
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 80 {
					time.Sleep(25 * time.Millisecond)
					began := time.Now()
					if r := ask(); r.GetStatuses()[0].GetCurrentLimit() == nil {
						local.Add(1)
					}
					slowest.Store(max(slowest.Load(), int64(time.Since(began))))
					all.Add(1)
				}
			})
		}
		callers.Wait()
	}
	close(done)
	throttling.Wait()
	b.ReportMetric(100*float64(local.Load())/float64(all.Load()), "%local")
	b.ReportMetric(float64(slowest.Load())/1e6, "slowest-ms")
	b.ReportMetric(0, "ns/op")
}
