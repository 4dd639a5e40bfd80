package stint_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// What is used and what remains make up the capacity, also where more is used than that.
func TestUsed(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_log", "sliding_window"} {
		synctest.Test(t, func(t *testing.T) {
			var l stint.Limiter
			ten, four := stint.MustLimit("10 per 1h "+algorithm), stint.MustLimit("4 per 1h "+algorithm)
			for _, c := range []struct {
				limit           *stint.Limit
				cost            int64
				used, remaining int64
			}{
				{ten, 0, 0, 10}, {ten, 3, 3, 7}, {ten, 8, 3, 7}, {ten, 7, 10, 0}, {ten, 1, 10, 0}, {four, 0, 4, 0},
			} {
				d, err := l.AllowN(t.Context(), "k", c.limit, c.cost)
				if err != nil || d.Used() != c.used || d.Remaining != c.remaining {
					t.Errorf("%s, cost %d: %d used, %d left, %v", c.limit, c.cost, d.Used(), d.Remaining, err)
				}
			}
			time.Sleep(time.Second) // of a bucket, a part of a unit has come back
			if d, _ := l.Peek(t.Context(), "k", ten); d.Used() != 10 {
				t.Errorf("%s: %d used", algorithm, d.Used())
			}
		})
	}
	if d := (stint.Decision{Outcome: stint.Banned}); d.Used() != 0 {
		t.Errorf("%d used of no limit", d.Used())
	}
}
