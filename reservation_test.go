package stint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
)

// holding is a Store that keeps holds in a Memory, which its user may take away. It counts the calls
// of Holds, and their HoldCalls by action.
type holding struct {
	stint.Memory
	mu     sync.Mutex
	fail   error                        // of Holds
	lose   bool                         // calls are done, and not answered
	hang   bool                         // Holds returns when its context is done
	before func(calls []stint.HoldCall) // called at the begin of Holds, without the lock
	takes  func(r *stint.Request) error // the error of Take, after it was done
	calls  int                          // of Holds
	by     [stint.HoldCharge + 1]int    // HoldCalls
	again  int                          // renewals with Again
	sizes  []int                        // of the calls of Holds
}

func (h *holding) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	d, err := h.Memory.Take(ctx, r, out)
	if h.takes != nil {
		if lost := h.takes(r); lost != nil {
			return stint.Decision{}, lost
		}
	}
	return d, err
}

func (h *holding) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	if h.before != nil {
		h.before(calls)
	}
	if h.count(calls) {
		<-ctx.Done()
		for i := range calls {
			calls[i].Err = ctx.Err()
		}
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range calls {
		c := &calls[i]
		err := h.fail
		if err == nil || h.lose {
			h.Memory.Holds(ctx, at, calls[i:i+1])
		}
		if err != nil {
			c.Found, c.Charged, c.Err = false, 0, err
		}
	}
}

// count counts a call of Holds, and reports whether it is to hang.
func (h *holding) count(calls []stint.HoldCall) (hangs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	h.sizes = append(h.sizes, len(calls))
	for i := range calls {
		h.by[calls[i].Action]++
		if calls[i].Again {
			h.again++
		}
	}
	return h.hang
}

// TakeBatch asks Take.
func (h *holding) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		answers[i].Decision, answers[i].Err = h.Take(ctx, &rs[i], answers[i].Each)
	}
}

func (h *holding) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail = err
}

// sent is how often Holds was called, did how many of its calls were of an action.
func (h *holding) sent() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

func (h *holding) did(action stint.HoldAction) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[action]
}

// held is how many units of key are held under limit.
func (h *holding) held(t *testing.T, key string, limit *stint.Limit) (units int64) {
	t.Helper()
	all, err := h.Held(t.Context(), key, []*stint.Limit{limit})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		units += one.Units
	}
	return units
}

var (
	budget = stint.MustLimit("budget: 1000 per 1h fixed_window hold")
	flying = stint.MustLimit("flying: 2 in_flight")
	starts = stint.MustLimit("starts: 10 per 1h sliding_log")
)

// pass lets d pass, in a bubble, and what is due meanwhile come to its end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func remaining(t *testing.T, l *stint.Limiter, key string, limit *stint.Limit) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), key, limit)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// A rate, a budget and an in-flight limit are decided together: the rate is charged at the start,
// the others hold until the request is settled, each by its own cost.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l stint.Limiter
		request := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: starts}, {Key: "k", Limit: budget, Cost: 400}, {Key: "k", Limit: flying}}}
		standing := func(what string, start, tokens, flight int64) {
			t.Helper()
			got := [3]int64{remaining(t, &l, "k", starts), remaining(t, &l, "k", budget), remaining(t, &l, "k", flying)}
			if want := [3]int64{start, tokens, flight}; got != want {
				t.Errorf("%s: %d remain, want %d", what, got, want)
			}
		}
		reserve := func() *stint.Reservation {
			t.Helper()
			r, d, err := l.Reserve(t.Context(), &request)
			if err != nil || !d.Allowed || r == nil || r.ID() == (stint.HoldID{}) {
				t.Fatalf("%v, %+v, %v", r, d, err)
			}
			return r
		}
		a, b := reserve(), reserve()
		standing("two run", 8, 200, 0)
		if r, d, err := l.Reserve(t.Context(), &request); err != nil || r != nil || d.Allowed || !d.Busy || d.RetryAfter != time.Second {
			t.Fatalf("a third: %v, %+v, %v", r, d, err)
		}
		standing("refused, which took nothing", 8, 200, 0)
		if err := a.Settle(t.Context(), 150); err != nil {
			t.Fatal(err)
		}
		standing("one cost less", 8, 450, 1)
		if err := b.Settle(t.Context(), 7, 500, 9); err != nil {
			t.Fatal(err)
		}
		standing("one cost more", 8, 350, 2)
		request.Asks[1].Cost = 300
		if err := reserve().Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		standing("cancelled, which is a start", 7, 350, 2)
		if err := reserve().Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		standing("settled without a cost: what was held", 6, 50, 2)
		request.Asks[1].Cost = 50
		if err := reserve().Settle(t.Context(), 2000); err != nil {
			t.Fatal(err)
		}
		if charged, err := l.Charge(t.Context(), "k", budget, 5); err != nil || charged != 5 {
			t.Errorf("charged %d, %v", charged, err)
		}
		standing("a debt", 5, 0, 2)
	})
}

