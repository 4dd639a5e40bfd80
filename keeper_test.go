package stint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

// fault is what a Store does to a call about holds.
type fault uint8

const (
	noFault fault = iota
	notDone
	answerLost
	answerLate
	faults
)

// faulty is a Store that has random faults, and an account of what it charged.
type faulty struct {
	stint.Memory
	mu      sync.Mutex
	random  *rand.Rand
	calm    bool
	charged map[stint.HoldID]int64
}

var errFault = errors.New("fault")

func (f *faulty) fault() fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calm || f.random.IntN(2) == 0 {
		return noFault
	}
	return fault(f.random.IntN(int(faults)))
}

func (f *faulty) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	switch f.fault() {
	case notDone:
		return stint.Decision{}, errFault
	case answerLost:
		_, _ = f.Memory.Take(ctx, r, out)
		return stint.Decision{}, errFault
	}
	return f.Memory.Take(ctx, r, out)
}

func (f *faulty) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	fault := f.fault()
	if fault == answerLate {
		select {
		case <-time.After(700 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if fault == notDone {
		for i := range calls {
			calls[i].Err = errFault
		}
		return
	}
	f.Memory.Holds(ctx, at, calls)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range calls {
		f.charged[calls[i].Hold] += calls[i].Charged
		if fault == answerLost {
			calls[i].Found, calls[i].Charged, calls[i].Err = false, 0, errFault
		}
	}
}

// Whatever faults a store has, a Reservation is charged once, or not at all if it is reported
// lost; and nothing is held once all have ended.
func TestReservationsUnderFaults(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			logged(t)
			s := &faulty{random: rand.New(rand.NewPCG(seed, 1)), charged: map[stint.HoldID]int64{}}
			var mu sync.Mutex
			lost := map[stint.HoldID]bool{}
			l := stint.Limiter{Store: s, ObserveHold: func(_ context.Context, c *stint.HoldCall) {
				mu.Lock()
				defer mu.Unlock()
				if c.Err != nil || !c.Found {
					lost[c.Hold] = true
				}
			}}
			limit := stint.MustLimit("budget: 1000000000 per 1h token_bucket hold 3s")
			cost := map[stint.HoldID]int64{}
			var callers sync.WaitGroup
			for i := range 50 {
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				callers.Go(func() {
					for range 20 {
						r, d, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 1 + random.Int64N(100)}}})
						if err != nil {
							continue
						}
						if !d.Allowed {
							t.Error(d)
						}
						time.Sleep(time.Duration(random.IntN(6000)) * time.Millisecond)
						n := random.Int64N(200)
						mu.Lock()
						cost[r.ID()] = n
						mu.Unlock()
						ctx, cancel := context.WithCancel(t.Context())
						time.AfterFunc(time.Duration(random.IntN(1000)-300)*time.Millisecond, cancel)
						if err := r.Settle(ctx, n); err != nil && !errors.Is(err, stint.ErrHoldLost) {
							t.Error(err)
						}
					}
				})
			}
			callers.Wait()
			s.mu.Lock()
			s.calm = true
			s.mu.Unlock()
			pass(5 * time.Second)
			once := 0
			for id, n := range cost {
				switch got := s.charged[id]; {
				case got == n:
					once++
				case got != 0 || !lost[id]:
					t.Errorf("%s was charged %d, and did cost %d; reported as lost: %v", id, got, n, lost[id])
				}
				delete(s.charged, id)
			}
			for id, n := range s.charged {
				if n != 0 {
					t.Errorf("%s, whose answer was lost, was charged %d", id, n)
				}
			}
			held, err := s.Held(t.Context(), "k", []*stint.Limit{limit})
			if err != nil || len(held) != 0 {
				t.Errorf("%d are held: %v", len(held), err)
			}
			if once < len(cost)*9/10 {
				t.Errorf("only %d of %d were charged", once, len(cost))
			}
			t.Logf("seed %d: %d of %d were charged, the others are reported", seed, once, len(cost))
		})
	}
}
