package fleet_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// tardy is a Store whose answers come late, overtake each other, or get lost, before or after the
// request was charged. worst is the longest that an answer takes.
type tardy struct {
	*stint.Memory
	worst time.Duration
	mu    sync.Mutex
	rand  *rand.Rand
}

func (s *tardy) some(most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rand.Int64N(int64(most)))
}

func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (s *tardy) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if err := pass(ctx, s.some(s.worst)/4); err != nil {
		return stint.Decision{}, err
	}
	d, err := s.Memory.Take(ctx, r, out)
	if late := pass(ctx, s.some(s.worst)*3/4); late != nil {
		return stint.Decision{}, late
	}
	return d, err
}

// departure is when a request leaves the queue, and what it costs.
type departure struct {
	at   time.Time
	cost int64
	by   stint.Source
}

// crowd has callers ask for d without a pause, and returns when their requests leave.
func crowd(t *testing.T, f *fleet.Fallback, limit *stint.Limit, callers int, d time.Duration, seed uint64) (all []departure) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	l, end := stint.NewLimiter(f), time.Now().Add(d)
	for i := range callers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for time.Now().Before(end) {
				time.Sleep(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
				cost := 1 + random.Int64N(3)
				a, err := l.AllowN(t.Context(), "k", limit, cost)
				if err != nil {
					t.Error(err)
					return
				}
				if a.Allowed {
					mu.Lock()
					all = append(all, departure{time.Now().Add(a.Delay), cost, a.By})
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b departure) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.cost, b.cost)) })
	return all
}

// Whoever decides, and however late the Store's answers come, requests of one instance leave a
// queue at its pace, but for the deadline within which answers may come late.
func TestFallbackKeepsPace(t *testing.T) {
	const rate, dearest = 100, 3
	limit := stint.MustLimit(fmt.Sprintf("%d per 1s leaky_bucket burst 500", rate))
	for _, worst := range []time.Duration{10 * time.Millisecond, 28 * time.Millisecond, 40 * time.Millisecond, 200 * time.Millisecond} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("%s/%d", worst, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &fleet.Fallback{Store: &tardy{Memory: new(stint.Memory), worst: worst, rand: rand.New(rand.NewPCG(seed, 1))}}
					defer f.Close()
					all := crowd(t, f, limit, 20, 5*time.Second, seed)
					for i := range all {
						units := int64(0)
						for _, d := range all[i:] {
							units += d.cost
							span := d.at.Sub(all[i].at)
							if most := rate*(span+fleet.DefaultDeadline).Seconds() + dearest; float64(units) > most+1e-6 {
								t.Fatalf("%d units leave within %s, want at most %.1f", units, span, most)
							}
						}
					}
					if local := slices.ContainsFunc(all, func(d departure) bool { return d.by == stint.ByLocal }); local != (worst > fleet.DefaultDeadline) {
						t.Errorf("the instance decided: %t", local)
					}
				})
			})
		}
	}
}

// Answers that overtake each other keep the places that the Store gave, while it answers in time.
func TestFallbackKeepsPlaces(t *testing.T) {
	limit := stint.MustLimit("100 per 1s leaky_bucket")
	synctest.Test(t, func(t *testing.T) {
		const callers, worst = 50, 20 * time.Millisecond
		f := &fleet.Fallback{Store: &tardy{Memory: new(stint.Memory), worst: worst, rand: rand.New(rand.NewPCG(1, 2))}}
		defer f.Close()
		l := stint.NewLimiter(f)
		var mu sync.Mutex
		var longest time.Duration
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				d, err := l.Allow(t.Context(), "k", limit)
				if err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
				mu.Lock()
				defer mu.Unlock()
				longest = max(longest, d.Delay)
			})
		}
		wg.Wait()
		if most := callers * 10 * time.Millisecond; longest > most {
			t.Errorf("%d requests at once wait for up to %s, want at most %s", callers, longest, most)
		}
	})
}
