package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// stalling is a store that at times stands still, as a process does that is stopped, or
// a network that loses packets for a while. What it was asked meanwhile it does when it
// goes on, also for those who have left.
type stalling struct {
	stint.Memory
	mu    sync.Mutex
	going chan struct{} // closed when it goes on; nil: it does
	calls atomic.Int64
}

func (s *stalling) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.going = make(chan struct{})
}

func (s *stalling) goOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.going)
	s.going = nil
}

func (s *stalling) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	s.calls.Add(1)
	s.mu.Lock()
	going := s.going
	s.mu.Unlock()
	if going == nil {
		time.Sleep(100 * time.Microsecond)
		return s.Memory.Take(ctx, r, out)
	}
	select {
	case <-going:
		return s.Memory.Take(ctx, r, out)
	case <-ctx.Done():
		late := stint.Request{Asks: append([]stint.Ask(nil), r.Asks...)}
		go func() {
			<-going
			_, _ = s.Memory.Take(context.Background(), &late, nil)
		}()
		return stint.Decision{}, fmt.Errorf("stalled: %w", ctx.Err())
	}
}

// TakeBatch implements stint.BatchTaker.
func (s *stalling) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		answers[i].Decision, answers[i].Err = s.Take(ctx, &rs[i], answers[i].Each)
	}
}

// After a stall the store decides again within twice its length and 200 ms, from when
// it began, for however many callers and keys; what is over before five calls failed
// one after another does not open the breaker at all; and no more is admitted than the
// limit allows.
func TestStalls(t *testing.T) {
	stalls := 25
	if testing.Short() {
		stalls = 6
	}
	hot := stint.MustLimit("3000 per 24h fixed_window")
	for _, c := range []struct {
		callers, keys int
		limit         *stint.Limit
	}{
		{64, 1, hot},
		{64, 1_000_000, stint.MustLimit("3 per 24h fixed_window")},
		{1000, 1, hot},
		{1000, 1_000_000, stint.MustLimit("3 per 24h fixed_window")},
	} {
		t.Run(fmt.Sprintf("%d callers, %d keys", c.callers, c.keys), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(stalling)
				f := &fleet.Fallback{Store: store, Instances: 1}
				var opened atomic.Int64
				f.Breaker.Changed = func(to fleet.BreakerState, _ error) {
					if to == fleet.Open {
						opened.Add(1)
					}
				}
				defer f.Close()
				l := stint.NewLimiter(f)
				var last atomic.Int64 // when somebody asked and the store did not decide
				var over atomic.Bool
				var mu sync.Mutex
				admitted := map[string]int64{}
				var asking sync.WaitGroup
				for range c.callers {
					asking.Go(func() {
						for !over.Load() {
							key := fmt.Sprint(rand.N(c.keys))
							asked := time.Now()
							d, err := l.Allow(t.Context(), key, c.limit)
							if err != nil {
								t.Error(err)
							}
							if d.By != stint.ByStore {
								last.Store(asked.UnixNano())
							}
							if d.Allowed {
								mu.Lock()
								admitted[key]++
								mu.Unlock()
							}
							time.Sleep(rand.N(time.Duration(c.callers) * 200 * time.Microsecond))
						}
					})
				}
				for n := range stalls {
					time.Sleep(rand.N(100 * time.Millisecond))
					stall := 30*time.Millisecond + time.Duration(n)*470*time.Millisecond/time.Duration(stalls-1)
					began, was := time.Now(), opened.Load()
					store.stall()
					time.Sleep(stall)
					store.goOn()
					time.Sleep(stall + 300*time.Millisecond)
					if took := time.Unix(0, last.Load()).Sub(began); took > 2*stall+200*time.Millisecond {
						t.Errorf("after a stall of %s something was decided without the store %s after it began", stall, took)
					}
					switch opens := opened.Load() - was; {
					case stall < 5*fleet.DefaultDeadline && opens > 0:
						t.Errorf("a stall of %s opened the breaker", stall)
					case stall > 10*fleet.DefaultDeadline && opens != 1:
						t.Errorf("a stall of %s opened the breaker %d times", stall, opens)
					}
				}
				over.Store(true)
				asking.Wait()
				for key, n := range admitted {
					if n > c.limit.Capacity() {
						t.Errorf("%d were admitted of %s", n, key)
					}
				}
			})
		})
	}
}

// For a store that does not answer callers wait for six deadlines, and those who wait
// then for the rest of theirs; then nobody does.
func TestFrozenStoreCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stalling)
		f := &fleet.Fallback{Store: store}
		defer f.Close()
		l, limit := stint.NewLimiter(f), stint.MustLimit("1000000 per 1h")
		store.stall()
		began := time.Now()
		var asking sync.WaitGroup
		for range 64 {
			asking.Go(func() {
				waited := 0
				for time.Since(began) < time.Minute {
					asked := time.Now()
					if _, err := l.Allow(t.Context(), "k", limit); err != nil {
						t.Error(err)
					}
					if took := time.Since(asked); took > 0 {
						waited++
					}
					time.Sleep(rand.N(10 * time.Millisecond))
				}
				if waited > 7 {
					t.Errorf("a caller waited %d times", waited)
				}
			})
		}
		time.Sleep(8 * fleet.DefaultDeadline)
		if f.State() != fleet.Open {
			t.Errorf("%s after %s", f.State(), time.Since(began))
		}
		calls := store.calls.Load()
		asking.Wait()
		if n := store.calls.Load() - calls; n > 30 {
			t.Errorf("%d calls in a minute while it is open", n)
		}
		store.goOn()
	})
}

// Trouble of which a probe sees nothing does not open the breaker.
func TestBreakerProbesBeforeOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := false
		f := &fleet.Fallback{Store: picky{new(stint.Memory)}}
		f.Breaker.Changed = func(fleet.BreakerState, error) { opened = true }
		defer f.Close()
		l := stint.NewLimiter(f)
		for range 1000 {
			if d, err := l.Allow(t.Context(), "k", stint.MustLimit("9999 per 1h")); err != nil || d.By != stint.ByLocal {
				t.Fatal(d, err)
			}
			time.Sleep(time.Millisecond)
		}
		if opened {
			t.Error("it opened")
		}
	})
}

// picky is a store that decides some requests and not others.
type picky struct{ *stint.Memory }

func (p picky) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if r.Asks[0].Limit.Spec().Period == time.Hour {
		return stint.Decision{}, errors.New("no")
	}
	return p.Memory.Take(ctx, r, out)
}
