package stint_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

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

// What the store has lost is made again by the next renewal, however often it is lost, and what was
// released is not.
func TestReservationRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(holding)
		l := stint.Limiter{Store: s}
		r, _, err := l.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget, Cost: 30}, {Key: "k", Limit: flying}}})
		if err != nil {
			t.Fatal(err)
		}
		lost := []stint.HoldCall{{Key: "k", Limit: budget, Hold: r.ID(), Units: 30}, {Key: "k", Limit: flying, Hold: r.ID(), Units: 1}}
		for i := range 6 {
			s.Memory.Holds(t.Context(), time.Time{}, lost) // as if it had forgotten all
			if s.held(t, "k", budget)+s.held(t, "k", flying) != 0 {
				t.Fatal("it is not lost")
			}
			pass(11 * time.Second)
			if a, b := s.held(t, "k", budget), s.held(t, "k", flying); a != 30 || b != 1 {
				t.Errorf("%d and %d held, want 30 and 1", a, b)
			}
			if i%3 == 2 { // else all that a renewal finds is lost
				pass(10 * time.Second)
			}
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
		stint.Internal(friend.Of{}).SetMaxOwed(&l, 100_000)
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
