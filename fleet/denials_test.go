package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/limittest"
)

// notifier is a Memory that counts calls and notifies of what is invalidated, as a server does.
type notifier struct {
	*limittest.Faulty
	mu           sync.Mutex
	listeners    map[int]fleet.Listener
	next         int
	disconnected bool // notifies nobody, and says so
	delay        time.Duration
}

func newNotifier() *notifier {
	return &notifier{Faulty: &limittest.Faulty{Store: new(stint.Memory)}, listeners: map[int]fleet.Listener{}}
}

func (s *notifier) Notify(ctx context.Context, e fleet.Listener) error {
	s.mu.Lock()
	n := s.next
	s.next++
	s.listeners[n] = e
	e.Connected(!s.disconnected)
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.listeners, n)
	s.mu.Unlock()
	return nil
}

func (s *notifier) connected(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disconnected = !yes
	for _, e := range s.listeners {
		e.Connected(yes)
	}
}

func (s *notifier) notify(r *stint.Request) {
	if s.delay > 0 {
		time.Sleep(s.delay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.listeners {
		for i := range r.Asks {
			if !s.disconnected {
				e.Invalidated(r.Asks[i].Key)
			}
		}
	}
}

func (s *notifier) Refund(ctx context.Context, r *stint.Request) error {
	err := s.Faulty.Refund(ctx, r)
	s.notify(r)
	return err
}

func (s *notifier) Reset(ctx context.Context, r *stint.Request) error {
	err := s.Faulty.Reset(ctx, r)
	s.notify(r)
	return err
}

// remembering is a Denials over s that hears.
func remembering(t testing.TB, s stint.Store, keys int) *fleet.Denials {
	d := &fleet.Denials{Store: s, MaxKeys: keys}
	t.Cleanup(d.Close)
	for !d.Connected() {
		runtime.Gosched()
	}
	return d
}

func TestDenialsKit(t *testing.T) {
	limittest.Kit{
		New: func(t *testing.T) stint.Store { return remembering(t, newNotifier(), 0) },
		Fleet: func(t *testing.T) []stint.Store {
			s := newNotifier()
			return []stint.Store{remembering(t, s, 0), remembering(t, s, 10)}
		},
	}.Run(t)
}

var eachAlgorithm = []string{"10 per 1m", "10 per 1m leaky_bucket", "10 per 1m fixed_window", "10 per 1m sliding_log", "10 per 1m sliding_window", "10 per month in America/Havana"}

// A refusal is refused again without the store until the µs before it would be
// allowed, and from then on the store is asked.
func TestDenialsUntil(t *testing.T) {
	for _, text := range eachAlgorithm {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newNotifier()
				d := remembering(t, s, 0)
				defer d.Close()
				l, limit := stint.NewLimiter(d), stint.MustLimit(text)
				var refused stint.Decision
				for range 11 {
					refused, _ = l.Allow(t.Context(), "k", limit)
				}
				if refused.Allowed || refused.Remembered || s.Calls() != 11 {
					t.Fatalf("%+v after %d calls", refused, s.Calls())
				}
				began := time.Now()
				for _, after := range []time.Duration{0, time.Millisecond, refused.RetryAfter / 2, refused.RetryAfter - 2*time.Microsecond} {
					time.Sleep(after - time.Since(began))
					again, err := l.Allow(t.Context(), "k", limit)
					want := refused
					want.Remembered = true
					want.RetryAfter -= after
					want.ResetAfter -= after
					if again != want || err != nil {
						t.Errorf("after %s: %+v, %v\nwant %+v", after, again, err, want)
					}
				}
				if s.Calls() != 11 || d.Remembered() != 4 {
					t.Errorf("%d calls, %d remembered", s.Calls(), d.Remembered())
				}
				time.Sleep(refused.RetryAfter - time.Since(began))
				if d, err := l.Allow(t.Context(), "k", limit); !d.Allowed || err != nil {
					t.Errorf("when it may: %+v, %v", d, err)
				}
			})
		})
	}
}

// Over random steps, whatever a Denials answers is what its store alone would.
func TestDenialsIsItsStore(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { walkBoth(t, seed) })
		})
	}
}

