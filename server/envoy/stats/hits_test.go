package stats

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// unitByUnit is split in the obvious way: each unit has a position in the limit.
func unitByUnit(before, cost, limit uint64, ratio float32) (h hits) {
	near := uint64(math.Floor(float64(float32(limit) * ratio)))
	h[totalHits] = cost
	for at := before + 1; at <= before+cost; at++ {
		switch {
		case at > limit:
			h[overLimit]++
		case at > near:
			h[nearLimit]++
		}
	}
	if before+cost <= limit {
		h[withinLimit] = cost
	}
	return h
}

func TestSplitUnitByUnit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	limits := map[int64]*stint.Limit{}
	for range 20_000 {
		amount := 1 + random.Int64N(40)
		if limits[amount] == nil {
			l, err := stint.NewLimit(stint.Spec{Algorithm: stint.FixedWindow, Amount: amount, Period: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			limits[amount] = l
		}
		before, cost := random.Uint64N(uint64(amount)+1), 1+random.Uint64N(50)
		ratio := []float32{0, 0.5, 0.8, 1}[random.IntN(4)]
		d := stint.Decision{Limit: limits[amount], Outcome: stint.Limited, Remaining: amount - int64(before)}
		if before+cost <= uint64(amount) {
			d.Allowed, d.Outcome, d.Remaining = true, stint.Allowed, amount-int64(before+cost)
		}
		q := question{cost: cost, ratio: ratio}
		want := unitByUnit(before, cost, uint64(amount), ratio)
		if got := q.split(&d); got != want {
			t.Fatalf("%d units after %d of %d, ratio %g: %v, want %v", cost, before, amount, ratio, got, want)
		}
		q.shadow, want[shadowMode] = true, want[overLimit]
		if got := q.split(&d); got != want {
			t.Fatalf("in shadow mode: %v, want %v", got, want)
		}
	}
}

// The numbers of envoyproxy/ratelimit's own tests, and what has no place in the model.
func TestSplitStory(t *testing.T) {
	limit := stint.MustLimit("20 per 1m fixed_window")
	allowed := func(remaining int64, by stint.Source) stint.Decision {
		return stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: limit, Remaining: remaining, By: by}
	}
	refused := func(remaining int64) stint.Decision {
		return stint.Decision{Outcome: stint.Limited, Limit: limit, Remaining: remaining}
	}
	remembered := refused(2)
	remembered.Remembered = true
	leased := refused(2)
	leased.By = stint.ByLease
	banned := refused(5)
	banned.Outcome = stint.Banned
	zero := refused(1)
	tests := []struct {
		name string
		q    question
		d    stint.Decision
		want hits
	}{
		{"far from the limit", question{cost: 1}, allowed(19, 0), hits{totalHits: 1, withinLimit: 1}},
		{"the last of 80 %", question{cost: 1}, allowed(4, 0), hits{totalHits: 1, withinLimit: 1}},
		{"the first above 80 %", question{cost: 1}, allowed(3, 0), hits{totalHits: 1, withinLimit: 1, nearLimit: 1}},
		{"3 across 80 %", question{cost: 3}, allowed(2, 0), hits{totalHits: 3, withinLimit: 3, nearLimit: 2}},
		{"first of two descriptors of one count", question{cost: 3, later: 2}, allowed(2, 0), hits{totalHits: 3, withinLimit: 3}},
		{"7 where 5 are left", question{cost: 7}, refused(5), hits{totalHits: 7, overLimit: 2, nearLimit: 4}},
		{"refused by a hold, though it would fit", question{cost: 1}, refused(5), hits{totalHits: 1, overLimit: 1}},
		{"remembered", question{cost: 3}, remembered, hits{totalHits: 3, overLimit: 3, overLimitWithLocalCache: 3}},
		{"refused by a lease", question{cost: 3}, leased, hits{totalHits: 3, overLimit: 3, overLimitWithLocalCache: 3}},
		{"remembered, in shadow mode", question{cost: 3, shadow: true}, remembered, hits{totalHits: 3, overLimit: 3, overLimitWithLocalCache: 3, shadowMode: 3}},
		{"banned", question{cost: 7}, banned, hits{totalHits: 7, overLimit: 7}},
		{"0 per minute", question{cost: 2, nothing: true}, zero, hits{totalHits: 2, overLimit: 2}},
		{"allowed without the store", question{cost: 2}, allowed(0, stint.ByPolicy), hits{totalHits: 2, withinLimit: 2}},
		{"undecided", question{cost: 2}, stint.Decision{}, hits{totalHits: 2}},
		{"a question of nothing", question{}, allowed(0, 0), hits{}},
	}
	for _, test := range tests {
		test.q.ratio = 0.8
		if got := test.q.split(&test.d); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
