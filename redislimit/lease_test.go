package redislimit_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
)

// Instances that lease of one limit through Redis admit it to the unit, and refund
// what they have not served.
func TestLeases(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t).URL()
	amount := 40_000
	if testing.Short() {
		amount = 6_000
	}
	for _, text := range []string{"per 24h lease 50%", "per 24h fixed_window lease 50%", "per year lease 50%"} {
		t.Run(text, func(t *testing.T) {
			const instances = 4
			limit := stint.MustLimit(fmt.Sprint(amount, " ", text))
			all := make([]*fleet.Leases, instances)
			for i := range all {
				all[i] = &fleet.Leases{Store: open(t, url), Live: func() int64 { return instances }}
			}
			var passed, leased atomic.Int64
			spend := func(l *fleet.Leases, n int) {
				for range n {
					d, err := stint.NewLimiter(l).Allow(t.Context(), "k", limit)
					if err != nil {
						t.Error(err)
						return
					}
					if d.Allowed {
						passed.Add(1)
					}
					if d.Allowed && d.By == stint.ByLease {
						leased.Add(1)
					}
				}
			}
			var done sync.WaitGroup
			for i := range 3 * instances {
				done.Go(func() { spend(all[i%instances], amount/2) })
			}
			done.Wait()
			if passed.Load() > int64(amount) || leased.Load() < limit.Capacity()/8 {
				t.Errorf("%d passed, %d by leases", passed.Load(), leased.Load())
			}
			for _, l := range all {
				l.Close()
				if u := l.Units(); u.Held != 0 || u.Void != 0 {
					t.Errorf("%+v", u)
				}
			}
			spend(all[0], amount)
			if n := passed.Load(); n < limit.Capacity() || n > int64(amount) { // a bucket refills meanwhile
				t.Errorf("%d passed of %d", n, limit.Capacity())
			}
		})
	}
}

// What is held of many keys is refunded at once, also in a Cluster.
func TestLeasesCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a Cluster")
	}
	l := &fleet.Leases{Store: open(t, redistest.StartReplicated(t, 3, 0).URL()), Live: func() int64 { return 1 }}
	limiter, limit := stint.NewLimiter(l), stint.MustLimit("100000 per 24h lease 50%")
	began := time.Now()
	for n := 0; n < 40 || l.Units().Held < 40 && time.Since(began) < 10*time.Second; n++ {
		for i := range 20 {
			if _, err := limiter.Allow(t.Context(), fmt.Sprint(i), limit); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.Close()
	if u := l.Units(); u.Charged == 0 || u.Held != 0 || u.Void != 0 || u.Returned == 0 {
		t.Errorf("%+v", u)
	}
}
