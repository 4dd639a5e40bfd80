package limittest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// checkLongLogs compares logs of hundreds of charges, several of them at one instant, with the
// Model, after many have expired or were refunded: a Store may keep a log in blocks.
func checkLongLogs(t testing.TB, e *env) {
	var model Model
	s, random := e.open(), rand.New(rand.NewPCG(e.seed, 17))
	_, refunds := stint.As[stint.Refunder](s)
	limits := []*stint.Limit{
		mustLimit(stint.Spec{Name: "ones", Algorithm: stint.SlidingLog, Amount: 600, Period: 10 * time.Second}),
		mustLimit(stint.Spec{Name: "mixed", Algorithm: stint.SlidingLog, Amount: 100_000, Period: 10 * time.Second}),
		mustLimit(stint.Spec{Name: "large", Algorithm: stint.SlidingLog, Amount: 1 << 51, Period: 365 * 24 * time.Hour}),
	}
	at := time.UnixMicro(1_700_000_000_000_000)
	t.Logf("seed %d", e.seed)
	for i := range 900 {
		l := limits[random.IntN(len(limits))]
		a := stint.Ask{Key: "long", Limit: l, Cost: 1}
		if l != limits[0] && random.IntN(3) == 0 {
			a.Cost = 1 + random.Int64N(l.Capacity()/400)
		}
		verb := "take"
		switch random.IntN(40) {
		case 0:
			if refunds {
				verb, a.Cost = "refund", 1+random.Int64N(l.Capacity()/2)
			}
		case 1, 2:
			a.Cost = 1 + random.Int64N(l.Capacity()) // its RetryAfter says when how many have expired
		case 3:
			a.Peek = true
		}
		m := &move{verb: verb, req: stint.Request{At: at, Asks: []stint.Ask{a}}}
		want, _, _ := play(t, m, &model)
		got, _, _ := play(t, m, s)
		if got != want {
			t.Fatalf("seed %d, step %d: %T answers %s %s:\n got %s\nwant %s", e.seed, i, s, verb, showAsk(&a), show(&got), show(&want))
		}
		switch random.IntN(12) {
		case 0:
			at = at.Add(time.Duration(random.IntN(300)) * time.Millisecond)
		case 1, 2, 3, 4, 5:
			at = at.Add(time.Duration(random.IntN(10_000)) * time.Microsecond)
		case 6:
			at = at.Add(time.Duration(random.IntN(3)) * time.Microsecond)
		}
	}
}
