package counts

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// What a word holds comes out of it again, or is refused.
func TestWords(t *testing.T) {
	for range 200_000 {
		bits := rand.IntN(mostUsedBits) + 1
		p, err := algo.NewPlan(algo.FixedWindow, 1<<bits-1, time.Second, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		base := uint64(rand.Int64N(1<<52)>>baseShift)<<planBits | rand.Uint64N(1<<planBits)
		last := int64(base>>planBits<<baseShift) + rand.Int64N(1<<50)>>rand.IntN(50) - rand.Int64N(2)
		used := rand.Int64N(1 << 52 >> rand.IntN(52))
		word, ok := pack(last, used, base, &p)
		since := last - int64(base>>planBits<<baseShift)
		fits := since >= 0 && since < 1<<(stateBits-bits) && used <= p.Full
		if ok != fits {
			t.Fatalf("last %d, base %x, used %d of %d: fits is %v", last, base, used, p.Full, ok)
		}
		if !ok {
			continue
		}
		if l, u := read(word|rand.Uint64()&editions, base, &p); l != last || u != used {
			t.Fatalf("%d %d came back as %d %d", last, used, l, u)
		}
	}
}

// Every count is found again, with what was charged, however often its table has
// grown, and also what found no slot in it.
func TestTableKeepsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 50_000
		m := opened(keys * 20 / 19)
		limits := []*Limit{newLimit(algo.TokenBucket, 1000, day, 0, 0), newLimit(algo.FixedWindow, 1000, day, 0, 0), newLimit(algo.LeakyBucket, 7, day, 0, 0)}
		for round := range 3 {
			for i := range keys {
				if _, err := m.takeKey(fmt.Sprint(i), limits[i%3], int64(i%3+1)); err != nil {
					t.Fatal(i, err)
				}
			}
			if m.Len() != keys {
				t.Fatalf("%d counts of %d", m.Len(), keys)
			}
			for i := range keys {
				used := int64(round+1) * int64(i%3+1)
				d, err := m.takeKey(fmt.Sprint(i), limits[i%3], 0)
				if want := max(limits[i%3].Plan.Capacity-used, 1); err != nil || d.Remaining != want {
					t.Fatalf("%d: %d left, want %d, %v", i, d.Remaining, want, err)
				}
			}
			time.Sleep(time.Millisecond)
		}
		spilled := 0
		for i := range m.shards {
			spilled += len(m.shards[i].all)
		}
		if spilled > keys/100 {
			t.Errorf("%d of %d counts found no slot", spilled, keys)
		}
		t.Logf("%d of %d counts found no slot", spilled, keys)
	})
}

// Many goroutines charge many keys while tables grow under them and counts are
// forgotten: of each key exactly as many units pass as there are.
func TestTableConcurrently(t *testing.T) {
	var keys, callers = 3000, 8
	m := opened(100_000)
	limits := []*Limit{newLimit(algo.FixedWindow, 5, day, 0, 0), newLimit(algo.TokenBucket, 5, 10*day, 0, 0), newLimit(algo.SlidingLog, 5, 9000*day, 0, 0)}
	admitted := make([]atomic.Int64, keys*len(limits))
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for n, i := range rand.Perm(keys * len(limits) * 2) {
				i /= 2
				asks := []Ask{{Key: fmt.Sprint(i / 3), Limit: limits[i%3], Cost: 1}}
				if n%3 == 0 { // by the other road
					asks = append(asks, Ask{Key: fmt.Sprint("passing", n), Limit: limits[0], Cost: 1})
				} else if a := &asks[0]; m.TakeOne(a.Key, a.Limit, 1, OwnClock, &a.Verdict) {
					if a.Verdict.Allowed {
						admitted[i].Add(1)
					}
					continue
				}
				if d, err := m.decide(asks, OwnClock); err != nil {
					t.Error(err)
				} else if asks[d.Of].Verdict.Allowed {
					admitted[i].Add(1)
				}
			}
		})
	}
	all.Wait()
	for i := range admitted {
		if n := admitted[i].Load(); n != 5 {
			t.Fatalf("key %d: %d units of 5 passed, of %d requests", i, n, 2*callers)
		}
	}
}

