package stint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// crowd is callers that came one after another and wait.
type crowd struct {
	t      *testing.T
	l      *stint.Limiter
	start  time.Time
	asked  atomic.Int64
	all    sync.WaitGroup
	mu     sync.Mutex
	passed []int
	at     []time.Duration
}

func newCrowd(t *testing.T, store stint.Store) *crowd {
	c := &crowd{t: t, l: stint.NewLimiter(store), start: time.Now()}
	c.l.Observe = func(context.Context, *stint.Request, *stint.Answer) { c.asked.Add(1) }
	return c
}

// come has caller i wait for r, and returns when it stands or has gone on.
func (c *crowd) come(ctx context.Context, i int, r *stint.Request) {
	c.all.Go(func() {
		if err := c.l.TakeWait(ctx, r); err != nil {
			if ctx.Err() == nil {
				c.t.Errorf("caller %d: %v", i, err)
			}
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.passed, c.at = append(c.passed, i), append(c.at, time.Since(c.start))
	})
	synctest.Wait()
}

// inOrder reports whether nobody passed at an earlier instant than one who came before.
func (c *crowd) inOrder() bool {
	for i := range c.passed {
		for j := range i {
			if c.passed[j] > c.passed[i] && c.at[j] < c.at[i] {
				return false
			}
		}
	}
	return true
}

func just(key string, limit *stint.Limit, n int64) *stint.Request {
	return &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Cost: n}}}
}

// remote is a Store that others share, with answers that take a while.
type remote struct {
	stint.Memory
	took        time.Duration
	now, atOnce atomic.Int64
}

func (r *remote) Take(ctx context.Context, q *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if n := r.now.Add(1); n > r.atOnce.Load() {
		r.atOnce.Store(n)
	}
	defer r.now.Add(-1)
	time.Sleep(r.took / 2)
	plain := stint.Request{Asks: q.Asks, Hold: q.Hold}
	d, err := r.Memory.Take(ctx, &plain, out)
	time.Sleep(r.took - r.took/2)
	return d, err
}

// Those who came first go first, under every algorithm and whatever they cost, as soon as the limit lets
// them and with about one decision each.
func TestLine(t *testing.T) {
	for _, c := range []struct {
		limit string
		costs []int64
		took  time.Duration // 200 units
		asks  int64         // a turn, in percent
	}{
		{"500 per 1s burst 1", []int64{1}, 398 * time.Millisecond, 110},
		{"100 per 1s burst 10", []int64{1, 10, 3, 7, 1, 2}, 1900 * time.Millisecond, 110},
		{"100 per 1s leaky_bucket burst 150", []int64{1}, 1990 * time.Millisecond, 110},
		{"100 per 1s fixed_window", []int64{1}, time.Second, 110},
		{"100 per 1s sliding_log", []int64{1, 5}, 2 * time.Second, 220},
		{"50 per 1s sliding_window", []int64{1}, 3 * time.Second, 220},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v shared %v", c.limit, c.costs, shared), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var store stint.Store
					if shared {
						store = new(remote)
					}
					limit := stint.MustLimit(c.limit)
					if limit.Spec().Algorithm == stint.FixedWindow { // begin with a window
						time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
					}
					crowd := newCrowd(t, store)
					n, units := 0, int64(0)
					for ; units < 200; n++ {
						cost := c.costs[n%len(c.costs)]
						units += cost
						crowd.come(t.Context(), n, just("k", limit, cost))
					}
					crowd.all.Wait()
					if !crowd.inOrder() || len(crowd.passed) != n {
						t.Errorf("%d passed, in the order %v", len(crowd.passed), crowd.passed)
					}
					last := crowd.at[len(crowd.at)-1]
					if last < c.took || last > c.took+c.took/50 && c.asks == 110 || last > 3*c.took/2 {
						t.Errorf("took %s, want %s", last, c.took)
					}
					if most := int64(n)*c.asks/100 + 8; crowd.asked.Load() > most {
						t.Errorf("%d decisions for %d turns", crowd.asked.Load(), n)
					}
				})
			})
		}
	}
}

// A request that costs much has its turn among many that cost little.
func TestLineIsNotPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := stint.MustLimit("100 per 1s burst 10")
		crowd := newCrowd(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		for range 20 {
			crowd.all.Go(func() {
				for crowd.l.Wait(ctx, "k", limit) == nil {
				}
			})
		}
		time.Sleep(time.Second)
		before := time.Now()
		if err := crowd.l.WaitN(ctx, "k", limit, 10); err != nil || time.Since(before) > 301*time.Millisecond {
			t.Errorf("after %s: %v", time.Since(before), err)
		}
		cancel()
		crowd.all.Wait()
	})
}

