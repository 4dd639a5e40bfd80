package server_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/limittest"
)

// After a stall of its store a server decides by it again, soon, whatever its rules ask
// for; and a caller at half of a limit is not refused for what passed meanwhile.
func TestStoreStalls(t *testing.T) {
	const file = `
rules:
  - {name: plain, match: operation == "plain", key: attrs.user, limits: [12000 per 1m, 20000 per 1m sliding_log]}
  - {name: leased, match: operation == "leased", key: '"all"', limits: [{amount: 1000000, period: 1h, lease: 10%}]}
  - {name: punished, match: operation == "punished", key: attrs.user, limits: [20000 per 1m fixed_window], penalty: {ban_after: 1, ban_for: 1h}}
`
	for _, stall := range []time.Duration{60 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second} {
		if testing.Short() && stall > time.Second {
			continue
		}
		t.Run(stall.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stalled, done atomic.Bool
				s := newServer(t, file, over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Hang: stalled.Load()} }}))
				var asking sync.WaitGroup
				var last atomic.Int64
				for n := range 32 {
					for _, operation := range []string{"plain", "leased", "punished"} {
						in := doing(operation)
						in.Attrs = map[string]any{"user": fmt.Sprint(n)}
						asking.Go(func() {
							for !done.Load() {
								asked := time.Now()
								v, err := s.Decide(t.Context(), in, time.Time{})
								if err != nil || !v.Allowed {
									t.Errorf("%s: %s, %v", operation, say(&v, err), err)
									return
								}
								if !stint.Internal(friend.Of{}).IsShared(v.By) {
									last.Store(asked.UnixNano())
								}
								time.Sleep(5*time.Millisecond + rand.N(10*time.Millisecond))
							}
						})
					}
				}
				time.Sleep(time.Second)
				began := time.Now()
				stalled.Store(true)
				time.Sleep(stall)
				stalled.Store(false)
				time.Sleep(2*stall + 3*time.Second)
				if took := time.Unix(0, last.Load()).Sub(began); took <= 0 || took > 2*stall+200*time.Millisecond {
					t.Errorf("something was decided without the store until %s after the stall began", took)
				}
				done.Store(true)
				asking.Wait()
			})
		})
	}
}
