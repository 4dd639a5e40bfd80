package stint_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// A pacedLimit admits 10 units a second, or 10 in each second.
type pacedLimit struct {
	text  string
	burst int64   // units at once, at most
	asks  float64 // of the Store for a turn, at most
}

// The answer under a sliding window or log does not say when there is room for the request after the next.
var pacedLimits = []pacedLimit{
	{"10 per 1s", 10, 1.1},
	{"10 per 1s burst 3", 3, 1.1},
	{"10 per 1s leaky_bucket burst 50", 50, 1.1},
	{"10 per 1s fixed_window", 10, 1.5},
	{"10 per 1s sliding_window", 10, 2.1},
	{"10 per 1s sliding_log", 10, 2.1},
}

// Callers that wait for one key and limit go on in the order in which they came, whatever they cost,
// also if some of them give up; no more is admitted than the limit promises, and the Store is asked
// about once a turn.
func TestWaitInOrder(t *testing.T) {
	for _, of := range pacedLimits {
		for seed := range uint64(8) {
			t.Run(fmt.Sprint(of.text, ", ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { waitInOrder(t, of, seed) })
			})
		}
	}
}

func waitInOrder(t *testing.T, of pacedLimit, seed uint64) {
	random, limit, burst := rand.New(rand.NewPCG(seed, 1)), stint.MustLimit(of.text), of.burst
	var asked atomic.Int64
	l := &stint.Limiter{Observe: func(context.Context, *stint.Request, *stint.Answer) { asked.Add(1) }}
	const callers = 100
	var mu sync.Mutex
	went := map[time.Duration][]int{} // those of one instant run in any order
	var units, turns int64
	var all sync.WaitGroup
	start := time.Now()
	for i := range callers {
		ctx, cost := t.Context(), 1+random.Int64N(min(burst, 5))
		var cancel context.CancelFunc = func() {}
		left := random.IntN(4) == 0
		if left {
			ctx, cancel = context.WithCancel(ctx)
			time.AfterFunc(time.Duration(random.IntN(3000))*time.Millisecond, cancel)
		}
		all.Go(func() {
			defer cancel()
			err := l.WaitN(ctx, "k", limit, cost)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				at := time.Since(start)
				went[at] = append(went[at], i)
				units += cost
				turns++
				// A window may pass the amount at both of its ends.
				if most := burst + 10 + int64(10*time.Since(start)/time.Second); units > most {
					t.Errorf("%d units after %s", units, time.Since(start))
				}
			case !left || !errors.Is(err, context.Canceled):
				t.Errorf("caller %d: %v", i, err)
			}
		})
		synctest.Wait() // they come in order
		if random.IntN(3) == 0 {
			time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
		}
	}
	all.Wait()
	var order []int
	for _, at := range slices.Sorted(maps.Keys(went)) {
		slices.Sort(went[at])
		order = append(order, went[at]...)
	}
	if !slices.IsSorted(order) {
		t.Errorf("in the order %v", order)
	}
	// All are served as soon as the pace allows: nothing waits for who has left.
	if took, due := time.Since(start), time.Duration(units)*time.Second/10; took > due+due/2+3*time.Second {
		t.Errorf("%d units took %s", units, took)
	}
	if n := asked.Load(); float64(n) > of.asks*float64(turns) {
		t.Errorf("asked %d times for %d turns", n, turns)
	}
}

// A thousand callers ask about once a turn, and nobody waits longer than the pace makes him.
func TestWaitAsksOnceATurn(t *testing.T) {
	for _, text := range []string{"500 per 1s burst 1", "500 per 1s leaky_bucket burst 2000"} {
		synctest.Test(t, func(t *testing.T) {
			limit := stint.MustLimit(text)
			var asked atomic.Int64
			l := &stint.Limiter{Observe: func(context.Context, *stint.Request, *stint.Answer) { asked.Add(1) }}
			var all sync.WaitGroup
			start := time.Now()
			for range 1000 {
				all.Go(func() {
					if err := l.Wait(t.Context(), "k", limit); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if took := time.Since(start); took > 2040*time.Millisecond {
				t.Errorf("%s: 999 pauses of 2 ms took %s", text, took)
			}
			if n := asked.Load(); n > 1100 {
				t.Errorf("%s: asked %d times for 1,000 turns", text, n)
			}
		})
	}
}

// A caller whose turn comes after its deadline is refused in the moment of its call, for it is known who
// stands before it; one whose turn comes before is served.
func TestWaitBehindOthersRefusesAtOnce(t *testing.T) {
	for _, text := range []string{"10 per 1s burst 1", "10 per 1s leaky_bucket burst 100", "1 per 100ms fixed_window"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, limit := new(stint.Limiter), stint.MustLimit(text)
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() { _ = l.Wait(ctx, "k", limit) })
					synctest.Wait()
				}
				// The next one's turn is 2 s from the first.
				start := time.Now()
				short, done := context.WithTimeout(t.Context(), time.Second)
				defer done()
				err := l.Wait(short, "k", limit)
				var refused *stint.RefusedError
				if !errors.As(err, &refused) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 0 {
					t.Errorf("after %s: %v", time.Since(start), err)
				}
				long, done := context.WithTimeout(t.Context(), 2500*time.Millisecond)
				defer done()
				if err := l.Wait(long, "k", limit); err != nil || time.Since(start) < 1900*time.Millisecond {
					t.Errorf("after %s: %v", time.Since(start), err)
				}
				cancel()
				all.Wait()
			})
		})
	}
}

