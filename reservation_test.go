package stint_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
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

// While a Reservation lives, its hold is renewed every third of its time; then it ends with
// Settle. A hold that nobody renews ends by itself.
func TestReservationRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(holding)
		l := stint.Limiter{Store: s}
		ask := []stint.Ask{{Key: "k", Limit: flying}}
		r, _, err := l.Reserve(t.Context(), &stint.Request{Asks: ask})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Take(t.Context(), &stint.Request{Asks: ask, Hold: stint.NewHoldID()}, nil); err != nil {
			t.Fatal(err) // which nobody renews
		}
		pass(29 * time.Second)
		if n := s.held(t, "k", flying); n != 2 {
			t.Errorf("%d held after 29s, want 2", n)
		}
		pass(time.Hour)
		if n := s.held(t, "k", flying); n != 1 {
			t.Errorf("%d held after an hour, want 1", n)
		}
		if n := s.did(stint.HoldRenew); n < 3600/10 || n > 3629/10*4/3+1 || s.again != 0 {
			t.Errorf("%d renewals in an hour, %d of which were to put it back", n, s.again)
		}
		if err := r.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		before := s.sent()
		pass(time.Hour)
		if n := s.held(t, "k", flying); n != 0 || s.sent() != before {
			t.Errorf("%d held after the end, and %d calls", n, s.sent()-before)
		}
	})
}

// Renewals of all keys go together, as far as they are due at about the same time.
func TestRenewalsInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(holding)
		l := stint.Limiter{Store: s}
		var all []*stint.Reservation
		for i := range 3000 {
			r, _, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: string(rune('a' + i)), Limit: flying}}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
			time.Sleep(time.Millisecond)
		}
		pass(5 * time.Minute)
		rounds := 300/7 + 2
		if n := s.did(stint.HoldRenew); n < 3000*29 || s.sent() > rounds*(3000/256+2) {
			t.Errorf("%d renewals in %d calls", n, s.sent())
		}
		for i, r := range all {
			if n := s.held(t, string(rune('a'+i)), flying); n != 1 {
				t.Fatalf("%d: %d held", i, n)
			}
			if err := r.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// What the store has lost is made again by the next renewal, and what was released is not.
func TestReservationRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(holding)
		l := stint.Limiter{Store: s}
		r, _, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget, Cost: 30}, {Key: "k", Limit: flying}}})
		if err != nil {
			t.Fatal(err)
		}
		lost := []stint.HoldCall{{Key: "k", Limit: budget, Hold: r.ID(), Units: 30}, {Key: "k", Limit: flying, Hold: r.ID(), Units: 1}}
		for range 3 {
			s.Memory.Holds(t.Context(), time.Time{}, lost) // as if it had forgotten all
			if s.held(t, "k", budget)+s.held(t, "k", flying) != 0 {
				t.Fatal("it is not lost")
			}
			pass(11 * time.Second)
			if a, b := s.held(t, "k", budget), s.held(t, "k", flying); a != 30 || b != 1 {
				t.Errorf("%d and %d held, want 30 and 1", a, b)
			}
			pass(10 * time.Second)
		}
		lost[0].Action = stint.HoldRelease
		s.Memory.Holds(t.Context(), time.Time{}, lost[:1])
		before := s.did(stint.HoldRenew)
		pass(5 * time.Minute)
		if a, b := s.held(t, "k", budget), s.held(t, "k", flying); a != 0 || b != 1 {
			t.Errorf("%d and %d held, want 0, for it was released, and 1", a, b)
		}
		if n := s.did(stint.HoldRenew) - before; n > 300*4/30+5 {
			t.Errorf("%d renewals, also of what was released", n)
		}
		if err := r.Settle(t.Context(), 20); !errors.Is(err, stint.ErrHoldLost) || !strings.Contains(err.Error(), "budget") {
			t.Errorf("settled what was released: %v", err)
		}
		if n := remaining(t, &l, "k", budget); n != 1000 || s.held(t, "k", flying) != 0 {
			t.Errorf("%d remain, want 1000", n)
		}
	})
}

