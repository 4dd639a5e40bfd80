package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/attack"
)

// Whatever is done at once to the layers that a server is made of, on one key, no more
// is admitted than the limits of keys that nobody undoes anything of, nobody is without
// an answer, and what the layers hold ends with them. It is for the race detector most
// of all.
func TestAttackRaces(t *testing.T) {
	ends := time.Now().Add(attack.Time(t, time.Second/2))
	for round := uint64(0); round == 0 || time.Now().Before(ends); round++ {
		s := newStack(t, nil)
		limits := append(stackLimits(), named("200 per 1h lease 20%"), named("300 per 1h fixed_window lease 20%"))
		never := []*stint.Limit{named("500 per 1h fixed_window"), named("500 per 1h sliding_log"), named("500 per 24h")}
		p := penalty(t, stint.PenaltySpec{Name: "one", WarnAfter: 40, BanAfter: 90, BanFor: 5 * time.Millisecond, ForgetAfter: time.Second})
		admitted := make([]atomic.Int64, len(never))
		var local atomic.Int64 // decided here, because a machine under load missed the deadline
		var all sync.WaitGroup
		for n := range uint64(8) {
			all.Go(func() {
				g := &requests{rand.New(rand.NewPCG(round, n)), limits, []*stint.Penalty{p}}
				for range 600 {
					r := g.draw()
					each := make([]stint.Decision, len(r.Asks))
					d, err := s.Take(t.Context(), &r, each)
					if err != nil || d.Outcome == 0 {
						t.Errorf("%+v: %+v, %v", r.Asks, d, err)
					}
					a := &r.Asks[0]
					var what error
					switch g.IntN(12) {
					case 0:
						what = refundAll(t.Context(), s.Store, &r, each)
					case 1:
						what = s.Reset(t.Context(), a.Key, a.Limit)
					case 2:
						_, what = s.Pardon(t.Context(), a.Key, p)
					case 3:
						_, what = s.Violate(t.Context(), a.Key, p)
					case 4:
						s.fleet.ForgetDenials()
					case 5:
						s.fleet.Forget(&stint.Request{Asks: []stint.Ask{{Key: a.Key, Penalty: p}}})
					case 6:
						inspector, _ := stint.As[stint.Inspector](s.Store)
						_, what = inspector.Inspect(t.Context(), a.Key, limits)
					}
					_ = what // what was not allowed is not refunded
					k := g.IntN(len(never))
					if d, err := s.Allow(t.Context(), "never", never[k]); err != nil {
						t.Error(err)
					} else if d.By == stint.ByLocal {
						local.Add(1)
					} else if d.Allowed {
						admitted[k].Add(1)
					}
				}
			})
		}
		all.Wait()
		for k, l := range never {
			most := int64(500)
			if l.Spec().Algorithm == stint.TokenBucket {
				most++ // which has come back by now, at most
			}
			if n := admitted[k].Load(); n > most || n+local.Load() < 500 {
				t.Errorf("round %d: %d were admitted under %s", round, n, l)
			}
		}
		// And while the store comes and goes: everybody is answered.
		for n := range uint64(8) {
			all.Go(func() {
				g := &requests{rand.New(rand.NewPCG(round, 100+n)), limits, []*stint.Penalty{p}}
				for i := range 200 {
					if n == 0 && i%20 == 0 {
						s.away.Store(!s.away.Load())
					}
					r := g.draw()
					if d, err := s.Take(t.Context(), &r, nil); err != nil || d.Outcome == 0 {
						t.Errorf("%+v: %+v, %v", r.Asks, d, err)
					}
				}
			})
		}
		all.Go(func() { time.Sleep(time.Millisecond); s.fleet.Close() }) // beside those that ask
		all.Wait()
		s.close()
		if t.Failed() {
			t.Fatal(fmt.Sprint("round ", round))
		}
	}
}