// Where each caller can be served before its deadline in the order of arrival, each is.
func TestWaitMeetsDeadlines(t *testing.T) {
	for _, text := range []string{"50 per 1s burst 5", "50 per 1s leaky_bucket burst 100"} {
		synctest.Test(t, func(t *testing.T) {
			l, limit := new(stint.Limiter), stint.MustLimit(text)
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					for range 50 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						start := time.Now()
						if err := l.Wait(ctx, "k", limit); err != nil || time.Since(start) > 420*time.Millisecond {
							t.Errorf("%s: worker %d after %s: %v", text, i, time.Since(start), err)
						}
						cancel()
					}
				})
			}
			all.Wait()
		})
	}
}

// Who waits for several units has its turn among those that wait for one again and again.
func TestWaitForSeveralBesideOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := new(stint.Limiter), stint.MustLimit("100 per 1s burst 10")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for l.Wait(ctx, "k", limit) == nil {
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		in, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		start := time.Now()
		if err := l.WaitN(in, "k", limit, 10); err != nil || time.Since(start) > 310*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		cancel()
		all.Wait()
	})
}

// Callers that leave the line of a leaky bucket leave no place in it.
func TestWaitGivesPlacesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := new(stint.Limiter), stint.MustLimit("10 per 1s leaky_bucket burst 100")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() { _ = l.Wait(ctx, "k", limit) })
		}
		synctest.Wait()
		cancel()
		all.Wait()
		start := time.Now()
		if err := l.Wait(t.Context(), "k", limit); err != nil || time.Since(start) > 300*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

// A ban that begins while callers wait, and ends after their deadline, is told to each as soon as it is
// known, not when its turn would have come.
func TestWaitLeavesWhenBanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, limit := new(stint.Limiter), stint.MustLimit("1 per 10s burst 1")
		penalty, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 1000, BanFor: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := l.Wait(ctx, "k", limit); err != nil {
			t.Fatal(err)
		}
		r := &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Penalty: penalty}}}
		start := time.Now()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				var refused *stint.RefusedError
				if err := l.TakeWait(ctx, r); !errors.As(err, &refused) || refused.Outcome != stint.Banned || time.Since(start) > 11*time.Second {
					t.Errorf("caller %d after %s: %v", i, time.Since(start), err)
				}
			})
			synctest.Wait()
		}
		for d := (stint.Decision{}); d.Outcome != stint.Banned; {
			if d, err = l.Violate(ctx, "k", penalty); err != nil {
				t.Fatal(err)
			}
		}
		all.Wait()
	})
}

// What is more than fits is refused in the moment of the call, also behind others, and holds up nobody.
func TestWaitForMoreThanFits(t *testing.T) {
	for _, of := range pacedLimits {
		t.Run(of.text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, limit := new(stint.Limiter), stint.MustLimit(of.text)
				if err := l.WaitN(t.Context(), "k", limit, of.burst); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				var all sync.WaitGroup
				for range 2 {
					all.Go(func() {
						if err := l.Wait(t.Context(), "k", limit); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait()
				}
				var refused *stint.RefusedError
				if err := l.WaitN(t.Context(), "k", limit, 1000); !errors.As(err, &refused) || refused.RetryAfter != stint.Never || time.Since(start) > 0 {
					t.Errorf("after %s: %v", time.Since(start), err)
				}
				all.Wait()
			})
		})
	}
}

// Requests for random keys and limits all end, in a time that the sum of all that they take explains:
// nobody starves, and no two wait for each other.
func TestWaitForRandomSets(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { waitForRandomSets(t, seed) })
		})
	}
}

func waitForRandomSets(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 2))
	var limits []*stint.Limit
	for _, of := range pacedLimits {
		limits = append(limits, stint.MustLimit(fmt.Sprintf("limit %d: %s", len(limits), of.text)))
	}
	limits = append(limits, stint.MustLimit("two: 2 in_flight"), stint.MustLimit("four: 4 in_flight"))
	l := new(stint.Limiter)
	const callers = 80
	var ended atomic.Int64
	for range callers {
		r := &stint.Request{}
		for _, at := range random.Perm(len(limits))[:1+random.IntN(3)] {
			r.Asks = append(r.Asks, stint.Ask{Key: string(rune('a' + random.IntN(3))), Limit: limits[at], Cost: 1 + random.Int64N(2)})
		}
		work := time.Duration(random.IntN(200)) * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		switch random.IntN(5) {
		case 0:
			time.AfterFunc(time.Duration(random.IntN(2000))*time.Millisecond, cancel)
		case 1:
			ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(2000))*time.Millisecond)
		}
		go func() {
			defer ended.Add(1)
			defer cancel()
			held, err := l.ReserveWait(ctx, r)
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				return
			}
			time.Sleep(work)
			if err := held.Settle(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		if random.IntN(2) == 0 {
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		}
	}
	// One after another, each with its work and its refill, they would take 80 × 0.6 s.
	start := time.Now()
	for ended.Load() < callers {
		if time.Since(start) > time.Minute {
			t.Fatalf("%d of %d have ended", ended.Load(), callers)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