// A settlement does not pass a call that may put its record back.
func TestSettleWaitsForRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(holding)
		l := stint.Limiter{Store: s}
		s.before = func(calls []stint.HoldCall) {
			if calls[0].Again {
				time.Sleep(700 * time.Millisecond)
			}
		}
		for _, left := range []bool{false, true} {
			r, _, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget, Cost: 10}}})
			if err != nil {
				t.Fatal(err)
			}
			s.Memory.Holds(t.Context(), time.Time{}, []stint.HoldCall{{Key: "k", Limit: budget, Hold: r.ID(), Units: 10}})
			pass(10*time.Second + 100*time.Millisecond) // the record is about to be made again
			ctx, cancel := context.WithCancel(t.Context())
			if left {
				cancel()
			}
			if err := r.Settle(ctx, 4); err != nil {
				t.Errorf("client left %v: %v", left, err)
			}
			cancel()
			pass(2 * time.Second)
			if n := s.held(t, "k", budget); n != 0 {
				t.Errorf("client left %v: %d held after the settlement", left, n)
			}
		}
		if n := remaining(t, &l, "k", budget); n != 1000-2*4 {
			t.Errorf("%d remain, want 992", n)
		}
	})
}

// A settlement that the store does not answer is charged once when it is back, also if it was
// done and only the answer was lost, also if the client has left; and not at all if the hold had
// run out.
func TestSettlementKept(t *testing.T) {
	away := errors.New("away")
	for name, c := range map[string]struct {
		lose, left, hang bool
		for_             time.Duration
		want             int64
		lines            string
	}{
		"away":              {for_: 20 * time.Second, want: 3},
		"hangs":             {hang: true, for_: 20 * time.Second, want: 3},
		"answer lost":       {lose: true, for_: 20 * time.Second, want: 3},
		"client left":       {left: true, want: 3},
		"away, client left": {left: true, for_: 20 * time.Second, want: 3},
		"away for too long": {for_: 40 * time.Second, want: 0, lines: "is not charged"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := logged(t)
				s := new(holding)
				var ends []stint.HoldCall
				l := stint.Limiter{Store: s, ObserveHold: func(_ context.Context, c *stint.HoldCall) { ends = append(ends, *c) }}
				r, _, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget, Cost: 8}}})
				if err != nil {
					t.Fatal(err)
				}
				pass(25 * time.Second) // it is renewed meanwhile
				s.mu.Lock()
				if s.lose, s.hang = c.lose, c.hang; c.for_ > 0 {
					s.fail = away
				}
				s.mu.Unlock()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if c.left {
					cancel()
				}
				if err := r.Settle(ctx, 3); err != nil {
					t.Error(err)
				}
				cancel()
				pass(c.for_)
				s.mu.Lock()
				s.fail, s.hang = nil, false
				s.mu.Unlock()
				pass(3 * time.Second)
				if got := 1000 - remaining(t, &l, "k", budget); got != c.want {
					t.Errorf("%d used, want %d", got, c.want)
				}
				if c.want > 0 && s.held(t, "k", budget) != 0 {
					t.Error("it is still held")
				}
				if len(ends) != 1 || errors.Is(ends[0].Err, stint.ErrHoldLost) != (c.want == 0) || errors.Is(ends[0].Err, away) != (c.want == 0) {
					t.Errorf("observed %+v", ends)
				}
				if got := text(); strings.Contains(got, c.lines) != true || c.lines == "" && got != "" {
					t.Errorf("the log: %q", got)
				}
				calls := s.sent()
				if pass(time.Minute); s.sent() != calls {
					t.Errorf("%d calls about nothing", s.sent()-calls)
				}
			})
		})
	}
}

// While the store is away, little is sent, and memory is bounded.
func TestSettlementsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged(t)
		s := new(holding)
		l := stint.Limiter{Store: s}
		s.MaxKeys = 1 << 20
		long := strings.Repeat("k", stint.MaxKey-8)
		const n = 12_000
		all := make([]*stint.Reservation, n)
		for i := range all {
			var err error
			key := long + strings.Repeat("0", 4-len(string(rune(i)))) + string(rune(i))
			if all[i], _, err = l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Limit: budget, Cost: 2}}, HoldFor: 0}); err != nil {
				t.Fatal(err)
			}
		}
		s.set(errors.New("away"))
		kept := 0
		for _, r := range all {
			if err := r.Settle(t.Context(), 2); err == nil {
				kept++
			} else if !errors.Is(err, stint.ErrHoldLost) {
				t.Fatal(err)
			}
		}
		if bytes := kept * stint.MaxKey; bytes > 32<<20 || bytes < 28<<20 {
			t.Errorf("%d settlements of %d bytes are kept", kept, bytes)
		}
		synctest.Wait()
		before := s.sent()
		pass(10 * time.Second)
		if calls := s.sent() - before; calls > 20 {
			t.Errorf("%d calls in 10s of a store that is away", calls)
		}
		s.set(nil)
		pass(5 * time.Second)
		if s.did(stint.HoldSettle) < kept {
			t.Errorf("%d settlements were sent, of %d", s.did(stint.HoldSettle), kept)
		}
		for _, size := range s.sizes {
			if size > 256 {
				t.Errorf("a call of %d", size)
			}
		}
	})
}