// The first end of a Reservation counts, however many callers end it at once.
func TestReservationEndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		l := stint.Limiter{Store: new(holding), ObserveHold: func(context.Context, *stint.HoldCall) { ended.Add(1) }}
		for i := range int64(100) {
			r, d, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget, Cost: 8}}})
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			for _, bad := range [][]int64{{-1}, {1, 2}, {1, -2, 3}} {
				if err := r.Settle(t.Context(), bad...); !errors.Is(err, stint.ErrRequest) {
					t.Fatalf("costs %d: %v", bad, err)
				}
			}
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					if err := r.Settle(t.Context(), 3); err != nil {
						t.Error(err)
					}
				})
			}
			callers.Wait()
			if err := r.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
			if got, want := remaining(t, &l, "k", budget), 1000-3*(i+1); got != want || ended.Load() != i+1 {
				t.Fatalf("%d remain, want %d; %d ends observed of %d", got, want, ended.Load(), i+1)
			}
		}
	})
}

// The methods of a nil Reservation, that of a refused request, do nothing.
func TestReservationNil(t *testing.T) {
	var r *stint.Reservation
	if r.Settle(t.Context(), 1) != nil || r.Cancel(t.Context()) != nil || r.ID() != (stint.HoldID{}) {
		t.Error("a nil Reservation does something")
	}
	var l stint.Limiter
	r, d, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: starts}}})
	if err != nil || !d.Allowed || r == nil || r.Settle(t.Context(), 4) != nil || remaining(t, &l, "k", starts) != 9 {
		t.Errorf("nothing is held: %v, %+v, %v", r, d, err)
	}
}

// A Reservation that nobody refers to any more is charged what it held, and logged.
func TestReservationDropped(t *testing.T) {
	text := logged(t)
	s := new(holding)
	l := stint.Limiter{Store: s}
	short := stint.MustLimit("short: 1000 per 1h fixed_window hold 300ms")
	func() {
		if _, _, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: short, Cost: 8}, {Key: "k", Limit: flying}}, HoldFor: 300 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		release, _, err := l.Acquire(t.Context(), "k", flying)
		if err != nil {
			t.Fatal(err)
		}
		_ = release
		kept, _, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "settled", Limit: short, Cost: 8}}})
		if err != nil || kept.Settle(t.Context(), 1) != nil {
			t.Fatal(err)
		}
	}()
	await.Until(t, "a dropped Reservation holds no more", func() bool { runtime.GC(); return s.held(t, "k", short) == 0 })
	if n := remaining(t, &l, "k", short); n != 992 {
		t.Errorf("%d remain, want 992", n)
	}
	await.Until(t, "the log tells of it", func() bool { return strings.Contains(text(), "dropped without") })
}

// Under a held limit, an estimate of 0 holds nothing, and its cost is charged at the end.
func TestReserveWithoutEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(holding)
		l := stint.Limiter{Store: s}
		for i, left := range []bool{false, true} {
			r, d, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget, Peek: true}}})
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if left {
				cancel()
			}
			if err := r.Settle(ctx, 600); err != nil {
				t.Error(err)
			}
			cancel()
			pass(time.Second)
			if got, want := remaining(t, &l, "k", budget), max(0, 1000-600*int64(i+1)); got != want {
				t.Errorf("%d remain, want %d", got, want)
			}
		}
		if r, d, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget, Peek: true}}}); err != nil || r != nil || d.Allowed {
			t.Errorf("nothing is left: %+v, %v", d, err)
		}
		if n := s.did(stint.HoldSettle) + s.did(stint.HoldRenew); n != 0 {
			t.Errorf("%d calls about holds", n)
		}
	})
}

func TestReserveErrors(t *testing.T) {
	var l stint.Limiter
	good := []stint.Ask{{Key: "k", Limit: budget}}
	for name, r := range map[string]*stint.Request{
		"an identity":   {Asks: good, Hold: stint.NewHoldID()},
		"an instant":    {Asks: good, At: time.Now()},
		"no asks":       {},
		"a bad HoldFor": {Asks: good, HoldFor: time.Microsecond},
	} {
		if res, d, err := l.Reserve(t.Context(), r); !errors.Is(err, stint.ErrRequest) || res != nil || d != (stint.Decision{}) {
			t.Errorf("%s: %v, %+v, %v", name, res, d, err)
		}
	}
	for name, limit := range map[string]*stint.Limit{"no limit": nil, "a zero limit": new(stint.Limit), "a budget": budget} {
		if release, _, err := l.Acquire(t.Context(), "k", limit); !errors.Is(err, stint.ErrRequest) || release == nil {
			t.Errorf("Acquire with %s: %v", name, err)
		}
	}
	if _, err := l.Charge(t.Context(), "k", flying, 1); !errors.Is(err, stint.ErrRequest) {
		t.Errorf("a charge under in_flight: %v", err)
	}
	plain := stint.NewLimiter(broken{errors.New("no holder")})
	if _, err := plain.Charge(t.Context(), "k", budget, 1); !errors.Is(err, stint.ErrUnsupported) {
		t.Errorf("a Store that is no Holder: %v", err)
	}
}

