package redislimit_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
)

// Connections are made anew again and again, while calls are under way that take longer
// than the old ones are left for those who have just taken them: each is answered, each
// is charged once, one who listens hears again, and nothing is left behind.
func TestAttackRenewals(t *testing.T) {
	lasts := 2 * time.Second
	if d, err := time.ParseDuration(os.Getenv("STINT_ATTACK")); err == nil {
		lasts = d
	}
	server := redistest.Start(t)
	server.Do(t, "ACL", "SETUSER", "stint", "on", "nopass", "~*", "&*", "+@all")
	slow := redistest.StartProxy(t, server.Addr)
	slow.Set(redistest.Toxic{Latency: 150 * time.Millisecond})
	file := filepath.Join(t.TempDir(), "password")
	rotate := func(n int) {
		if err := os.WriteFile(file+".new", fmt.Appendf(nil, "%d", n), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	rotate(0)
	s := open(t, "redis://stint@"+slow.Addr+"?connections=2&password_file="+file)
	var hears atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		_ = s.Notify(ctx, fleet.Listener{Invalidated: func(string) {}, Connected: func(yes bool) {
			if yes {
				hears.Add(1)
			}
		}})
	})
	limit := stint.MustLimit("1000000 per 24h fixed_window")
	limiter := stint.NewLimiter(s)
	var allowed atomic.Int64
	end := make(chan struct{})
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			key := fmt.Sprint("key", i%4) // some are merged
			for {
				select {
				case <-end:
					return
				default:
				}
				if _, err := limiter.Allow(context.Background(), key, limit); err != nil {
					t.Errorf("a call was lost: %v", err)
					return
				}
				allowed.Add(1)
			}
		})
	}
	time.Sleep(500 * time.Millisecond)
	sockets := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return 0 // not on this system
		}
		return len(all)
	}
	goroutines, open := runtime.NumGoroutine(), sockets()
	n := 0
	for began := time.Now(); time.Since(began) < lasts; {
		n++
		rotate(n)
		time.Sleep(1100 * time.Millisecond)
	}
	close(end)
	callers.Wait()
	var charged int64
	for i := range 4 {
		d, err := limiter.Peek(t.Context(), fmt.Sprint("key", i), limit)
		if err != nil {
			t.Fatal(err)
		}
		charged += limit.Capacity() - d.Remaining
	}
	if charged != allowed.Load() {
		t.Errorf("%d were allowed, and %d charged", allowed.Load(), charged)
	}
	time.Sleep(500 * time.Millisecond)
	t.Logf("%d renewals, %d calls; goroutines %d before, %d after without %d callers; files %d before, %d after; heard %d times",
		n, charged, goroutines, runtime.NumGoroutine(), 32, open, sockets(), hears.Load())
	if more := runtime.NumGoroutine() - goroutines; more > 10 {
		t.Errorf("%d goroutines more", more)
	}
	if more := sockets() - open; more > 6 {
		t.Errorf("%d files more", more)
	}
	if hears.Load() < 2 {
		t.Error("one who listens did not hear again")
	}
	cancel()
	all.Wait()
}
