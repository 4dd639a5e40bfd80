package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/limittest"
)

// Look tells of each ask what Take answers to it next, where the Store is away, and
// takes nothing.
func TestFallbackInspect(t *testing.T) {
	limits := []*stint.Limit{
		stint.MustLimit("6 per 1m"), stint.MustLimit("9 per 1m leaky_bucket"), stint.MustLimit("7 per 1m fixed_window"),
		stint.MustLimit("5 per 1m sliding_log"), stint.MustLimit("12 per 1m sliding_window"),
	}
	for _, instances := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(instances), 2))
			away := false
			f := &fleet.Fallback{Instances: instances, Store: &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) (fault limittest.Fault) {
				if away {
					fault.Err = limittest.ErrFault
				}
				return fault
			}}}
			defer f.Close()
			for range 20 { // which f learns from
				r := &stint.Request{Asks: []stint.Ask{{Key: fmt.Sprint(random.IntN(3)), Limit: limits[random.IntN(len(limits))], Cost: 1}}}
				if _, err := f.Take(t.Context(), r, nil); err != nil {
					t.Fatal(err)
				}
			}
			away = true
			for step := range 500 {
				r := &stint.Request{}
				for i, l := range limits[:1+random.IntN(len(limits))] {
					r.Asks = append(r.Asks, stint.Ask{Key: fmt.Sprint(random.IntN(3)), Limit: l, OnError: stint.OnError(i % 2)})
					stint.Internal(friend.Of{}).SetUnits(&r.Asks[len(r.Asks)-1], int64(random.IntN(4)))
				}
				seen, again := make([]stint.Decision, len(r.Asks)), make([]stint.Decision, len(r.Asks))
				for _, out := range [][]stint.Decision{seen, again} {
					if err := f.Look(r, out); err != nil {
						t.Fatal(err)
					}
				}
				for i, d := range seen {
					if d != again[i] {
						t.Fatalf("step %d: a look took something: %+v, then %+v", step, d, again[i])
					}
					one := r.Asks[i]
					one.OnError = stint.OnErrorLocal
					got, err := f.Take(t.Context(), &stint.Request{Asks: []stint.Ask{one}}, nil)
					if err != nil || got.Allowed != d.Allowed || got.RetryAfter != d.RetryAfter || got.By != stint.ByLocal || d.By != stint.ByLocal {
						t.Fatalf("step %d, %s, cost %d: looked %+v, took %+v, %v", step, one.Limit, one.Units(), d, got, err)
					}
				}
				time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
			}
		})
	}
}