func walkBoth(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	store, bare := newNotifier(), new(stint.Memory)
	two := []*fleet.Denials{remembering(t, store, 0), remembering(t, store, 16)}
	defer two[0].Close()
	defer two[1].Close()
	var limits []*stint.Limit
	for _, text := range []string{"%d per 1s", "%d per 2s leaky_bucket", "%d per 1s fixed_window", "%d per 3s sliding_log", "%d per 2s sliding_window"} {
		for amount := 3; amount < 6; amount += 2 {
			limits = append(limits, stint.MustLimit(fmt.Sprintf(text, amount)))
		}
	}
	numbers := [5]int{} // which of its two amounts each has now
	penalty, err := stint.NewPenalty(stint.PenaltySpec{WarnAfter: 3, BanAfter: 6, BanFor: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for step := range 3000 {
		d := two[rng.IntN(2)]
		r := stint.Request{}
		for i := range 1 + rng.IntN(2) {
			kind := rng.IntN(5)
			a := stint.Ask{Key: fmt.Sprint(rng.IntN(3)), Limit: limits[2*kind+numbers[kind]]}
			stint.Internal(friend.Of{}).SetUnits(&a, int64(rng.IntN(4)))
			if rng.IntN(4) == 0 {
				a.Penalty = penalty
			}
			if i == 0 || a.Key != r.Asks[0].Key || a.Limit.ID() != r.Asks[0].Limit.ID() {
				r.Asks = append(r.Asks, a)
			}
		}
		again := r
		switch n := rng.IntN(100); {
		case n < 3:
			r.Asks[0].Penalty = nil
			_ = errors.Join(d.Refund(t.Context(), &r), bare.Refund(t.Context(), &again))
		case n < 4:
			_ = errors.Join(d.Reset(t.Context(), &r), bare.Reset(t.Context(), &again))
		case n < 5:
			// The rules change. Of a bucket the store itself may then allow before the
			// wait that it told is over (docs/decisions/0001-limits-and-counts.md), which is told with Denials.
			kind := 2 + rng.IntN(3)
			numbers[kind] = 1 - numbers[kind]
			two[0].ForgetAll()
			two[1].ForgetAll()
		default:
			have, want := make([]stint.Decision, len(r.Asks)), make([]stint.Decision, len(r.Asks))
			a, err1 := d.Take(t.Context(), &r, have)
			b, err2 := bare.Take(t.Context(), &again, want)
			// What came in between may have made the wait longer than was told.
			same := a.Outcome == b.Outcome && a.Allowed == b.Allowed && a.BanLeft <= b.BanLeft && a.RetryAfter <= b.RetryAfter
			if !same || (a.RetryAfter == 0) != (b.RetryAfter == 0) || errors.Join(err1, err2) != nil {
				t.Fatalf("step %d: %+v:\nhave %+v\nwant %+v", step, r.Asks, a, b)
			}
		}
		time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond * time.Duration(rng.IntN(2)))
	}
	if calls, from := store.Calls(), two[0].Remembered()+two[1].Remembered(); from < 50 { // few requests come twice
		t.Errorf("%d calls, and only %d answers from memory", calls, from)
	}
}

// What another instance refunds or forgets is heard of, and nothing is remembered
// while nothing can be heard.
func TestDenialsAreNotified(t *testing.T) {
	s := newNotifier()
	one, two := stint.NewLimiter(remembering(t, s, 0)), stint.NewLimiter(remembering(t, s, 0))
	limit := stint.MustLimit("1 per 1h")
	spent := func() {
		t.Helper()
		for range 3 {
			if _, err := one.Allow(t.Context(), "k", limit); err != nil {
				t.Fatal(err)
			}
		}
	}
	free := func(what string) {
		t.Helper()
		if d, err := one.Allow(t.Context(), "k", limit); !d.Allowed || err != nil {
			t.Errorf("%s: %+v, %v", what, d, err)
		}
	}
	spent()
	if s.Calls() != 2 {
		t.Fatalf("%d calls", s.Calls())
	}
	_ = stint.Refund(t.Context(), two.Store, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 1}}})
	free("refunded elsewhere")
	spent()
	_ = two.Reset(t.Context(), "k", limit)
	free("reset elsewhere")
	spent()
	calls := s.Calls()
	s.connected(false)
	spent()
	if n := s.Calls() - calls; n != 3 {
		t.Errorf("%d calls while nothing is heard, of 3", n)
	}
	s.connected(true)
	calls = s.Calls()
	spent()
	if n := s.Calls() - calls; n != 1 {
		t.Errorf("%d calls once something is heard again, of 3", n)
	}
}

// A refusal that was decided before units were refunded, and comes after, is not
// remembered.
func TestDenialsRace(t *testing.T) {
	s := newNotifier()
	limit := stint.MustLimit("1 per 1h")
	slow := &between{notifier: s}
	l := stint.NewLimiter(remembering(t, slow, 0))
	_, _ = l.Allow(t.Context(), "k", limit)
	slow.then = func() {
		slow.then = nil
		_ = s.Refund(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 1}}})
	}
	if d, _ := l.Allow(t.Context(), "k", limit); d.Allowed {
		t.Fatal("allowed before it was refunded")
	}
	if d, _ := l.Allow(t.Context(), "k", limit); !d.Allowed {
		t.Error("what had been refunded was refused")
	}
}