// Who cannot have a turn before its deadline is told so when it comes, and nobody else: workers with a
// deadline that all can meet all meet it.
func TestLineAndDeadlines(t *testing.T) {
	for _, text := range []string{"50 per 1s burst 5", "50 per 1s leaky_bucket burst 500", "50 per 1s fixed_window"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := stint.MustLimit(text)
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
				crowd := newCrowd(t, nil)
				for i := range 105 {
					crowd.come(t.Context(), i, just("k", limit, 1))
				}
				for _, c := range []struct {
					within time.Duration
					late   bool
				}{{1900 * time.Millisecond, true}, {2150 * time.Millisecond, false}, {1900 * time.Millisecond, true}} {
					ctx, cancel := context.WithTimeout(t.Context(), c.within)
					defer cancel()
					if !c.late {
						crowd.come(ctx, 105, just("k", limit, 1))
						continue
					}
					err := crowd.l.Wait(ctx, "k", limit)
					var refused *stint.RefusedError
					if !errors.As(err, &refused) || !errors.Is(err, context.DeadlineExceeded) || time.Since(crowd.start) != 0 {
						t.Errorf("within %s: after %s: %v", c.within, time.Since(crowd.start), err)
					} else if refused.Limit != limit || refused.Key != "k" || refused.ResetAfter < c.within {
						t.Errorf("%+v", refused.Decision)
					}
				}
				crowd.all.Wait()
				if len(crowd.passed) != 106 || !crowd.inOrder() {
					t.Errorf("passed: %v", crowd.passed)
				}

				var failed atomic.Int64
				end := time.Now().Add(20 * time.Second)
				for range 20 {
					crowd.all.Go(func() {
						for time.Now().Before(end) {
							ctx, cancel := context.WithTimeout(t.Context(), 1010*time.Millisecond)
							if crowd.l.Wait(ctx, "k", limit) != nil {
								failed.Add(1)
							}
							cancel()
						}
					})
				}
				crowd.all.Wait()
				if failed.Load() > 0 {
					t.Errorf("%d of 20 workers did not get their turn within a second", failed.Load())
				}
			})
		})
	}
}

// Who leaves gives its place to those behind it.
func TestLineMovesUp(t *testing.T) {
	for _, text := range []string{"10 per 1s burst 1", "10 per 1s leaky_bucket burst 100", "1 per 100ms sliding_log"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := stint.MustLimit(text)
				crowd := newCrowd(t, nil)
				ctx, cancel := context.WithCancel(t.Context())
				crowd.come(t.Context(), 0, just("k", limit, 1))
				for i := range 60 {
					crowd.come(ctx, 1+i, just("k", limit, 1))
				}
				crowd.come(t.Context(), 61, just("k", limit, 1))
				time.Sleep(30 * time.Millisecond)
				cancel()
				crowd.all.Wait()
				if !slices.Equal(crowd.passed, []int{0, 61}) || crowd.at[1] > 101*time.Millisecond {
					t.Errorf("passed %v at %v", crowd.passed, crowd.at)
				}
			})
		})
	}
}

// Who waits long for its own limit does not hold up the limit of all, and a request with several limits is
// not passed for ever by those with one.
func TestLinesOfSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user, all := stint.MustLimit("user: 1 per 1h"), stint.MustLimit("all: 10 per 1s burst 1")
		both := func(name string) *stint.Request {
			return &stint.Request{Asks: []stint.Ask{{Key: name, Limit: user}, {Key: "all", Limit: all}}}
		}
		crowd := newCrowd(t, nil)
		crowd.come(t.Context(), 0, both("ann"))
		crowd.come(t.Context(), 1, both("ann"))
		for i := range 50 {
			crowd.come(t.Context(), 2+i, both(fmt.Sprint(i)))
		}
		time.Sleep(6 * time.Second)
		crowd.mu.Lock()
		if len(crowd.passed) != 51 {
			t.Errorf("passed in 6 s: %v", crowd.passed)
		}
		crowd.mu.Unlock()
		crowd.all.Wait()

		// The limits of each are under the hands of ten others, who ask for one of them again and again.
		a, b := stint.MustLimit("a: 7 per 1s burst 1"), stint.MustLimit("b: 5 per 1s burst 1")
		ctx, cancel := context.WithCancel(t.Context())
		for range 10 {
			for _, limit := range []*stint.Limit{a, b} {
				crowd.all.Go(func() {
					for crowd.l.Wait(ctx, "k", limit) == nil {
					}
				})
			}
		}
		time.Sleep(time.Second)
		start := time.Now()
		err := crowd.l.TakeWait(ctx, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: a}, {Key: "k", Limit: b}}})
		if err != nil || time.Since(start) > 5*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		cancel()
		crowd.all.Wait()
	})
}

