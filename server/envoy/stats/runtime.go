package stats

import (
	"runtime"
	"sync"
)

// runtimeStats are gostats' statistics of the Go runtime, under its names. It may be used from many
// goroutines at once.
type runtimeStats struct {
	mu       sync.Mutex
	counters *group
}

// gauge is a value that rises and falls.
type gauge struct {
	name  string
	value uint64
}

func newRuntimeStats() *runtimeStats {
	return &runtimeStats{counters: newGroup("ratelimit.go", []string{"totalAlloc", "mallocs", "frees", "pauseTotalNs", "numGC"})}
}

// read updates the counters and returns the gauges.
func (r *runtimeStats) read() []gauge {
	r.mu.Lock()
	defer r.mu.Unlock()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	for i, n := range [...]uint64{m.TotalAlloc, m.Mallocs, m.Frees, m.PauseTotalNs, uint64(m.NumGC)} {
		r.counters.n[i].Store(n)
	}
	return []gauge{
		{"ratelimit.go.alloc", m.Alloc},
		{"ratelimit.go.sys", m.Sys},
		{"ratelimit.go.heapAlloc", m.HeapAlloc},
		{"ratelimit.go.heapSys", m.HeapSys},
		{"ratelimit.go.heapIdle", m.HeapIdle},
		{"ratelimit.go.heapInuse", m.HeapInuse},
		{"ratelimit.go.heapReleased", m.HeapReleased},
		{"ratelimit.go.heapObjects", m.HeapObjects},
		{"ratelimit.go.nextGC", m.NextGC},
		{"ratelimit.go.lastGC", m.LastGC},
		{"ratelimit.go.gcCPUPercent", uint64(m.GCCPUFraction * 100)},
		{"ratelimit.go.numGoroutine", uint64(runtime.NumGoroutine())},
	}
}
