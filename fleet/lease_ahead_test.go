package fleet_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/limittest"
)

// slow is a store that is a round trip away: it decides in the middle of it.
type slow struct {
	limittest.Faulty
	trip func() time.Duration
}

func farAway(trip time.Duration) *slow {
	return &slow{Faulty: limittest.Faulty{Store: new(stint.Memory)}, trip: func() time.Duration { return trip }}
}

// stroll lets half of a trip pass; without one, not even the scheduler has a turn.
func (s *slow) stroll() {
	if d := s.trip(); d > 0 {
		time.Sleep(d / 2)
	}
}

func (s *slow) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	s.stroll()
	defer s.stroll()
	return s.Faulty.Take(ctx, r, out)
}

func (s *slow) Refund(ctx context.Context, r *stint.Request) error {
	s.stroll()
	defer s.stroll()
	return s.Faulty.Refund(ctx, r)
}

// stream asks for one unit every gap, n times, without waiting for the answers, and
// tells how long each took.
func stream(t testing.TB, s stint.Store, limit *stint.Limit, n int, gap time.Duration) []time.Duration {
	var all sync.WaitGroup
	took, l := make([]time.Duration, n), stint.NewLimiter(s)
	for i := range took {
		all.Go(func() {
			began := time.Now()
			if d, err := l.Allow(t.Context(), "k", limit); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
			took[i] = time.Since(began)
		})
		time.Sleep(gap)
	}
	all.Wait()
	return took
}

// Once a key is hot, nobody waits for the store, however far away it is, and it is
// asked no more often than if each lease came with a request (then).
func TestLeasesAhead(t *testing.T) {
	for _, tt := range []struct {
		limit     string
		gap, trip time.Duration
		then      int // calls, of which each was waited for
	}{
		{"60000 per 1s lease 20%", 100 * time.Microsecond, time.Millisecond, 105},
		{"60000 per 1s lease 20%", 100 * time.Microsecond, 5 * time.Millisecond, 506},
		{"60000 per 1s lease 20%", 200 * time.Microsecond, 5 * time.Millisecond, 404},
		{"60000 per 1s lease 20%", time.Millisecond, 5 * time.Millisecond, 440},
		{"60000 per 1s lease 20%", 20 * time.Millisecond, 5 * time.Millisecond, 1539},
		{"60000 per 1s lease 4%", 200 * time.Microsecond, time.Millisecond, 270},
		{"60000 per 1s lease 1%", 200 * time.Microsecond, 5 * time.Millisecond, 4056}, // a lease lasts for 20 ms
		{"200000000 per 1h fixed_window lease 1%", 200 * time.Microsecond, 5 * time.Millisecond, 400},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := farAway(tt.trip)
			l, limit := leasing(t, s, 3), stint.MustLimit(tt.limit)
			stream(t, l, limit, 5000, tt.gap)
			calls, waited := s.Calls(), 0
			for _, d := range stream(t, l, limit, 20_000, tt.gap) {
				if d > 0 {
					waited++
				}
			}
			if calls = s.Calls() - calls; waited > 0 || calls > tt.then {
				t.Errorf("%+v: %d waited, and %d calls", tt, waited, calls)
			}
		})
	}
}

// Requests that are decided together have the next lease charged, too.
func TestLeasesAheadOfEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := farAway(5 * time.Millisecond)
		l, limit := leasing(t, s, 1), stint.MustLimit("60000 per 1s lease 20%")
		stream(t, l, limit, 1000, time.Millisecond)
		calls, began := s.Calls(), time.Now()
		rs, answers := make([]stint.Request, 3), make([]stint.Answer, 3)
		for i := range rs {
			rs[i].Asks = []stint.Ask{{Key: "k", Limit: limit, Cost: 1}}
		}
		for range 1000 {
			l.TakeBatch(t.Context(), rs, answers)
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > time.Second || s.Calls()-calls > 10 {
			t.Errorf("they took %s, with %d calls", took, s.Calls()-calls)
		}
	})
}

// ajar is a store that lets what is charged ahead wait on the way back.
type ajar struct {
	limittest.Faulty
	wait chan struct{} // nil: it does not wait
	err  error         // what is lost
	came int
}

func (s *ajar) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	d, err := s.Faulty.Take(ctx, r, out)
	if ctx.Value(charging{}) != nil {
		return d, err
	}
	if s.came++; s.wait != nil {
		<-s.wait
	}
	if s.err != nil {
		return stint.Decision{}, s.err
	}
	return d, err
}

