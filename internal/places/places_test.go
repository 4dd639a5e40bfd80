package places

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

var one = Queue{key: "ann", limit: "pace", units: 1}

// request is one that waits, as the tests saw it.
type request struct {
	granted, left time.Duration // from the beginning
	passed        bool
}

// TestPaceIsKept has requests come and leave at random, as a leaky bucket of a unit each pace with
// so many places grants their turns. Each turn is used at most once, and no request waits longer
// than it was told.
func TestPaceIsKept(t *testing.T) {
	const pace = 100 * time.Millisecond
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		synctest.Test(t, func(t *testing.T) {
			w, start := Of(1000), time.Now()
			var all []*request
			var running sync.WaitGroup
			var next time.Duration // the first turn that is not granted
			for range 60 {
				now := time.Since(start)
				delay := max(0, next-now)
				next = max(next, now) + pace
				r := &request{granted: now + delay}
				all = append(all, r)
				ctx, cancel := context.WithCancel(t.Context())
				if random.IntN(2) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(2*time.Second))))
				}
				running.Go(func() {
					defer cancel()
					if delay > 0 {
						r.passed = w.Wait(ctx, one, delay) == nil
					} else {
						r.passed = true
					}
					r.left = time.Since(start)
				})
				synctest.Wait()
				if random.IntN(3) == 0 {
					time.Sleep(time.Duration(random.Int64N(int64(3 * pace))))
				}
			}
			running.Wait()
			var granted, used []time.Duration
			for i, r := range all {
				granted = append(granted, r.granted)
				if !r.passed {
					continue
				}
				used = append(used, r.left)
				if r.left > r.granted {
					t.Errorf("seed %d: request %d was told %v and passed at %v", seed, i, r.granted, r.left)
				}
			}
			if !slices.IsSorted(used) {
				t.Errorf("seed %d: passed in another order than they came: %v", seed, used)
			}
			for i := 1; i < len(used); i++ {
				if used[i]-used[i-1] < pace {
					t.Errorf("seed %d: passed at %v and %v", seed, used[i-1], used[i])
				}
			}
			for _, u := range used {
				if !slices.Contains(granted, u) {
					t.Errorf("seed %d: passed at %v, which was never granted", seed, u)
				}
			}
			time.Sleep(time.Minute)
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.lines) != 0 || w.left != 0 {
				t.Errorf("seed %d: %d queues and %d turns are kept at the end", seed, len(w.lines), w.left)
			}
		})
	}
}

// wait has requests of q wait for so many seconds each, and returns how to cancel the first ones and
// when each has passed.
func wait(t *testing.T, w *Waiting, leavers int, q []Queue, delays ...int) (leave func(), passed func() string) {
	start := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	got := make([]string, len(delays))
	var running sync.WaitGroup
	for i, d := range delays {
		ctx := ctx
		if i >= leavers {
			ctx = t.Context()
		}
		running.Go(func() {
			err := w.Wait(ctx, q[i%len(q)], time.Duration(d)*time.Second)
			got[i] = time.Since(start).String()
			if err != nil {
				got[i] = "left"
			}
		})
		synctest.Wait()
	}
	return cancel, func() string { running.Wait(); return fmt.Sprint(got) }
}

func TestTurnsOfThoseThatLeave(t *testing.T) {
	other := Queue{key: "ann", limit: "pace", units: 2}
	for _, c := range []struct {
		name    string
		most    int
		leavers int
		queues  []Queue
		delays  []int
		then    int // the delay of one that comes half a second later, after the others have left
		want    string
		next    time.Duration // after which it passes
	}{
		{"all leave", 9, 4, []Queue{one}, []int{1, 2, 3, 4}, 5, "[left left left left]", 500 * time.Millisecond},
		{"the first leaves", 9, 1, []Queue{one}, []int{1, 2, 3}, 4, "[left 1s 2s]", 2500 * time.Millisecond},
		{"the first two leave", 9, 2, []Queue{one}, []int{1, 2, 3, 4}, 5, "[left left 1s 2s]", 2500 * time.Millisecond},
		{"none leaves", 9, 0, []Queue{one}, []int{1, 2}, 3, "[1s 2s]", 3 * time.Second},
		{"others took other units", 9, 1, []Queue{one, other}, []int{1, 2, 3, 4}, 5, "[left 2s 1s 4s]", 2500 * time.Millisecond},
		{"no queue", 9, 1, []Queue{{}}, []int{1, 2}, 3, "[left 2s]", 3 * time.Second},
		{"what may be left over", 2, 4, []Queue{one}, []int{1, 2, 3, 4}, 5, "[left left left left]", 500 * time.Millisecond},
		{"nothing may be left over", 0, 1, []Queue{one}, []int{1, 2, 3}, 4, "[left 1s 2s]", 4 * time.Second},
		{"an earlier turn", 9, 2, []Queue{one}, []int{3, 5, 7}, 1, "[left left 3s]", time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := Of(c.most)
				leave, passed := wait(t, w, c.leavers, c.queues, c.delays...)
				time.Sleep(500 * time.Millisecond)
				leave()
				synctest.Wait()
				if w.left > c.most {
					t.Errorf("%d turns are left over", w.left)
				}
				begin := time.Now()
				if err := w.Wait(t.Context(), c.queues[0], time.Duration(c.then)*time.Second); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(begin); got != c.next {
					t.Errorf("the next waited %v, want %v", got, c.next)
				}
				if got := passed(); got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
			})
		})
	}
}

// Requests that an Instance may delay, too, have no turn that others can take.
func TestQueueFor(t *testing.T) {
	pace := stint.MustLimit("10 per 1s leaky_bucket")
	for _, c := range []struct {
		instance string
		want     bool
	}{{"", true}, {"10 per 1s", true}, {"10 per 1s leaky_bucket", false}} {
		var l stint.Limiter
		if c.instance != "" {
			l.Instance = stint.MustLimit(c.instance)
		}
		if got := QueueFor(&l, "ann", pace) != (Queue{}); got != c.want {
			t.Errorf("%q: %v", c.instance, got)
		}
	}
}