// between does something between an answer and its arrival.
type between struct {
	*notifier
	then func()
}

func (b *between) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	d, err := b.notifier.Take(ctx, r, out)
	if b.then != nil {
		b.then()
	}
	return d, err
}

// Violations are counted by the Store, each in its turn and those of other instances
// between them, until a ban comes, to the violation; from then on the Store is not asked.
func TestDenialsViolations(t *testing.T) {
	s := newNotifier()
	l, other, limit := stint.NewLimiter(remembering(t, s, 0)), stint.NewLimiter(s), stint.MustLimit("1 per 1h")
	p, _ := stint.NewPenalty(stint.PenaltySpec{WarnAfter: 500, BanAfter: 1500, BanFor: time.Hour})
	r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Penalty: p}}}
	flood := func() {
		t.Helper()
		for n := int64(1); n <= 1500; n++ {
			want := stint.Limited
			switch {
			case n == 1500:
				want = stint.Banned
			case n >= 500:
				want = stint.Warned
			case n%7 == 0:
				_, _ = other.Violate(t.Context(), "k", p)
				continue
			}
			if got, err := l.Take(t.Context(), &r, nil); got.Outcome != want || got.Violations != n || got.Penalty != p || err != nil {
				t.Fatalf("violation %d: %+v, %v", n, got, err)
			}
		}
	}
	_, _ = l.Take(t.Context(), &r, nil)
	flood()
	calls := s.Calls()
	for range 10_000 {
		if got, err := l.Take(t.Context(), &r, nil); got.Outcome != stint.Banned || got.Penalty != p || got.BanLeft < 59*time.Minute || err != nil {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if n := s.Calls() - calls; n > 1 {
		t.Errorf("%d calls of 10,000 by a key that is banned", n)
	}
	if found, err := l.Pardon(t.Context(), "k", p); !found || err != nil {
		t.Error(found, err)
	}
	flood()
}

// Whoever invents keys costs calls, and never more memory, nor a wrong answer.
func TestDenialsFlood(t *testing.T) {
	s := newNotifier()
	l := stint.NewLimiter(remembering(t, s, 100))
	limit := stint.MustLimit("1 per 1h")
	for i := range 20_000 {
		for n := range 2 {
			if d, err := l.Allow(t.Context(), fmt.Sprint(i), limit); d.Allowed != (n == 0) || err != nil {
				t.Fatalf("%+v, %v", d, err)
			}
		}
	}
	calls := s.Calls()
	for range 1000 {
		if d, err := l.Allow(t.Context(), "0", limit); d.Allowed || err != nil {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if n := s.Calls() - calls; n > 1 {
		t.Errorf("%d calls of a flood of one key after one of many", n)
	}
}

// A store that tells nothing is asked each time.
func TestDenialsWithoutNotifier(t *testing.T) {
	f := &limittest.Faulty{Store: new(stint.Memory)}
	l := stint.NewLimiter(&fleet.Denials{Store: f})
	for range 10 {
		_, _ = l.Allow(t.Context(), "k", stint.MustLimit("1 per 1h"))
	}
	if f.Calls() != 10 {
		t.Errorf("%d calls", f.Calls())
	}
}

// Many ask, refund and forget at once.
func TestDenialsAtOnce(t *testing.T) {
	s := newNotifier()
	d := remembering(t, s, 64)
	limit := stint.MustLimit("3 per 1ms")
	p, _ := stint.NewPenalty(stint.PenaltySpec{BanAfter: 500, BanFor: time.Millisecond})
	var done sync.WaitGroup
	var asked atomic.Int64
	for i := range 8 {
		done.Go(func() {
			l := stint.NewLimiter(d)
			for n := range 2000 {
				key := fmt.Sprint((i + n) % 5)
				_, _ = l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Cost: 1, Penalty: p}}}, nil)
				asked.Add(1)
				switch n % 100 {
				case 7:
					_ = stint.Refund(t.Context(), l.Store, &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Cost: 1}}})
				case 57:
					_, _ = l.Pardon(t.Context(), key, p)
				case 77:
					s.connected(false)
					s.connected(true)
				}
			}
		})
	}
	done.Wait()
}

