package lookup

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// What a look without MaxDelay says of an ask is, with limitDelay, what one with MaxDelay would.
func TestLimitDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		refused := 0
		for i := range 5000 {
			memory := new(stint.Memory)
			l := stint.MustLimit(fmt.Sprintf("%d per %dms leaky_bucket burst %d", 1+random.Int64N(50), 1+random.Int64N(5000), 1+random.Int64N(20)))
			for range random.IntN(12) {
				if _, err := stint.NewLimiter(memory).AllowN(t.Context(), "k", l, 1+random.Int64N(3)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(random.Int64N(int64(l.Spec().Period / 4))))
			}
			a := stint.Ask{Key: "k", Limit: l, Cost: 1 + random.Int64N(4), MaxDelay: time.Duration(random.Int64N(int64(l.Spec().Period))) - time.Millisecond}
			var with, without [1]stint.Decision
			look := func(a stint.Ask, out []stint.Decision) {
				if err := internal.DryRun(t.Context(), memory, &stint.Request{Asks: []stint.Ask{a}}, out); err != nil {
					t.Fatal(err)
				}
			}
			look(a, with[:])
			plain := a
			plain.MaxDelay = 0
			look(plain, without[:])
			got := without[0]
			limitDelay(&a, &got)
			if want := with[0]; got.Allowed != want.Allowed || got.Outcome != want.Outcome || got.RetryAfter != want.RetryAfter {
				t.Fatalf("%d: %s, %d within %s: %v, retry after %s, want %v, retry after %s (delay %s, reset %s)", i, l, a.Cost, a.MaxDelay, got.Outcome, got.RetryAfter, want.Outcome, want.RetryAfter, without[0].Delay, without[0].ResetAfter)
			}
			if !with[0].Allowed && without[0].Allowed {
				refused++
			}
		}
		if refused < 300 {
			t.Errorf("only %d were refused for their delay", refused)
		}
	})
}