// A server keeps settlements as far as its memory allows.
func TestSettlementsBoundedByMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged(t)
		s := new(holding)
		l := stint.Limiter{Store: s}
		stint.Internal().SetMaxOwed(&l, 100_000)
		kept := 0
		var all []*stint.Reservation
		for range 1000 {
			r, _, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget}}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		s.set(errors.New("away"))
		for _, r := range all {
			if r.Settle(t.Context(), 2) == nil {
				kept++
			}
		}
		if kept < 100 || kept > 500 {
			t.Errorf("%d settlements are kept in 100 KB", kept)
		}
		s.set(nil)
		pass(5 * time.Second)
	})
}

// What a request may hold whose answer was lost is settled with 0.
func TestLostAnswerIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(holding)
		ends := 0
		l := stint.Limiter{Store: s, ObserveHold: func(context.Context, *stint.HoldCall) { ends++ }}
		lost := errors.New("answer lost")
		s.takes = func(*stint.Request) error { return lost }
		request := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: starts}, {Key: "k", Limit: budget, Cost: 8}}}
		for name, take := range map[string]func() error{
			"Reserve": func() error { _, _, err := l.Reserve(t.Context(), &request); return err },
			"Take": func() error {
				r := request
				r.Hold = stint.NewHoldID()
				_, err := l.Take(t.Context(), &r, nil)
				return err
			},
			"TakeBatch": func() error {
				r := request
				r.Hold = stint.NewHoldID()
				answers := make([]stint.Answer, 1)
				l.TakeBatch(t.Context(), []stint.Request{r}, answers)
				return answers[0].Err
			},
		} {
			s.set(lost)
			if err := take(); !errors.Is(err, lost) {
				t.Fatalf("%s: %v", name, err)
			}
			if n := s.held(t, "k", budget); n != 8 {
				t.Fatalf("%s: %d held", name, n)
			}
			pass(5 * time.Second)
			s.set(nil)
			pass(2 * time.Second)
			if n := s.held(t, "k", budget); n != 0 {
				t.Errorf("%s: %d still held", name, n)
			}
		}
		if d, err := s.Memory.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget, Peek: true}}}, nil); err != nil || d.Remaining != 1000 || ends != 0 {
			t.Errorf("%+v, %v; %d ends observed", d, err, ends)
		}
	})
}

// lateStore makes the holds of a call after its caller has given up.
type lateStore struct {
	stint.Memory
	by time.Duration
}

func (s *lateStore) Take(_ context.Context, r *stint.Request, _ []stint.Decision) (stint.Decision, error) {
	again := *r
	again.Asks = slices.Clone(r.Asks)
	time.AfterFunc(s.by, func() { _, _ = s.Memory.Take(context.Background(), &again, nil) })
	return stint.Decision{}, errors.New("answer lost")
}

// What a call holds that arrives late is released, however late that is.
func TestLateHoldIsReleased(t *testing.T) {
	for _, by := range []time.Duration{50 * time.Millisecond, 2 * time.Second, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &lateStore{by: by}
			l := stint.Limiter{Store: s}
			if _, _, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget, Cost: 8}}}); err == nil {
				t.Fatal("the answer was not lost")
			}
			pass(by)
			if all, err := s.Held(t.Context(), "k", []*stint.Limit{budget}); len(all) != 1 || err != nil {
				t.Fatalf("after %s: %v, %v", by, all, err)
			}
			pass(by + 4*time.Second)
			if all, err := s.Held(t.Context(), "k", []*stint.Limit{budget}); len(all) != 0 || err != nil {
				t.Errorf("after %s: %v, %v", by, all, err)
			}
			pass(time.Minute)
		})
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
	deadline := time.Now().Add(30 * time.Second)
	for {
		runtime.GC()
		if s.held(t, "k", short) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a dropped Reservation still holds")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := remaining(t, &l, "k", short); n != 992 {
		t.Errorf("%d remain, want 992", n)
	}
	for range 100 {
		if strings.Contains(text(), "dropped without") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("the log: %q", text())
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