// Holds finds malformed calls, and does the others.
func TestLimiterHolds(t *testing.T) {
	var l stint.Limiter
	id := stint.NewHoldID()
	if d, err := l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget, Cost: 10}}, Hold: id}, nil); err != nil || d.Held != 10 {
		t.Fatal(d, err)
	}
	good := stint.HoldCall{Key: "k", Limit: budget, Hold: id, Units: 10, Cost: 4}
	var calls []stint.HoldCall
	for _, bad := range []func(c *stint.HoldCall){
		func(c *stint.HoldCall) { c.Key = "" },
		func(c *stint.HoldCall) { c.Key = strings.Repeat("k", stint.MaxKey+1) },
		func(c *stint.HoldCall) { c.Limit = nil },
		func(c *stint.HoldCall) { c.Limit = new(stint.Limit) },
		func(c *stint.HoldCall) { c.Limit = starts },
		func(c *stint.HoldCall) { c.Hold = stint.HoldID{} },
		func(c *stint.HoldCall) { c.Units = 0 },
		func(c *stint.HoldCall) { c.For = time.Microsecond },
		func(c *stint.HoldCall) { c.For = 25 * time.Hour },
		func(c *stint.HoldCall) { c.Cost = -1 },
		func(c *stint.HoldCall) { c.Action = stint.HoldCharge + 1 },
		func(c *stint.HoldCall) { c.Action, c.Limit = stint.HoldCharge, flying },
		func(c *stint.HoldCall) { c.Action, c.Cost = stint.HoldCharge, -1 },
	} {
		c := good
		c.Found, c.Charged = true, 99
		bad(&c)
		calls = append(calls, c)
	}
	calls = append(calls, good, good)
	l.Holds(t.Context(), calls)
	for i := range calls {
		c := &calls[i]
		switch last := len(calls) - 1; i {
		case last - 1:
			if c.Err != nil || !c.Found || c.Charged != 4 || c.Remaining != 996 {
				t.Errorf("a settlement: %+v", c)
			}
		case last:
			if c.Err != nil || c.Found || c.Charged != 0 {
				t.Errorf("it again: %+v", c)
			}
		default:
			if !errors.Is(c.Err, stint.ErrRequest) || c.Found || c.Charged != 0 {
				t.Errorf("call %d: %+v", i, c)
			}
		}
	}
	l.Holds(t.Context(), nil)
}

// An Instance that is in_flight limits how many requests run at once in this process.
func TestInstanceInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(holding)
		l := stint.Limiter{Store: s, Instance: stint.MustLimit("3 in_flight")}
		wide := stint.MustLimit("4 in_flight")
		var held []*stint.Reservation
		reserve := func(key string) stint.Decision {
			t.Helper()
			r, d, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Limit: wide, Cost: 2}}})
			if err != nil {
				t.Fatal(err)
			}
			if r != nil {
				held = append(held, r)
			}
			return d
		}
		for i, want := range []struct {
			key string
			by  stint.Source
			ok  bool
		}{
			{"a", stint.ByStore, true},
			{"a", stint.ByStore, true},
			{"a", stint.ByStore, false}, // which gives the unit of the instance back
			{"a", stint.ByStore, false},
			{"b", stint.ByStore, true},
			{"c", stint.ByInstance, false},
		} {
			if d := reserve(want.key); d.Allowed != want.ok || d.By != want.by || d.Busy != !want.ok {
				t.Fatalf("%d: %+v", i, d)
			}
		}
		if d, err := l.Allow(t.Context(), "c", starts); err != nil || d.Allowed || d.By != stint.ByInstance {
			t.Errorf("a request that holds nothing: %+v, %v", d, err)
		}
		pass(10 * time.Minute)
		if d := reserve("c"); d.Allowed {
			t.Error("the instance forgot what runs")
		}
		if err := held[0].Settle(t.Context()); err != nil {
			t.Error(err)
		}
		for range 3 { // holds nothing
			if d, err := l.Allow(t.Context(), "c", starts); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		}
		if d := reserve("c"); !d.Allowed {
			t.Errorf("%+v", d)
		}
		for _, r := range held[1:] {
			if err := r.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Never more callers run than an in_flight limit allows, and all of it is used.
func TestAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := stint.MustLimit("5 in_flight retry 10ms")
		l := new(stint.Limiter)
		var running, most, total atomic.Int64
		var callers sync.WaitGroup
		for i := range 40 {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			callers.Go(func() {
				for done := 0; done < 20; {
					release, d, err := l.Acquire(t.Context(), "k", limit)
					if err != nil {
						t.Error(err)
						return
					}
					if !d.Allowed {
						if d.RetryAfter != 10*time.Millisecond || !d.Busy {
							t.Errorf("%+v", d)
						}
						release()
						time.Sleep(d.RetryAfter)
						continue
					}
					now := running.Add(1)
					for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
					}
					time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
					running.Add(-1)
					release()
					release()
					done++
					total.Add(1)
				}
			})
		}
		callers.Wait()
		if most.Load() != 5 || total.Load() != 800 || remaining(t, l, "k", limit) != 5 {
			t.Errorf("%d ran at once, %d in all", most.Load(), total.Load())
		}
	})
}