func TestDenialsAllocateNothing(t *testing.T) {
	l := stint.NewLimiter(remembering(t, newNotifier(), 0))
	limit := stint.MustLimit("1 per 1h")
	for range 2 {
		_, _ = l.Allow(t.Context(), "k", limit)
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = l.Allow(t.Context(), "k", limit) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A flood of one key that is refused: from memory, and beside it by Memory itself.
func BenchmarkDenials(b *testing.B) {
	limit := stint.MustLimit("1 per 1h")
	flood := func(b *testing.B, s stint.Store) {
		l := stint.NewLimiter(s)
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := l.Allow(b.Context(), "k", limit); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("memory", func(b *testing.B) { flood(b, new(stint.Memory)) })
	b.Run("denials", func(b *testing.B) {
		s := newNotifier()
		d := remembering(b, s, 0)
		flood(b, d)
		b.ReportMetric(float64(s.Calls())/float64(b.N), "calls/op")
	})
}

// A refusal that is due to what is held ends when anybody settles, and is not remembered. One by what
// is used is, also of a request that is refused by both; no settlement shortens it.
func TestDenialsOfHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newNotifier()
		d := &fleet.Denials{Store: store}
		defer d.Close()
		for !d.Connected() {
			runtime.Gosched()
		}
		l := stint.NewLimiter(d)
		budget, flying, rate := stint.MustLimit("budget: 10 per 1m fixed_window hold 10s retry 5s"), stint.MustLimit("1 in_flight"), stint.MustLimit("1 per 1m fixed_window")
		ask := func(hold bool, cost int64, limits ...*stint.Limit) string {
			t.Helper()
			r := stint.Request{}
			if hold {
				r.Hold = stint.NewHoldID()
			}
			for _, limit := range limits {
				a := stint.Ask{Key: "k", Limit: limit, Cost: cost}
				a.Peek = cost == 0
				r.Asks = append(r.Asks, a)
			}
			calls := store.Calls()
			each := make([]stint.Decision, len(limits))
			got, err := l.Take(t.Context(), &r, each)
			if err != nil {
				t.Fatal(err)
			}
			s := fmt.Sprint(got.Outcome, ", calls ", store.Calls()-calls)
			for _, e := range each {
				s += fmt.Sprint(", ", e.Held, " held")
				if e.Busy {
					s += fmt.Sprint(", busy for ", e.RetryAfter)
				}
			}
			return s
		}
		same(t, ask(true, 8, budget), "allowed, calls 1, 8 held")
		for range 2 {
			same(t, ask(true, 3, budget), "limited, calls 1, 8 held, busy for 5s")
			same(t, ask(false, 3, budget), "limited, calls 1, 8 held, busy for 5s")
		}
		same(t, ask(true, 1, flying), "allowed, calls 1, 1 held")
		same(t, ask(true, 1, flying), "limited, calls 1, 1 held, busy for 1s")
		same(t, ask(true, 1, rate), "allowed, calls 1, 0 held")
		// The rate refuses for a minute, whatever becomes of what is held.
		same(t, ask(true, 1, rate, flying), "limited, calls 1, 0 held, 1 held, busy for 1s")
		time.Sleep(3 * time.Second)
		same(t, ask(true, 1, rate, flying), "limited, calls 0, 0 held, 1 held, busy for 1s")

		charge := []stint.HoldCall{{Action: stint.HoldCharge, Key: "k", Limit: budget, Cost: 10}}
		if stint.Holds(t.Context(), d, time.Time{}, charge); charge[0].Err != nil {
			t.Fatal(charge[0].Err)
		}
		time.Sleep(8 * time.Second) // the hold has run out
		same(t, ask(true, 0, budget), "limited, calls 1, 0 held")
		same(t, ask(true, 0, budget), "limited, calls 0, 0 held")
		same(t, ask(false, 0, budget), "allowed, calls 1, 0 held") // it asks for nothing
		same(t, ask(true, 3, budget), "limited, calls 1, 0 held")
		same(t, ask(false, 3, budget), "limited, calls 1, 0 held")
		same(t, ask(true, 3, budget), "limited, calls 0, 0 held")
	})
}

// A ban is remembered no longer than the debt of a limit lasts: who is banned is told how long the
// debt refuses.
func TestDenialsOfDebts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newNotifier()
		d := &fleet.Denials{Store: store}
		defer d.Close()
		for !d.Connected() {
			runtime.Gosched()
		}
		bucket := stint.MustLimit("10 per 10s hold debt 90")
		p := penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: 20 * time.Second})
		charge := []stint.HoldCall{{Action: stint.HoldCharge, Key: "k", Limit: bucket, Cost: 100}}
		if stint.Holds(t.Context(), d, time.Time{}, charge); charge[0].Charged != 100 {
			t.Fatal(charge[0])
		}
		for range 3 {
			got, err := stint.NewLimiter(d).Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: bucket, Penalty: p}}}, nil)
			if err != nil || got.Outcome != stint.Banned || got.RetryAfter != 91*time.Second {
				t.Fatalf("%+v, %v", got, err)
			}
		}
	})
}
