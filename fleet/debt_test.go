package fleet

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
)

// bucketPlans are of buckets, among them some that count in ms.
func bucketPlans(t *testing.T) (all []*algo.Plan) {
	coarse := 0
	for _, text := range []string{"10 per 1s", "7 per 3s burst 12", "3 per 1s leaky_bucket burst 4", "1000 per 1ms", "100003 per 24h", "999983 per 1m burst 100000000"} {
		p := planOf(stint.MustLimit(text))
		if all = append(all, p); p.Tick > 1 {
			coarse++
		}
	}
	if coarse < 2 {
		t.Fatal("no bucket counts in ms")
	}
	return all
}

// up is how long a bucket takes to lose so many parts, µs, rounded up to a tick.
func up(p *algo.Plan, parts int64) int64 { return (parts + p.Rate - 1) / p.Rate * p.Tick }

// From the time until all of a bucket has run out follows when what was there before a
// charge has: never later than it does, and at most two ticks sooner.
func TestRunsDry(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 5))
	for _, p := range bucketPlans(t) {
		for range 5000 {
			before := g.Int64N(p.Full)
			cost := 1 + g.Int64N((p.Full-before)/p.Unit+1)
			want := up(p, before)
			if got := runsDry(p, up(p, before+cost*p.Unit), cost); got > want || got < want-2*p.Tick || got < 0 {
				t.Fatalf("%+v: %d parts and %d units more: %d µs, want %d", p, before, cost, got, want)
			}
		}
	}
	if got := runsDry(planOf(stint.MustLimit("10 per 1s fixed_window")), 500, 1); got != 0 {
		t.Errorf("a window runs dry after %d µs", got)
	}
}

// What is held may last longer than what is used. Then when the latter has run out follows
// from how many units are left: at most a unit too soon, and no later than if all of the
// last unit were used.
func TestUsedUntil(t *testing.T) {
	g := rand.New(rand.NewPCG(2, 5))
	for _, p := range bucketPlans(t) {
		for range 5000 {
			used := g.Int64N(p.Full)
			free := (p.Full - used) / p.Unit
			held := g.Int64N(free + 1)
			want, lasts := up(p, used), g.Int64N(2*up(p, p.Full))
			reset := want
			if held > 0 {
				reset = max(want, lasts)
			}
			got := usedUntil(p, free-held, held, time.Duration(reset)*time.Microsecond)
			most := max(want, min(reset, up(p, (used+p.Unit-1)/p.Unit*p.Unit)))
			if got > most || got < want-p.Unit/p.Rate*p.Tick-2*p.Tick || reset == want && got != want {
				t.Fatalf("%+v: %d parts used and %d units held until %d: %d µs, want %d", p, used, held, reset, got, want)
			}
		}
	}
}
