package chaos

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// Ten thousand decisions a second while a Redis is frozen cost little memory and, once
// the breaker is open, no work on any socket; every one is made, in time.
func TestFrozen(t *testing.T) {
	const mostGrowth = 100 << 20
	lasts, perSecond := 3*time.Second, 2_000
	if long() {
		lasts, perSecond = time.Minute, 10_000
	}
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	warm := newInstance(t, proxy.URL())
	warm.close()
	time.Sleep(20 * time.Millisecond)
	before := runtime.NumGoroutine()
	i := newInstance(t, proxy.URL())
	limit := stint.MustLimit("100000000 per 24h")
	if _, err := i.Allow(t.Context(), "a", limit); err != nil {
		t.Fatal(err)
	}
	held := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Sys - m.HeapReleased
	}
	runtime.GC()
	at, most, goroutines := held(), uint64(0), 0
	paused := redistest.WatchPauses()
	thaw := server.Freeze(t)
	var asking sync.WaitGroup
	took := make([]time.Duration, 0, int(lasts.Seconds()+1)*perSecond)
	var mu sync.Mutex
	sent, opened, asked := 0, 0, int64(0)
	began := time.Now()
	for now := range time.Tick(5 * time.Millisecond) {
		if opened == 0 && i.fall.State() == fleet.Open && now.Sub(began) > 500*time.Millisecond { // what was under way is over
			opened, asked = sent, proxy.Asked()
		}
		if now.Sub(began) > lasts && (opened > 0 && sent >= opened+perSecond || now.Sub(began) > 3*time.Minute) {
			break
		}
		for ; sent < int(time.Since(began).Seconds()*float64(perSecond)); sent++ {
			asking.Go(func() {
				start := time.Now()
				d, err := i.Allow(context.Background(), "a", limit)
				end := time.Since(start)
				if err != nil || !d.Allowed || d.By != stint.ByLocal {
					t.Error(d, err)
				}
				mu.Lock()
				took = append(took, end)
				mu.Unlock()
			})
		}
		goroutines = max(goroutines, runtime.NumGoroutine())
		if sent%1000 < 50 {
			most = max(most, held())
		}
	}
	asking.Wait()
	bytes, meanwhile := proxy.Asked()-asked, sent-opened
	pause := paused()
	slices.Sort(took)
	p999 := took[len(took)*999/1000]
	growth := max(0, int64(most)-int64(at)) >> 20
	switch {
	case opened == 0:
		t.Error("the breaker did not open")
	case bytes > int64(meanwhile)/5:
		t.Errorf("%d bytes went to the server for %d decisions while the breaker was open", bytes, meanwhile)
	}
	if half := took[len(took)/2]; long() && half > fleet.DefaultDeadline/2 { // else a busy machine is late by more
		t.Errorf("half of the answers took over %s: the breaker spares nobody the wait", half)
	}
	if growth > mostGrowth>>20 {
		t.Errorf("memory grew by %d MiB", growth)
	}
	if long() && p999 > grossly+pause {
		t.Errorf("of 1000 answers one took over %s", p999)
	}
	thaw()
	await.Until(t, "the store decides again", func() bool {
		d, err := i.Allow(t.Context(), "a", limit)
		return err == nil && d.By == stint.ByStore
	})
	i.close()
	await.Until(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
	publish(t, "frozen", []string{
		"| decisions | slowest | 99.9 % within | the machine paused | memory grew by | goroutines at most | bytes sent while the breaker was open, of its probes, heartbeats and keep-alives |",
		"| --: | --: | --: | --: | --: | --: | --: |",
		fmt.Sprintf("| %d in %s | %s | %s | %s | %d MiB | %d | %d for %d decisions |", sent, lasts, milliseconds(took[len(took)-1]),
			milliseconds(p999), milliseconds(pause), growth, goroutines, bytes, meanwhile)})
}
