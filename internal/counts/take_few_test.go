package counts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// Requests of some of many keys under some limits of every algorithm, while others ask
// for one, refund and reset, and tables grow: of each count exactly so much is used
// as was admitted and not refunded, and no more than there is.
func TestFewConcurrently(t *testing.T) {
	const amount, keys, callers = 400, 40, 4
	each := 20_000
	if testing.Short() {
		each = 3000
	}
	m := opened(1_000_000)
	limits := oneOfEach(amount)
	var used [keys][5]atomic.Int64
	var few, newcomers atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				asks, drawn := drawAsks(limits, keys)
				for _, c := range drawn {
					used[c.key][c.limit].Add(1)
				}
				var d Answer
				if len(asks) > 1 && m.takeFew(asks, OwnClock) {
					d.strictest(asks)
					few.Add(1)
				} else {
					var err error
					if d, err = m.decide(asks, OwnClock); err != nil {
						t.Error(err)
					}
				}
				if !asks[d.Of].Verdict.Allowed {
					for _, c := range drawn {
						used[c.key][c.limit].Add(-1)
					}
				} else if rand.IntN(4) == 0 {
					m.Refund(asks, OwnClock)
					for _, c := range drawn {
						used[c.key][c.limit].Add(-1)
					}
				}
				if rand.IntN(8) == 0 { // what makes tables grow
					k := fmt.Sprint("new", newcomers.Add(1))
					if _, err := m.takeKey(k, limits[rand.IntN(5)], 1); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	for k := range used {
		for i, limit := range limits {
			d, err := m.takeKey(fmt.Sprint(k), limit, 0)
			if n := used[k][i].Load(); err != nil || d.Remaining != amount-n || n > amount {
				t.Errorf("key %d, %s: %d left of %d, %d admitted; %v", k, allKinds[limit.Plan.Kind], d.Remaining, amount, n, err)
			}
		}
	}
	if n := few.Load(); n < int64(each) {
		t.Errorf("%d of %d requests were decided without the shards' locks", n, callers*each)
	}
}

type drawn struct{ key, limit int }

// drawAsks draws a request of one to eight asks, in no order.
func drawAsks(limits []*Limit, keys int) (asks []Ask, all []drawn) {
	for range rand.IntN(8) + 1 {
		c := drawn{rand.IntN(keys), rand.IntN(len(limits))}
		if !slices.Contains(all, c) {
			all = append(all, c)
			asks = append(asks, Ask{Key: fmt.Sprint(c.key), Limit: limits[c.limit], Cost: 1})
		}
	}
	return asks, all
}

// Counts that are always charged together are never seen apart: not by a look at all of
// them, not by a refusal, and not while the words of some have been written.
func TestFewAreNeverSeenApart(t *testing.T) {
	const amount, callers = 50_000, 4
	each := 20_000
	if testing.Short() {
		each = 3000
	}
	m := opened(1_000_000)
	limits := oneOfEach(amount)
	ask := func(cost int64) (asks []Ask) {
		for _, i := range rand.Perm(len(limits)) {
			asks = append(asks, Ask{Key: fmt.Sprint("k", i%2), Limit: limits[i], Cost: cost})
		}
		return asks
	}
	first := ask(1)
	if d, err := m.decide(first, OwnClock); err != nil || !first[d.Of].Verdict.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for range each {
				asks := ask([]int64{1, 0, 1, amount}[c]) // the last is refused
				if _, err := m.decide(asks, OwnClock); err != nil {
					t.Error(err)
				}
				for i := range asks {
					a, b := &asks[i], &asks[0]
					if a.Verdict.Remaining != b.Verdict.Remaining {
						t.Errorf("%d left under a %s, %d under a %s", a.Verdict.Remaining, allKinds[a.Limit.Plan.Kind], b.Verdict.Remaining, allKinds[b.Limit.Plan.Kind])
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// The two roads answer alike, to the last number, whatever the asks.
func TestFewIsTake(t *testing.T) {
	const steps = 30_000
	fast, slow := opened(1_000_000), opened(1_000_000)
	limits := []*Limit{
		newLimit(algo.TokenBucket, 20, time.Second, 0, 0), newLimit(algo.TokenBucket, 7, time.Second, 9, 0),
		newLimit(algo.TokenBucket, 30, 30*day, 0, 0), newLimit(algo.LeakyBucket, 5, time.Second, 0, 0),
		newLimit(algo.FixedWindow, 9, 2*time.Second, 0, 0), newLimit(algo.SlidingLog, 60, 3*time.Second, 0, 0),
		newLimit(algo.SlidingWindow, 30, time.Second, 0, 0), newLimit(algo.SlidingWindow, 200, 5*time.Second, 0, 50),
	}
	for i := range limits {
		limits[i].Salt = Salt(fmt.Sprint(i))
	}
	at, few := int64(1<<50), 0
	for n := range steps {
		at += (rand.Int64N(200_000) - 1000) / (1 + rand.Int64N(100))
		asks, _ := drawAsks(limits, 3)
		for i := range asks {
			asks[i].Cost = rand.Int64N(4)
		}
		want := slices.Clone(asks)
		var places [fewAsks]uint64
		locked := slow.lock(want, places[:0])
		var whole Answer
		err := slow.take(want, nil, at, false, &whole)
		slow.unlock(locked)
		if err != nil {
			t.Fatal(err)
		}
		var d Answer
		if fast.takeFew(asks, at) {
			d.strictest(asks)
			few++
		} else if d, err = fast.decide(asks, at); err != nil {
			t.Fatal(err)
		}
		if d != whole || !slices.Equal(asks, want) {
			t.Fatalf("step %d:\n%+v %+v, want\n%+v %+v", n, d, asks, whole, want)
		}
		if d, err = fast.decide(asks, at); err != nil {
			t.Fatal(err)
		}
		if whole, err = slow.decide(want, at); err != nil || d != whole || !slices.Equal(asks, want) {
			t.Fatalf("step %d: %+v, want %+v, %v", n, d, whole, err)
		}
	}
	if few < steps/2 {
		t.Errorf("%d of %d requests were decided without the lock", few, steps)
	}
}

// A word that stays locked makes a request take the other road, and what it had locked
// itself is free again.
func TestFewFallsBack(t *testing.T) {
	m := opened(1_000_000)
	limits := oneOfEach(10)
	var asks []Ask
	for i := range limits {
		asks = append(asks, Ask{Key: "k", Limit: limits[i], Cost: 1})
	}
	for range 4 { // until there is room in the log for one more
		if _, err := m.decide(asks, OwnClock); err != nil {
			t.Fatal(err)
		}
	}
	for i := range asks {
		hash := m.hash("k")
		o := m.shardOf(hash).table.Load().find(printOf(hash, limits[i].Salt))
		word := o.lock()
		if m.takeFew(asks, OwnClock) {
			t.Errorf("decided though the word of the %s was locked", allKinds[limits[i].Plan.Kind])
		}
		o.word.Store(word)
	}
	if !m.takeFew(asks, OwnClock) {
		t.Error("not decided though no word is locked")
	}
	asks[2].Limit = newLimit(algo.FixedWindow, 11, 200*day, 0, 0)
	if m.takeFew(asks, OwnClock) {
		t.Error("decided under other numbers than those of the count")
	}
	if d, err := m.decide(asks, OwnClock); err != nil || !asks[d.Of].Verdict.Allowed || asks[d.Of].Verdict.Remaining != 4 {
		t.Errorf("%+v, %v", d, err)
	}
	if !m.takeFew(asks, OwnClock) {
		t.Error("not decided under the new numbers")
	}
	asks[1].Key = "nobody knows it"
	if m.takeFew(asks, OwnClock) {
		t.Error("decided about a count that is not there")
	}
}
