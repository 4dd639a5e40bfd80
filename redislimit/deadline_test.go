package redislimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// by is a request with a deadline of its own.
func by(deadline time.Duration, limit *stint.Limit, keys ...string) *stint.Request {
	r := &stint.Request{Deadline: deadline}
	for _, k := range keys {
		r.Asks = append(r.Asks, stint.Ask{Key: k, Limit: limit, Cost: 1})
	}
	return r
}

// Whose deadline passes in the queue is not charged, and is told so; whose passes
// while the call is under way may be charged, and is.
func TestDeadline(t *testing.T) {
	_, s, g := gated(t)
	limit := stint.MustLimit("10 per 1h")
	var done sync.WaitGroup
	for range fewCalls {
		done.Go(func() {
			if _, err := s.Take(context.Background(), by(250*time.Millisecond, limit, "sent"), nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fleet.ErrNotCharged) {
				t.Errorf("under way: %v", err)
			}
		})
		await.Until(t, "it is under way", func() bool { return s.queued() == 0 && g.made() > 0 })
	}
	done.Wait()
	for range max(0, fewCalls-g.made()) { // those two may have gone together
		go func() { _, _ = s.Take(context.Background(), by(0, limit, "busy"), nil) }()
	}
	await.Until(t, "all calls are under way", func() bool { return g.made() == fewCalls })
	if _, err := s.Take(context.Background(), by(20*time.Millisecond, limit, "queued"), nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, fleet.ErrNotCharged) {
		t.Errorf("queued: %v", err)
	}
	close(g.pass)
	idle(t, s)
	for key, want := range map[string]int64{"sent": 8, "queued": 10} {
		if d, err := stint.NewLimiter(s).Peek(t.Context(), key, limit); err != nil || d.Remaining != want {
			t.Errorf("%s: %d left, %v, want %d", key, d.Remaining, err, want)
		}
	}
}

// Deadlines that pass just when the answer comes harm nobody who asks next, in the
// same waiter.
func TestDeadlinesThatRace(t *testing.T) {
	s, err := Connect(t.Context(), redistest.Start(t).URL(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	limit := stint.MustLimit("1000000 per 1h")
	var done sync.WaitGroup
	for i := range 32 {
		done.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for n := range 500 {
				// A round trip takes some 100 µs.
				r := by(time.Duration(1+n%20)*20*time.Microsecond, limit, "a")
				if _, err := s.Take(ctx, r, nil); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				r.Deadline = time.Duration(n%2) * time.Hour
				if d, err := s.Take(ctx, r, nil); err != nil || !d.Allowed {
					t.Errorf("caller %d: %+v, %v", i, d, err)
				}
			}
		})
	}
	done.Wait()
	idle(t, s)
}

// In a Cluster the deadline is that of the whole request, of however many slots.
func TestDeadlineOfSlots(t *testing.T) {
	t.Parallel()
	var hosts []string
	nodes := redistest.StartCluster(t, 3)
	for _, n := range nodes {
		hosts = append(hosts, n.Addr)
	}
	s, err := Connect(t.Context(), "redis+cluster://"+strings.Join(hosts, ","), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	limit := stint.MustLimit("10 per 1h")
	var keys []string
	for i := range 8 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	ask := func() error {
		_, err := s.Take(context.Background(), by(250*time.Millisecond, limit, keys...), nil)
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		n.Freeze(t)
	}
	began := time.Now()
	if err := ask(); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fleet.ErrNotCharged) || time.Since(began) > time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

// One waker serves many callers, one after another: each returns in time, with an answer
// or at its deadline, whatever the timer was set to before.
func TestWaker(t *testing.T) {
	const ms, never = time.Millisecond, 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		w := new(waiter)
		w.waker.init()
		for i, c := range []struct{ deadline, answer, left, want time.Duration }{ // left: of the context
			{25 * ms, 10 * ms, 0, 10 * ms},
			{25 * ms, 10 * ms, 0, 10 * ms},
			{25 * ms, 10 * ms, 0, 10 * ms}, // it goes off meanwhile
			{25 * ms, never, 0, 25 * ms},
			{25 * ms, 1 * ms, 0, 1 * ms},
			{7 * ms, never, 0, 7 * ms}, // sooner than it is set to
			{25 * ms, never, 5 * ms, 5 * ms},
			{25 * ms, 30 * ms, time.Hour, 25 * ms},
			{0, 100 * ms, 0, 100 * ms}, // it goes off for nobody
			{time.Hour, 1 * ms, 0, 1 * ms},
			{25 * ms, never, 0, 25 * ms},
			{math.MaxInt64, 10 * ms, 0, 10 * ms},
		} {
			w.state.Store(sent)
			ctx := context.Background()
			if c.left > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.left)
				defer cancel()
			}
			answer := time.AfterFunc(c.answer, func() {
				w.state.Store(answered)
				w.waker.wake()
			})
			began := time.Now()
			err := w.wait(ctx, c.deadline)
			answer.Stop()
			if took := time.Since(began); took != c.want || errors.Is(err, context.DeadlineExceeded) == (c.answer == c.want) {
				t.Errorf("%d: %v after %s, want %s", i, err, took, c.want)
			}
			if c.deadline > longSet && w.waker.firesAt.Load() != 0 {
				t.Errorf("%d: it is still set", i)
			}
		}
	})
}

// That nothing was charged is told only where that is certain of all slots.
func TestSlotsError(t *testing.T) {
	unsent, unsure := notSent(errWaiting), errors.New("no answer")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx      context.Context
		errs     []error
		returned bool
		unsent   bool
	}{
		{t.Context(), []error{unsent, unsent}, true, true},
		{t.Context(), []error{nil, unsent}, true, true},
		{t.Context(), []error{nil, unsent}, false, false},
		{ended, []error{nil, unsent}, false, false},
		{t.Context(), []error{unsure, unsent}, true, false},
		{ended, []error{unsent, unsure, nil}, false, false},
	} {
		err := slotsError(c.ctx, c.errs, c.returned)
		if err == nil || errors.Is(err, fleet.ErrNotCharged) != c.unsent {
			t.Errorf("%v, returned %v: %v", c.errs, c.returned, err)
		}
	}
}
