package stint

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func fill(t *testing.T, l *Limiter, limit *Limit, prefix string, n int) (refused int) {
	t.Helper()
	for i := range n {
		if _, err := l.Allow(t.Context(), fmt.Sprint(prefix, i), limit); errors.Is(err, ErrFull) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return refused
}

// A flood of new keys never hands an exhausted key a fresh limit, and never makes
// the store larger than its bound.
func TestFloodSparesExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{MaxKeys: 1000}
		l := NewLimiter(m)
		limit := MustLimit("5 per 1h")
		for range 5 {
			fill(t, l, limit, "exhausted", 10)
		}
		if refused := fill(t, l, limit, "flood", 100_000); refused > 0 {
			t.Errorf("%d newcomers refused while keys that used a fifth could go", refused)
		}
		for i := range 10 {
			if d, err := l.Allow(t.Context(), fmt.Sprint("exhausted", i), limit); err != nil || d.Allowed {
				t.Errorf("exhausted%d was allowed again: %+v, %v", i, d, err)
			}
		}
		if n := m.Len(); n > 1000 {
			t.Errorf("%d keys, more than the bound", n)
		}
	})
}

// Where every key is exhausted, newcomers are not decided rather than old keys
// forgotten; once keys are unused, newcomers take their place.
func TestFullOfExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Memory{MaxKeys: 100}
		l := NewLimiter(m)
		limit := MustLimit("1 per 1m")
		if refused := fill(t, l, limit, "a", 100); refused != 0 {
			t.Fatalf("%d refused before the store was full", refused)
		}
		if refused := fill(t, l, limit, "b", 50); refused != 50 {
			t.Errorf("%d of 50 refused, want all", refused)
		}
		r := Request{Asks: []Ask{{Key: "a0", Limit: MustLimit("9 per 1h"), Cost: 1}, {Key: "c", Limit: limit, Cost: 1}}}
		if _, err := l.Take(t.Context(), &r, nil); !errors.Is(err, ErrFull) || m.Len() != 100 {
			t.Errorf("two counts more: %v, %d keys", err, m.Len())
		}
		time.Sleep(time.Minute)
		if refused := fill(t, l, limit, "b", 100); refused != 0 {
			t.Errorf("%d refused though all keys are unused", refused)
		}
	})
}

// One unused key is found among many exhausted ones.
func TestUnusedGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(&Memory{MaxKeys: 100})
		fill(t, l, MustLimit("1 per 1m"), "short", 1)
		fill(t, l, MustLimit("1 per 1h"), "long", 99)
		time.Sleep(time.Minute)
		if refused := fill(t, l, MustLimit("1 per 1h"), "new", 1); refused != 0 {
			t.Error("refused though one key is unused")
		}
	})
}

// What is unused goes while others come, so that a store far below its bound does
// not grow with all keys that ever were.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		l := NewLimiter(m)
		limit := MustLimit("1 per 1s")
		most := 0
		for i := range 100 {
			fill(t, l, limit, fmt.Sprint(i, "/"), 1000)
			most = max(most, m.Len())
			time.Sleep(time.Second)
		}
		if most > 3000 {
			t.Errorf("%d keys at once, 1000 in use", most)
		}
	})
}

// A key that a request has found unused must not be swept away by the room that
// the same request makes for another.
func TestPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(&Memory{MaxKeys: 2})
		limit := MustLimit("1 per 1s")
		fill(t, l, limit, "a", 2)
		time.Sleep(time.Second)
		r := Request{Asks: []Ask{{Key: "a0", Limit: limit, Cost: 1}, {Key: "a1", Limit: limit, Cost: 1}}}
		if d, err := l.Take(t.Context(), &r, nil); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		time.Sleep(time.Second)
		r.Asks[1].Key = "b"
		if d, err := l.Take(t.Context(), &r, nil); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		for _, key := range []string{"a0", "b"} {
			if d, err := l.Allow(t.Context(), key, limit); err != nil || d.Allowed {
				t.Errorf("%s was charged and is allowed again: %+v, %v", key, d, err)
			}
		}
	})
}

// A ban outlives a flood, and a full store still refuses.
func TestFloodSparesBanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(&Memory{MaxKeys: 100})
		limit := MustLimit("2 per 1s")
		p, err := NewPenalty(PenaltySpec{BanAfter: 1, BanFor: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Asks: []Ask{{Key: "bad", Limit: limit, Cost: 1, Penalty: p}}}
		for range 3 {
			if _, err := l.Take(t.Context(), &r, nil); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			fill(t, l, limit, "flood", 10_000)
			time.Sleep(time.Second)
		}
		if d, err := l.Take(t.Context(), &r, nil); err != nil || d.Outcome != Banned || d.Penalty != p {
			t.Errorf("the ban was forgotten: %+v, %v", d, err)
		}
		if found, err := l.Pardon(t.Context(), "bad", p); !found || err != nil {
			t.Fatal(found, err)
		}
		if d, err := l.Take(t.Context(), &r, nil); err != nil || !d.Allowed {
			t.Errorf("pardoned, and refused: %+v, %v", d, err)
		}
	})
}

