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
	"github.com/stintdev/stint/fleet"
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
	away    bool
	charged map[stint.HoldID]int64
}

var errFault = errors.New("fault")

func (f *faulty) fault() fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return notDone
	}
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

// TakeBatch asks Take.
func (f *faulty) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		answers[i].Decision, answers[i].Err = f.Take(ctx, &rs[i], answers[i].Each)
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

// Behind a fleet.Fallback, what was held by the store is charged there when it is back, and what
// this instance allowed meanwhile is, too; each once.
func TestReservationsBehindFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged(t)
		s := &faulty{random: rand.New(rand.NewPCG(1, 1)), calm: true, charged: map[stint.HoldID]int64{}}
		away := func(is bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.away = is
		}
		f := &fleet.Fallback{Store: s, Instances: 1, Breaker: fleet.Breaker{Changed: func(fleet.BreakerState, error) {}}}
		defer f.Close()
		l := stint.Limiter{Store: f}
		limit := stint.MustLimit("budget: 100000 per 24h fixed_window hold")
		var reserved []*stint.Reservation
		reserve := func(by stint.Source) {
			t.Helper()
			for range 20 {
				r, d, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 50}}})
				if err != nil || !d.Allowed || d.By != by {
					t.Fatal(d, err)
				}
				reserved = append(reserved, r)
			}
		}
		settle := func() {
			for _, r := range reserved[:10] {
				if err := r.Settle(t.Context(), 70); err != nil {
					t.Error(err)
				}
			}
			reserved = reserved[10:]
		}
		reserve(stint.ByStore)
		away(true)
		settle()
		reserve(stint.ByLocal)
		settle()
		time.Sleep(12 * time.Second) // with a renewal of what still runs
		away(false)
		pass(15 * time.Second)
		settle()
		settle()
		pass(10 * time.Second)
		remaining(t, &l, "k", limit) // which charges what this instance still owes about the key
		d, err := s.Memory.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Peek: true}}}, nil)
		if used := 100_000 - d.Remaining; err != nil || d.Held != 0 || used != 40*70 {
			t.Errorf("%d used and %d held, want %d: %v", used, d.Held, 40*70, err)
		}
	})
}