// Charges that come too late for the words of their counts give them a later base, also
// while others charge, look and refund, by either road.
func TestTableMoves(t *testing.T) {
	const amount, callers, each = 500, 4, 20_000
	limit := newLimit(algo.TokenBucket, 500, 4380*time.Hour, 0, 0) // of which 65 ms fit in a word
	const start = 1 << 50
	m := opened(1_000_000)
	var clock, admitted, moved, returned atomic.Int64
	next := func() int64 { return start + clock.Add(1)*50_000 }
	ask := func(cost int64) []Ask { return []Ask{{Key: "k", Limit: limit, Cost: cost}} }
	if _, err := m.decide(ask(0), next()); err != nil {
		t.Fatal(err)
	}
	last := func() int64 { // charged, µs
		clock.Add(1)
		defer m.lockKey("k").mu.Unlock()
		var c count
		m.look("k", limit, &c)
		c.release()
		return c.opened.Last
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := range each {
				cost, at := int64(i%2), next()
				var d algo.Verdict
				if m.TakeOne("k", limit, cost, at, &d) {
					moved.Add(1)
				} else {
					asks := ask(cost)
					if _, err := m.decide(asks, at); err != nil {
						t.Error(err)
					}
					d = asks[0].Verdict
				}
				if d.Allowed && cost == 1 {
					admitted.Add(1)
				}
				if late := last() - start - clock.Load()*50_000; late > 0 {
					t.Errorf("charged %d µs after the last request", late)
				}
				if i%100 == 99 && d.Remaining < amount-callers*2 {
					m.Refund(ask(1), next())
					returned.Add(1)
				}
			}
		})
	}
	all.Wait()
	// What comes back in all that time is less than one unit.
	if n := admitted.Load() - returned.Load(); n > amount || n < amount-callers {
		t.Errorf("%d units of %d passed, beside %d that were refunded", n, amount, returned.Load())
	}
	if moved.Load() < callers*each/2 {
		t.Errorf("%d of %d requests were decided without the lock", moved.Load(), callers*each)
	}
}

// A count moves between the table and the map as its limit's numbers do or do not
// fit in a word, and keeps what was used.
func TestTableAndMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small, large := newLimit(algo.TokenBucket, 10, 30*day, 0, 0), newLimit(algo.TokenBucket, 10_000_000_000, 30*day, 0, 0)
		if small.planNumber() == noPlan || large.planNumber() == noPlan {
			t.Fatal("both are for the table")
		}
		beyond := newLimit(algo.TokenBucket, 7, 30*day, 0, 0)
		if beyond.planNumber() != noPlan {
			t.Fatal("this should not fit")
		}
		m := opened(1_000_000)
		take := func(limit *Limit, left int64) {
			t.Helper()
			if d, err := m.takeKey("k", limit, 1); err != nil || d.Remaining != left {
				t.Fatalf("%d left, want %d; %v", d.Remaining, left, err)
			}
		}
		take(small, 9)
		take(small, 8)
		take(large, 1e10-3)
		take(small, 6)
		take(beyond, 2)
		take(beyond, 1)
		take(small, 3)
	})
}

// A count takes at most 40 bytes, however many there are.
func TestBytesOfACount(t *testing.T) {
	sizes := []int{100_000}
	if !testing.Short() {
		sizes = append(sizes, 1_000_000, 1_300_000, 10_000_000)
	}
	limit := newLimit(algo.TokenBucket, 100, day, 0, 0)
	for _, n := range sizes {
		m := opened(n * 20 / 19)
		before := inUse()
		var key [8]byte
		for i := range n {
			for j := range key {
				key[j] = 'a' + byte(i>>(4*j)&15)
			}
			if _, err := m.takeKey(string(key[:]), limit, 1); err != nil {
				t.Fatal(err)
			}
		}
		bytes := float64(inUse()-before) / float64(n)
		if t.Logf("%d counts: %.1f bytes each", n, bytes); bytes > 40 || bytes < 16 {
			t.Errorf("%d counts: %.1f bytes each, want at most 40", n, bytes)
		}
		runtime.KeepAlive(m)
	}
}

func inUse() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
