package main

import (
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// Probes are answered from what is known. However many come while the Redis is
// frozen, it is not asked because of them, and neither goroutines nor lines of the
// log pile up.
func TestServeProbesWhileFrozen(t *testing.T) {
	redis := redistest.Start(t)
	proxy := redistest.StartProxy(t, redis.Addr)
	s := serving(t, "--limit", "9 per 1h", "--store", proxy.URL())
	await.Until(t, "it is ready", func() bool { return ready(t, s) == "200 ready" })
	thaw := redis.Freeze(t)
	await.Until(t, "readyz tells that the store is away, though nobody asks for a decision", func() bool { return ready(t, s) == "200 ready, without the store" })
	asked, goroutines, logged := proxy.Asked(), runtime.NumGoroutine(), len(s.log.String())

	const probes, clients = 3000, 50
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	var left, most, refused atomic.Int64
	left.Store(probes)
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				path := "/readyz"
				if n%10 == 0 {
					path = "/healthz"
				}
				resp, err := client.Get(s.check + path)
				if err != nil || resp.StatusCode != 200 {
					refused.Add(1)
				}
				if err == nil {
					resp.Body.Close()
				}
				if now := int64(runtime.NumGoroutine()); now > most.Load() {
					most.Store(now)
				}
			}
		})
	}
	running.Wait()
	if n := refused.Load(); n > 0 {
		t.Errorf("%d of %d probes got no 200", n, probes)
	}
	// Beside the probes, the store is asked for its pulse, its documents and its
	// instances: about 1 kB a second.
	if n := proxy.Asked() - asked; n > 100_000 {
		t.Errorf("the store was asked %d bytes", n)
	}
	// A client's connection takes three goroutines at each end.
	if n := most.Load(); n > int64(goroutines+8*clients) {
		t.Errorf("%d goroutines, from %d", n, goroutines)
	}
	if n := len(s.log.String()) - logged; n > 4000 {
		t.Errorf("%d bytes of log:\n%s", n, s.log)
	}
	thaw()
	await.Until(t, "readyz tells that the store is back", func() bool { return ready(t, s) == "200 ready" })
}
