package algo

import (
	"math/rand/v2"
	"testing"
	"time"
)

// What is decided in one go is what is decided in steps.
func TestDecideSmall(t *testing.T) {
	decided := map[[3]bool]int{}
	for range 300_000 {
		kind := Kind(rand.IntN(int(FixedWindow) + 1))
		var burst int64
		if kind != FixedWindow {
			burst = rand.Int64N(1 << rand.IntN(20))
		}
		p, err := NewPlan(kind, 1+rand.Int64N(1<<rand.IntN(30)), time.Duration(1+rand.Int64N(1<<rand.IntN(32)))*time.Millisecond, burst, 0)
		if err != nil {
			continue
		}
		last := rand.Int64N(1 << 50)
		now := last + rand.Int64N(3*p.Period)/(1+rand.Int64N(9)) - rand.Int64N(2)*rand.Int64N(3*p.Period)
		used, n := rand.Int64N(p.Full+1), rand.Int64N(2+p.Capacity/(1+rand.Int64N(9)))
		v := p.LookSmall(last, used, now)
		fits := p.Fits(&v, n)
		want := p.SettleSmall(&v, n, fits)
		got := Verdict{Retry: 7, Delay: 7}
		at, level := p.DecideSmall(last, used, now, n, &got)
		if got != want || fits && (at != v.Now || level != v.Used) {
			t.Fatalf("%+v: last %d, used %d, now %d, cost %d: %+v, at %d %d; want %+v, at %d %d", p, last, used, now, n, got, at, level, want, v.Now, v.Used)
		}
		decided[[3]bool{p.Kind != FixedWindow && p.Tick == 1 && last <= now, fits, kind == LeakyBucket}]++
	}
	for _, what := range [][3]bool{
		{false, false, false}, {false, false, true}, {false, true, false}, {false, true, true},
		{true, false, false}, {true, false, true}, {true, true, false}, {true, true, true},
	} {
		if n := decided[what]; n < 1000 {
			t.Errorf("in one go, fits, leaky: %v: only %d", what, n)
		}
	}
}