// What comes of the next lease if something happens while it is on its way.
func TestLeasesAheadMeanwhile(t *testing.T) {
	const bucket, window = "60000 per 1s lease 20%", "60000 per 1s fixed_window lease 20%"
	for _, tt := range []struct {
		name, limit string
		err         error
		happens     func(*fleet.Leases, *stint.Limit)
		void, held  bool // what becomes of it and of what was left
		serves      bool
	}{
		{"nothing", bucket, nil, func(*fleet.Leases, *stint.Limit) {}, false, true, true},
		{"nothing", window, nil, func(*fleet.Leases, *stint.Limit) {}, false, true, true},
		{"lost", bucket, limittest.ErrFault, func(*fleet.Leases, *stint.Limit) {}, false, true, true},
		{"reset", bucket, nil, reset, false, true, true},
		{"reset", window, nil, reset, true, false, false},
		{"forgotten", window, nil, func(l *fleet.Leases, limit *stint.Limit) {
			l.Forget(&stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}}})
		}, true, false, false},
		{"closed", bucket, nil, func(l *fleet.Leases, _ *stint.Limit) { go l.Close() }, false, false, false},
		{"closed", window, nil, func(l *fleet.Leases, _ *stint.Limit) { go l.Close() }, false, false, false},
		{"the window ends", window, nil, func(*fleet.Leases, *stint.Limit) { time.Sleep(time.Second) }, true, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &ajar{Faulty: limittest.Faulty{Store: new(stint.Memory)}}
				l, limit := leasing(t, s, 1), stint.MustLimit(tt.limit)
				ctx := context.WithValue(t.Context(), charging{}, true)
				once := func() {
					if _, err := stint.NewLimiter(l).Allow(ctx, "k", limit); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
					synctest.Wait()
				}
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // a window begins
				for range 50 {
					once()
				}
				s.wait, s.err, s.came = make(chan struct{}), tt.err, 0
				for s.came == 0 {
					once()
				}
				before := l.Units()
				tt.happens(l, limit)
				synctest.Wait()
				close(s.wait)
				synctest.Wait()
				u := l.Units()
				if lost := u.Charged == before.Charged; lost != (tt.err != nil) || u.Charged != u.Served+u.Returned+u.Void+u.Held {
					t.Errorf("%+v, before %+v", u, before)
				}
				if (u.Void > 0) != tt.void || (u.Held > 0) != tt.held || (u.Returned > before.Returned) != (!tt.void && !tt.held) {
					t.Errorf("%+v", u)
				}
				if tt.err != nil && u.Held != before.Held {
					t.Errorf("%d held of %d", u.Held, before.Held)
				}
				if once(); (l.Units().Served > u.Served) != tt.serves {
					t.Errorf("%+v, and then %+v", u, l.Units())
				}
			})
		})
	}
}

func reset(l *fleet.Leases, limit *stint.Limit) {
	_ = l.Reset(context.Background(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}}})
}

// Nothing is charged ahead of a bucket that is exhausted, and what comes late goes back.
func TestLeasesAheadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &ajar{Faulty: limittest.Faulty{Store: new(stint.Memory)}}
		l, limit := leasing(t, s, 1), stint.MustLimit("24000 per 1m lease 10%")
		limiter, ctx := stint.NewLimiter(l), context.WithValue(t.Context(), charging{}, true)
		ask := func(n int) {
			for range n {
				_, _ = limiter.Allow(ctx, "k", limit)
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
		}
		ask(1000)
		if s.came == 0 {
			t.Error("nothing was charged ahead")
		}
		_, _ = limiter.AllowN(ctx, "k", limit, limit.Capacity()-2000)
		ask(10_000)
		s.came = 0
		if ask(5000); s.came > 0 {
			t.Errorf("%d charged ahead of an exhausted bucket", s.came)
		}

		// It comes when nobody asks any more.
		reset(l, limit)
		for s.wait = make(chan struct{}); s.came == 0; {
			ask(1)
		}
		time.Sleep(time.Minute)
		held := l.Units().Held
		close(s.wait)
		synctest.Wait()
		came := l.Units().Held
		time.Sleep(time.Minute)
		if u := l.Units(); held > 0 || came == 0 || u.Held > 0 {
			t.Errorf("%d held, then %d, then %+v", held, came, u)
		}
	})
}