// Deciding costs no allocation, for as many asks as fit on the stack, and also where
// the request is made for it.
func TestFewAllocations(t *testing.T) {
	var l Limiter
	limits := append(oneOfEach(1_000_000), MustLimit("100 per 1ms sliding_log"), MustLimit("3 per 1s"), MustLimit("3 per 1s fixed_window"))
	for n := 1; n <= fewAsks; n++ {
		take := func(cost int64) {
			var asks [fewAsks]Ask
			var out [fewAsks]Decision
			for i := range n {
				asks[i] = Ask{Key: "k", Limit: limits[i], Cost: cost, Peek: cost == 0}
			}
			if _, err := l.Take(t.Context(), &Request{Asks: asks[:n]}, out[:n]); err != nil {
				t.Error(err)
			}
		}
		if got := testing.AllocsPerRun(1000, func() { take(1); take(0) }); got != 0 {
			t.Errorf("%d asks: %g allocations", n, got)
		}
	}
	for _, limit := range limits {
		if got := testing.AllocsPerRun(5000, func() { _, _ = l.Allow(t.Context(), "one", limit) }); got != 0 {
			t.Errorf("%s: %g allocations", limit, got)
		}
	}
}

// A layer that asks twice for one count, which Check would refuse, gets an error, and
// nothing stays locked.
func TestAskedTwice(t *testing.T) {
	for _, limit := range oneOfEach(10) {
		m := new(Memory)
		a := Ask{Key: "k", Limit: limit, Cost: 1}
		for range 3 {
			if d, err := m.Take(t.Context(), &Request{Asks: []Ask{a}}, nil); err != nil || !d.Allowed {
				t.Fatalf("%s: %+v, %v", limit, d, err)
			}
			other := Ask{Key: "other", Limit: limit, Cost: 1}
			if _, err := m.Take(t.Context(), &Request{Asks: []Ask{other, a, a}}, nil); !errors.Is(err, ErrRequest) {
				t.Fatalf("%s: %v", limit, err)
			}
		}
		if d, err := m.Take(t.Context(), &Request{Asks: []Ask{a}}, nil); err != nil || d.Remaining != 6 {
			t.Errorf("%s: %+v, %v", limit, d, err)
		}
	}
}

// oneOfEach is a limit of each algorithm, of an amount in so long that nothing comes
// back while a test runs.
func oneOfEach(amount int) (all []*Limit) {
	for a := TokenBucket; a <= SlidingWindow; a++ {
		all = append(all, MustLimit(fmt.Sprintf("%d per 200d %s", amount, a)))
	}
	return all
}

func BenchmarkMemory(b *testing.B) {
	for _, text := range []string{"1000000000 per 1h", "1000000000 per 1h leaky_bucket", "1000000000 per 1h fixed_window", "1000000 per 1s sliding_log", "1000000000 per 1h sliding_window"} {
		limit := MustLimit(text)
		name := limit.Spec().Algorithm.String()
		b.Run("hot/"+name, func(b *testing.B) {
			var l Limiter
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(b.Context(), "user:42", limit)
			}
		})
	}
	limit := MustLimit("1 per 1h")
	b.Run("hot/denied", func(b *testing.B) {
		var l Limiter
		b.ReportAllocs()
		for b.Loop() {
			_, _ = l.Allow(b.Context(), "user:42", limit)
		}
	})
	const million = 1_000_000
	keys := make([]string, million)
	for i := range keys {
		keys[i] = fmt.Sprint("user:", i)
	}
	for _, text := range []string{"100 per 24h", "100 per 24h leaky_bucket", "100 per 24h fixed_window", "100 per 24h sliding_log", "100 per 24h sliding_window"} {
		limit := MustLimit(text)
		b.Run("1M/"+limit.Spec().Algorithm.String(), func(b *testing.B) {
			l := NewLimiter(&Memory{MaxKeys: 2 * million})
			for _, k := range keys {
				_, _ = l.Allow(b.Context(), k, limit)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i = (i + 7919) % million
				_, _ = l.Allow(b.Context(), keys[i], limit)
			}
		})
	}
}

// New keys come in, tables grow, and what is unused is dropped: the slowest decision
// of all, beside the slowest of a loop that only reads the clock in the same way.
func BenchmarkSlowest(b *testing.B) {
	limit := MustLimit("1 per 1s")
	for b.Loop() {
		l := NewLimiter(&Memory{MaxKeys: 5_000_000})
		var slowest, idle time.Duration
		var key [16]byte
		last := time.Now()
		for i := range 5_000_000 {
			_, _ = l.Allow(b.Context(), string(strconv.AppendInt(key[:0], int64(i), 10)), limit)
			now := time.Now()
			slowest, last = max(slowest, now.Sub(last)), now
		}
		for range 50_000_000 {
			now := time.Now()
			idle, last = max(idle, now.Sub(last)), now
		}
		b.ReportMetric(float64(slowest.Microseconds()), "µs-slowest")
		b.ReportMetric(float64(idle.Microseconds()), "µs-idle")
	}
}
