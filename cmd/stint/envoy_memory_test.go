package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stintdev/stint/internal/redistest"
)

// BenchmarkEnvoyMemory reports what stint envoy takes of the machine for 600,000 calls about 100,000
// keys, counted in Redis: the memory that it has at the end, and processor time for each call.
func BenchmarkEnvoyMemory(b *testing.B) {
	const calls, keys, callers = 600_000, 100_000, 32
	redis := redistest.Start(b)
	built = filepath.Join(b.TempDir(), "stint")
	b.Cleanup(func() { built = "" })
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", built, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	variables, _ := runtimeDirectory(b, map[string]string{"d.yaml": "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: hour, requests_per_unit: 1000}}\n"})
	for b.Loop() {
		s := asEnvoy(b, append(variables, "REDIS_URL="+redis.Addr)...)
		pid := s.pid()
		before := processorTime(b, pid)
		var sent atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for sent.Add(1) <= calls {
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					_, err := s.client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
						{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: "user-" + strconv.Itoa(rand.IntN(keys))}}},
					}})
					cancel()
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		b.ReportMetric(float64((processorTime(b, pid)-before).Nanoseconds())/calls, "cpu-ns/call")
		b.ReportMetric(memoryOf(b, pid), "MiB")
		s.stop()
	}
	b.ReportMetric(0, "ns/op")
}

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// memoryOf is the memory of a process, in MiB.
func memoryOf(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skip(err)
	}
	n, err := strconv.Atoi(string(resident.FindSubmatch(text)[1]))
	if err != nil {
		b.Fatal(err)
	}
	return float64(n) / 1024
}

// processorTime is what a process has taken of the processors.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may have spaces
	fields := strings.Fields(rest)
	var ticks int64 // of 10 ms: user and system time are fields 14 and 15
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
