package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/limittest"
)

// The breaker's states, as told; probes come less and less often while nothing
// answers.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newShaky(t, 1), stint.MustLimit("1000000 per 1h")
		var told []string
		var mu sync.Mutex
		s.fall.Breaker.Changed = func(to fleet.BreakerState, why error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(to, " ", why != nil))
		}
		s.away.Store(true)
		s.spend(t, "k", l, 4)
		if s.fall.State() != fleet.Closed {
			t.Fatal("open after 4 failures")
		}
		s.spend(t, "k", l, 1)
		time.Sleep(fleet.DefaultDeadline) // of a probe
		synctest.Wait()
		before := s.faulty.Calls()
		time.Sleep(time.Hour)
		if n := s.faulty.Calls() - before; n < 500 || n > 1000 {
			t.Errorf("%d probes in an hour", n)
		}
		s.away.Store(false)
		time.Sleep(10 * time.Second)
		mu.Lock()
		same(t, strings.Join(told, ", "), "open true, half-open false, closed false")
		mu.Unlock()
		same(t, s.spend(t, "k", l, 9), "store 9, local 0 of 9")

		time.Sleep(time.Second)
		// Every other call fails: never five in a row, but half of them.
		var calls atomic.Int64
		s.faulty.Fault = func(int) limittest.Fault {
			if calls.Add(1)%2 == 0 {
				return limittest.Fault{Err: errors.New("no")}
			}
			return limittest.Fault{}
		}
		for range 100 {
			s.spend(t, "k", l, 30)
			synctest.Wait()
			if s.fall.State() != fleet.Closed { // it was every other probe, too
				return
			}
		}
		t.Error("half of all calls fail, and it does not open")
	})
}

// A slow answer counts as a failure, and is used. One that is fast enough does not count.
func TestBreakerOfSlowAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowStore{new(stint.Memory), 0}
		var why error
		f := &fleet.Fallback{Store: slow, Breaker: fleet.Breaker{Slow: 5 * time.Millisecond, Changed: func(_ fleet.BreakerState, err error) {
			if why == nil {
				why = err
			}
		}}}
		defer f.Close()
		l := stint.NewLimiter(f)
		ask := func() {
			for range 5 {
				if d, err := l.Allow(t.Context(), "k", stint.MustLimit("9 per 1m")); err != nil || d.By != stint.ByStore {
					t.Fatal(d, err)
				}
			}
		}
		slow.takes = 4 * time.Millisecond
		ask()
		time.Sleep(time.Second)
		synctest.Wait()
		if f.State() != fleet.Closed {
			t.Fatal(f.State(), why)
		}
		slow.takes = 10 * time.Millisecond
		ask()
		time.Sleep(time.Second) // a probe is as slow
		synctest.Wait()
		if f.State() == fleet.Closed || why == nil || why.Error() != "stint: the store took 10ms" {
			t.Error(f.State(), why)
		}
	})
}

type slowStore struct {
	stint.Store
	takes time.Duration
}

func (s *slowStore) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	time.Sleep(s.takes)
	return s.Store.Take(ctx, r, out)
}

// A store that answers whoever asks for nothing, as a replica does, and fails whoever
// spends, does not decide.
func TestBreakerOfReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		f := &fleet.Fallback{Store: replica{new(stint.Memory)}, Breaker: fleet.Breaker{Changed: func(to fleet.BreakerState, _ error) {
			if to == fleet.Open {
				opened++
			}
		}}}
		defer f.Close()
		l := stint.NewLimiter(f)
		for range 100 {
			if d, err := l.Allow(t.Context(), "k", stint.MustLimit("999 per 1h")); err != nil || d.By != stint.ByLocal {
				t.Fatal(d, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if f.State() != fleet.Open || opened != 1 {
			t.Errorf("%s, opened %d times", f.State(), opened)
		}
	})
}

type replica struct{ stint.Store }

func (s replica) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	for i := range r.Asks {
		if r.Asks[i].Units() > 0 {
			return stint.Decision{}, errors.New("READONLY")
		}
	}
	return s.Store.Take(ctx, r, out)
}
