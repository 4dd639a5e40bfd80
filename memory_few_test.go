package stint

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/algo"
)

// oneOfEach is a limit of each algorithm, of an amount in so long that nothing comes
// back while a test runs.
func oneOfEach(amount int) (all []*Limit) {
	for _, a := range algorithmNames {
		all = append(all, MustLimit(fmt.Sprintf("%d per 200d %s", amount, a)))
	}
	return all
}

// takesFew tells whether a request is decided without the shards' locks.
func takesFew(t *testing.T, m *Memory, r *Request) bool {
	t.Helper()
	var d Decision
	return m.takeFew(r, nil, &d)
}

// Requests of some of many keys under some limits of every algorithm, while others ask
// for one, refund and reset, and tables grow: of each count exactly so much is used
// as was admitted and not refunded, and no more than there is.
func TestFewUnderFire(t *testing.T) {
	const amount, keys, callers = 400, 40, 4
	each := 20_000
	if testing.Short() {
		each = 3000
	}
	m := new(Memory)
	l := NewLimiter(m)
	limits := oneOfEach(amount)
	var used [keys][5]atomic.Int64
	var few, newcomers atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				r, counts := drawAsks(limits, keys)
				for _, c := range counts {
					used[c.key][c.limit].Add(1)
				}
				var d Decision
				if m.ready.Load() && len(r.Asks) > 1 && m.takeFew(&r, nil, &d) {
					few.Add(1)
				} else {
					var err error
					if d, err = l.Take(context.Background(), &r, nil); err != nil {
						t.Error(err)
					}
				}
				if !d.Allowed {
					for _, c := range counts {
						used[c.key][c.limit].Add(-1)
					}
				} else if rand.IntN(4) == 0 {
					if err := l.RefundAll(context.Background(), &r, nil); err != nil {
						t.Error(err)
					}
					for _, c := range counts {
						used[c.key][c.limit].Add(-1)
					}
				}
				if rand.IntN(8) == 0 { // what makes tables grow
					k := fmt.Sprint("new", newcomers.Add(1))
					if _, err := l.Allow(context.Background(), k, limits[rand.IntN(5)]); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	for k := range used {
		for i, limit := range limits {
			d, err := l.Peek(t.Context(), fmt.Sprint(k), limit)
			if n := used[k][i].Load(); err != nil || d.Remaining != amount-n || n > amount {
				t.Errorf("key %d, %s: %d left of %d, %d admitted; %v", k, limit, d.Remaining, amount, n, err)
			}
		}
	}
	if n := few.Load(); n < int64(each) {
		t.Errorf("%d of %d requests were decided without the shards' locks", n, callers*each)
	}
}

type drawn struct{ key, limit int }

// drawAsks draws a request of one to eight asks, in no order.
func drawAsks(limits []*Limit, keys int) (r Request, counts []drawn) {
	for range rand.IntN(8) + 1 {
		c := drawn{rand.IntN(keys), rand.IntN(len(limits))}
		if !slices.Contains(counts, c) {
			counts = append(counts, c)
			r.Asks = append(r.Asks, Ask{Key: fmt.Sprint(c.key), Limit: limits[c.limit], Cost: 1})
		}
	}
	return r, counts
}

// Counts that are always charged together are never seen apart: not by a look at all of
// them, not by a refusal, and not while the words of some have been written.
func TestFewAreNeverSeenApart(t *testing.T) {
	const amount, callers = 50_000, 4
	each := 20_000
	if testing.Short() {
		each = 3000
	}
	m := new(Memory)
	limits := oneOfEach(amount)
	ask := func(cost int64) *Request {
		r := &Request{}
		for _, i := range rand.Perm(len(limits)) {
			r.Asks = append(r.Asks, Ask{Key: fmt.Sprint("k", i%2), Limit: limits[i], Cost: cost, Peek: cost == 0})
		}
		return r
	}
	if d, err := m.Take(t.Context(), ask(1), nil); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for range each {
				r := ask([]int64{1, 0, 1, amount}[c]) // the last is refused
				out := make([]Decision, len(r.Asks))
				if _, err := m.Take(context.Background(), r, out); err != nil {
					t.Error(err)
				}
				for i := range out {
					if out[i].Remaining != out[0].Remaining {
						t.Errorf("%d left under %s, %d under %s", out[i].Remaining, out[i].Limit, out[0].Remaining, out[0].Limit)
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// The two roads answer alike, to the last number, whatever the asks.
func TestFewAsBefore(t *testing.T) {
	const steps = 30_000
	var fast, slow Memory
	slow.init()
	var limits []*Limit
	for _, text := range []string{"20 per 1s", "7 per 1s burst 9", "30 per 30d", "5 per 1s leaky_bucket", "9 per 2s fixed_window", "60 per 3s sliding_log", "30 per 1s sliding_window", "200 per 5s sliding_window buckets 50"} {
		limit, err := MustLimit(text).Named(text)
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, limit)
	}
	at, few := time.UnixMicro(1<<50), 0
	for n := range steps {
		at = at.Add(time.Duration(rand.IntN(200_000)-1000) * time.Microsecond / time.Duration(1+rand.IntN(100)))
		r, _ := drawAsks(limits, 3)
		r.At = at
		for i := range r.Asks {
			r.Asks[i].SetUnits(int64(rand.IntN(4)))
		}
		each, want := make([]Decision, len(r.Asks)), make([]Decision, len(r.Asks))
		var places [fewAsks]uint64
		locked := slow.lock(&r, places[:0])
		whole, err := slow.take(&r, at.UnixMicro(), want)
		slow.unlock(locked)
		if err != nil {
			t.Fatal(err)
		}
		var d Decision
		switch ok := fast.ready.Load() && fast.takeFew(&r, each, &d); {
		case ok:
			few++
		default:
			if d, err = fast.Take(t.Context(), &r, each); err != nil {
				t.Fatal(err)
			}
		}
		if d != whole || !slices.Equal(each, want) {
			t.Fatalf("step %d, %+v:\n%+v %+v, want\n%+v %+v", n, r, d, each, whole, want)
		}
		if d, _ = fast.Take(t.Context(), &r, nil); n%7 == 0 { // nobody wants each
			if whole, _ = slow.Take(t.Context(), &r, want); d != whole {
				t.Fatalf("step %d: %+v, want %+v", n, d, whole)
			}
		} else if _, err = slow.Take(t.Context(), &r, nil); err != nil {
			t.Fatal(err)
		}
	}
	if few < steps/2 {
		t.Errorf("%d of %d requests were decided without the lock", few, steps)
	}
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

// The answer to a request is the same whether it is made of verdicts or of decisions.
func TestStricterThan(t *testing.T) {
	limit := MustLimit("1 per 1s")
	for range 100_000 {
		parts, each := make([]part, 1+rand.IntN(4)), []Decision{}
		r, allowed := Request{}, rand.IntN(3) == 0
		for i := range parts {
			v := algo.Verdict{Allowed: allowed || rand.IntN(2) == 0, Remaining: rand.Int64N(3), Reset: rand.Int64N(3)}
			if allowed {
				v.Delay = rand.Int64N(3)
			} else if !v.Allowed {
				v.Retry = rand.Int64N(3) - 1
			}
			parts[i].verdict = v
			r.Asks = append(r.Asks, Ask{Key: fmt.Sprint(i), Limit: limit})
			each = append(each, Internal().Decision(&r.Asks[i], &v))
		}
		var d Decision
		if answer(&r, parts, nil, &d); d != Strictest(each) {
			t.Fatalf("%+v, want %+v of %+v", d, Strictest(each), each)
		}
	}
}

// A word that stays locked makes a request take the other road, and what it had locked
// itself is free again.
func TestFewGivesUp(t *testing.T) {
	m := new(Memory)
	limits := oneOfEach(10)
	r := Request{}
	for i := range limits {
		r.Asks = append(r.Asks, Ask{Key: "k", Limit: limits[i], Cost: 1})
	}
	for range 4 { // until there is room in the log for one more
		if _, err := m.Take(t.Context(), &r, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range r.Asks {
		hash := m.hash("k")
		o := m.shardOf(hash).table.Load().find(printOf(hash, limits[i].salt))
		word := o.lock()
		if takesFew(t, m, &r) {
			t.Errorf("decided though the word of %s was locked", limits[i])
		}
		o.word.Store(word)
	}
	if !takesFew(t, m, &r) {
		t.Error("not decided though no word is locked")
	}
	r.Asks[2].Limit = MustLimit("11 per 200d fixed_window")
	if takesFew(t, m, &r) {
		t.Error("decided under other numbers than those of the count")
	}
	if d, err := m.Take(t.Context(), &r, nil); err != nil || !d.Allowed || d.Remaining != 4 {
		t.Errorf("%+v, %v", d, err)
	}
	if !takesFew(t, m, &r) {
		t.Error("not decided under the new numbers")
	}
	r.Asks[1].Key = "nobody knows it"
	if takesFew(t, m, &r) {
		t.Error("decided about a count that is not there")
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
