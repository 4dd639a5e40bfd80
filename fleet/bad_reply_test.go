package fleet_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/limittest"
)

// However often the answers of a Store cannot be right, and whether it charged or not, no more is
// admitted than the limit allows, one by one, in lists and where requests hold.
func TestBadReplies(t *testing.T) {
	for name, charges := range map[string]int{"nothing is charged": 0, "some is charged": 50, "all is charged": 100} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seed := attack.Seed(t)
				rng := rand.New(rand.NewPCG(seed, 7))
				var drawing sync.Mutex // debts are repaid beside the calls
				faults := rand.New(rand.NewPCG(seed, 8))
				store := &limittest.Faulty{Store: new(stint.Memory)}
				store.Fault = func(int) limittest.Fault {
					drawing.Lock()
					defer drawing.Unlock()
					if faults.IntN(3) > 0 {
						return limittest.Fault{}
					}
					return limittest.Fault{Err: fleet.ErrBadReply, Lost: faults.IntN(100) < charges}
				}
				f := &fleet.Fallback{Store: store, Called: func(time.Duration, error) {}}
				defer f.Close()
				var limits []*stint.Limit
				for _, text := range []string{"100 per 1d", "100 per 1d fixed_window", "100 per 1d sliding_log", "100 per 1d sliding_window", "held: 100 per 1d hold 5m", "log: 100 per 1d sliding_log hold 5m"} {
					limits = append(limits, stint.MustLimit(text))
				}
				admitted := map[*stint.Limit]int64{}
				l := stint.NewLimiter(f)
				for range 3000 {
					limit := limits[rng.IntN(len(limits))]
					cost := 1 + rng.Int64N(3)
					ask := stint.Ask{Key: "k", Limit: limit, Cost: cost}
					switch {
					case limit.IsHeld() && rng.IntN(2) == 0:
						r, d, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{ask}})
						if err == nil && d.Allowed {
							admitted[limit] += cost
							_ = r.Settle(context.WithoutCancel(t.Context()), cost)
						}
					case rng.IntN(3) == 0:
						rs := []stint.Request{{Asks: []stint.Ask{ask}}, {Asks: []stint.Ask{ask}}}
						answers := make([]stint.Answer, len(rs))
						f.TakeBatch(t.Context(), rs, answers)
						for i := range answers {
							if answers[i].Allowed {
								admitted[limit] += cost
							}
						}
					default:
						if d, err := l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{ask}}, nil); err == nil && d.Allowed {
							admitted[limit] += cost
						}
					}
					if rng.IntN(4) == 0 {
						time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
					}
				}
				for _, limit := range limits {
					most := limit.Capacity()
					if limit.Spec().Algorithm == stint.TokenBucket {
						most += int64(time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))*100/(24*time.Hour)) + 1
					}
					if n := admitted[limit]; n > most || n < limit.Capacity()/4 {
						t.Errorf("%s: %d admitted", limit, n)
					}
				}
			})
		})
	}
}