// Requests that share some keys do not wait for each other: all go on, whatever they ask for and whoever
// leaves.
func TestLinesHaveNoDeadlock(t *testing.T) {
	limits := []*stint.Limit{
		stint.MustLimit("t: 50 per 1s burst 7"), stint.MustLimit("l: 40 per 1s leaky_bucket burst 9"), stint.MustLimit("f: 40 per 1s fixed_window"),
		stint.MustLimit("g: 45 per 1s sliding_log"), stint.MustLimit("w: 60 per 1s sliding_window"), stint.MustLimit("i: 3 in_flight"),
	}
	for seed := range uint64(30) {
		for _, shared := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 42))
				var store stint.Store
				if shared {
					store = &remote{took: time.Duration(random.IntN(3)) * time.Millisecond}
				}
				crowd := newCrowd(t, store)
				if random.IntN(3) == 0 {
					crowd.l.Instance = stint.MustLimit("30 per 1s burst 3")
				}
				var passed atomic.Int64
				for range 120 {
					r := new(stint.Request)
					for _, k := range random.Perm(12)[:1+random.IntN(4)] {
						r.Asks = append(r.Asks, stint.Ask{Key: string(rune('a' + k%2)), Limit: limits[k/2]})
						if limits[k/2].Spec().Algorithm != stint.InFlight {
							r.Asks[len(r.Asks)-1].Cost = 1 + random.Int64N(5)
						}
					}
					ctx, cancel := context.WithCancel(t.Context())
					leaves := random.IntN(4) == 0
					if leaves {
						time.AfterFunc(time.Duration(random.IntN(2000))*time.Millisecond, cancel)
					}
					work := time.Duration(random.IntN(30)) * time.Millisecond
					crowd.all.Go(func() {
						defer cancel()
						held, err := crowd.l.ReserveWait(ctx, r)
						if err != nil {
							if !leaves {
								t.Errorf("seed %d: %v", seed, err)
							}
							return
						}
						passed.Add(1)
						time.Sleep(work)
						if err := held.Settle(context.WithoutCancel(ctx)); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
				}
				crowd.all.Wait()
				if took := time.Since(crowd.start); took > 40*time.Second || passed.Load() < 60 {
					t.Errorf("seed %d, shared %v: %d passed in %s", seed, shared, passed.Load(), took)
				}
			})
		}
	}
}

// However many wait, few ask a Store that is shared at once.
func TestLinesHaveABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &remote{took: 2 * time.Millisecond}
		crowd := newCrowd(t, store)
		for i := range 2000 {
			limit := stint.MustLimit("wide: 100000 per 1s")
			crowd.all.Go(func() {
				if err := crowd.l.Wait(t.Context(), fmt.Sprint(i%300), limit); err != nil {
					t.Error(err)
				}
			})
		}
		crowd.all.Wait()
		if n := store.atOnce.Load(); n > 64 {
			t.Errorf("%d asked at once", n)
		}
		if took := time.Since(crowd.start); took > 100*time.Millisecond {
			t.Errorf("took %s", took)
		}
	})
}

// Instances share the turns of a key in proportion to their lines, and nobody starves.
func TestLinesOfSeveralInstances(t *testing.T) {
	for _, text := range []string{"100 per 1s", "100 per 1s leaky_bucket burst 50", "50 per 500ms fixed_window", "20 per 1s burst 1"} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit, store := stint.MustLimit(text), &remote{took: time.Millisecond}
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				var turns [3]atomic.Int64
				for i, n := range []int{2, 10, 100} {
					l := stint.NewLimiter(store)
					for range n {
						all.Go(func() {
							for l.Wait(ctx, "k", limit) == nil {
								turns[i].Add(1)
							}
						})
					}
				}
				time.Sleep(10 * time.Second)
				var before [3]int64
				for i := range turns {
					before[i] = turns[i].Load()
				}
				const rest = 400
				time.Sleep(rest * time.Second)
				cancel()
				all.Wait()
				s := limit.Spec()
				ideal := float64(s.Amount) * rest / s.Period.Seconds()
				var sum float64
				for i, n := range []float64{2, 10, 100} {
					have, want := float64(turns[i].Load()-before[i]), ideal*n/112
					sum += have
					if have < want/5 || have > 3*want {
						t.Errorf("a line of %v of 112 had %v of %v turns, want about %.0f", n, have, ideal, want)
					}
				}
				if sum < 0.8*ideal {
					t.Errorf("%v of %v turns", sum, ideal)
				}
			})
		})
	}
}

// While a key is paused, one asks for all, and they go on in their order.
func TestLineOfAPausedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := stint.MustLimit("100 per 1s burst 1")
		crowd := newCrowd(t, nil)
		if err := crowd.l.Pause(t.Context(), "k", 10*time.Second); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			crowd.come(t.Context(), i, just("k", limit, 1))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		var refused *stint.RefusedError
		if err := crowd.l.Wait(ctx, "k", limit); !errors.As(err, &refused) || time.Since(crowd.start) != 0 {
			t.Errorf("after %s: %v", time.Since(crowd.start), err)
		}
		time.Sleep(9 * time.Second)
		if n := crowd.asked.Load(); n > 2 {
			t.Errorf("asked %d times during the pause", n)
		}
		crowd.all.Wait()
		if last := crowd.at[99]; !slices.IsSorted(crowd.passed) || last != 10990*time.Millisecond {
			t.Errorf("passed %v, the last at %s", crowd.passed, last)
		}
	})
}
