package algo

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
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

// Answers to calls come in runs. What no script says is an error, and never more than what exact
// arithmetic holds.
func TestReadCalled(t *testing.T) {
	p, err := NewPlan(FixedWindow, 100, time.Hour, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	head := func(runs, charges uint16) []byte {
		b := append56(append56(append56(append56(nil, 1e15), 10), 0), 0)
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, runs), charges)
	}
	run := func(b []byte, n uint16, found byte, held, step, lasts int64) []byte {
		return append56(append56(append56(append(binary.BigEndian.AppendUint16(b, n), found), held), step), lasts)
	}
	runs := run(run(run(head(3, 1), 3, 1, 20, 5, 900), 2, 0, 20, 0, 900), 1, 1, 15, 0, 0)
	same := string(append56(runs, 4))
	each := slices.Clone(runs)
	each[31] = 6
	for _, n := range []int64{4, 3, 2, 0, 0, 1} {
		each = append56(each, n)
	}
	type want struct {
		found                    bool
		charged, held, remaining int64
	}
	for _, c := range []struct {
		answer string
		want   []want
	}{
		{same, []want{{true, 4, 30, 56}, {true, 4, 25, 57}, {true, 4, 20, 58}, {false, 0, 20, 58}, {false, 0, 20, 58}, {true, 4, 15, 59}}},
		{string(each), []want{{true, 4, 30, 56}, {true, 3, 25, 58}, {true, 2, 20, 61}, {false, 0, 20, 61}, {false, 0, 20, 61}, {true, 1, 15, 65}}},
	} {
		if n, err := CalledSize(c.answer + "more"); err != nil || n != len(c.answer) {
			t.Errorf("%d bytes, %v: want %d", n, err, len(c.answer))
		}
		for place, w := range c.want {
			got, err := p.ReadCalled(c.answer, place)
			if g := (want{got.Found, got.Charged, got.Held, got.Remaining}); err != nil || g != w {
				t.Errorf("call %d: %+v, %v: want %+v", place, g, err, w)
			}
		}
		if got, err := p.ReadCalled(c.answer, len(c.want)); err == nil {
			t.Errorf("a call too many: %+v", got)
		}
		for n := range len(c.answer) {
			if got, err := p.ReadCalled(c.answer[:n], 0); err == nil {
				t.Errorf("%d bytes of it: %+v", n, got)
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		b := []byte(each)
		for range 1 + rng.IntN(4) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		if got, err := p.ReadCalled(string(b), rng.IntN(6)); err == nil && (got.Remaining < 0 || got.Remaining > 100 || got.Held < 0 || got.Held > Exact) {
			t.Fatalf("%x: %+v", b, got)
		}
	}
}
