package algo

import (
	"testing"
	"time"
)

// Usage may rise to the capacity and the debt, and never above what exact arithmetic holds.
func TestDebt(t *testing.T) {
	for _, c := range []struct {
		name          string
		kind          Kind
		amount        int64
		period        time.Duration
		burst, debt   int64
		most, charged int64 // units: of any number, from unused
	}{
		{"a bucket, as much again", TokenBucket, 10, time.Second, 0, 0, 20, 20},
		{"a leaky one, too", LeakyBucket, 10, time.Second, 25, 0, 50, 50},
		{"a bucket with a debt", TokenBucket, 10, time.Second, 25, 3, 28, 28},
		{"none", TokenBucket, 10, time.Second, 25, -1, 25, 25},
		{"a window, without bound", FixedWindow, 10, time.Second, 0, 0, Exact - 1, Exact - 1},
		{"a log, without bound", SlidingLog, 10, time.Second, 0, 0, Exact - 1, Exact - 1},
		{"a log without debt", SlidingLog, 10, time.Second, 0, -1, 10, 10},
		{"a sliding window, to the bound of its products", SlidingWindow, 10, time.Second, 0, 0, (Exact - 1) / 100_000, (Exact - 1) / 100_000},
		{"a sliding window with a debt", SlidingWindow, 10, time.Second, 0, 5, 15, 15},
		{"a bucket that has no more numbers", TokenBucket, 1, time.Second, (Exact - 1) / 1_000_000, 0, (Exact - 1) / 1_000_000, (Exact - 1) / 1_000_000},
		{"a window with all numbers", FixedWindow, Exact - 1, time.Second, 0, 7, Exact - 1, Exact - 1},
		{"in flight", InFlight, 10, 0, 0, 0, 0, 0},
	} {
		p, err := NewPlan(c.kind, c.amount, c.period, c.burst, 0)
		if err == nil {
			err = p.SetDebt(c.debt)
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var s State
		const now = 1_700_000_000_000_000
		v := p.Look(&s, now)
		if got := p.Room(&v); got != c.most {
			t.Errorf("%s: room for %d, want %d", c.name, got, c.most)
		}
		if got := p.Charge(&s, &v, 1<<62); got != c.charged {
			t.Errorf("%s: %d charged, want %d", c.name, got, c.charged)
		}
		if v = p.Look(&s, now); p.Room(&v) != 0 || p.Charge(&s, &v, 1) != 0 || p.Look(&s, now).Used != c.charged*p.Unit {
			t.Errorf("%s: room for %d then, %d parts used", c.name, p.Room(&v), p.Look(&s, now).Used)
		}
		if d := p.Standing(&s, &v); d.Remaining != max(0, p.Capacity-c.charged) && c.kind != InFlight {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
	for _, debt := range []int64{-2, Exact} {
		p, _ := NewPlan(FixedWindow, 10, time.Second, 0, 0)
		if err := p.SetDebt(debt); err == nil {
			t.Errorf("debt %d: no error", debt)
		}
	}
}
