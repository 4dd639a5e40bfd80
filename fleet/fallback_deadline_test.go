package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// deadlineKeeper is a Store that keeps deadlines. A Memory never waits.
type deadlineKeeper struct{ *stint.Memory }

func (deadlineKeeper) KeepsDeadline() bool { return true }

// sleeper is a Store that never answers. It keeps deadlines itself, or does not, and
// notes what it was asked first.
type sleeper struct {
	keeps   bool
	request stint.Request
	bounded bool // by the context
}

func (s *sleeper) KeepsDeadline() bool { return s.keeps }

func (s *sleeper) Take(ctx context.Context, r *stint.Request, _ []stint.Decision) (stint.Decision, error) {
	if s.request.Asks == nil { // what follows are probes
		s.request = *r
		s.request.Asks = slices.Clone(r.Asks)
		_, s.bounded = ctx.Deadline()
	}
	if s.keeps && r.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Deadline)
		defer cancel()
	}
	<-ctx.Done()
	return stint.Decision{}, fmt.Errorf("asleep: %w", ctx.Err())
}

// Whether the Store or a context keeps the deadline, the answer, the errors and what
// the breaker sees are the same; and the request stays the caller's.
func TestFallbackDeadline(t *testing.T) {
	limit := stint.MustLimit("10 per 1m")
	type outcome struct {
		took   time.Duration
		by     stint.Source
		failed bool // it is the store's
		err    error
	}
	for _, c := range []struct {
		name     string
		own      time.Duration // the Fallback's
		deadline time.Duration // the request's
		left     time.Duration // of the caller's context; 0: it never ends
		want     outcome
	}{
		{"the default", 0, 0, 0, outcome{25 * time.Millisecond, stint.ByLocal, true, nil}},
		{"the Fallback's", 40 * time.Millisecond, 0, 0, outcome{40 * time.Millisecond, stint.ByLocal, true, nil}},
		{"the request's", 40 * time.Millisecond, 7 * time.Millisecond, time.Second, outcome{7 * time.Millisecond, stint.ByLocal, true, nil}},
		{"the caller's", 0, 0, 20 * time.Millisecond, outcome{18 * time.Millisecond, stint.ByLocal, false, nil}},
		{"the caller has left", 0, 0, -1, outcome{0, stint.ByStore, false, context.DeadlineExceeded}},
	} {
		for _, keeps := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, keeps deadlines %t", c.name, keeps), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &sleeper{keeps: keeps}
					var told error
					f := &fleet.Fallback{Store: store, Deadline: c.own, Breaker: fleet.Breaker{Failures: 1},
						Called: func(_ time.Duration, err error) { told = err }}
					defer f.Close()
					ctx := t.Context()
					if c.left != 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, c.left)
						defer cancel()
					}
					r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 1}}, Deadline: c.deadline}
					began := time.Now()
					d, err := f.Take(ctx, &r, nil)
					took := time.Since(began)
					time.Sleep(fleet.DefaultDeadline * 2) // the store is probed
					synctest.Wait()
					got := outcome{took, d.By, f.State() == fleet.Open, nil}
					if errors.Is(err, c.want.err) {
						got.err = c.want.err
					}
					if got != c.want || err != nil && c.want.err == nil {
						t.Errorf("%+v, error %v, want %+v", got, err, c.want)
					}
					if c.want.err == nil && !errors.Is(told, context.DeadlineExceeded) {
						t.Errorf("told %v", told)
					}
					if c.left >= 0 && store.bounded != (!keeps || c.left > 0) || keeps && c.left >= 0 && store.request.Deadline != c.want.took {
						t.Errorf("asked for %s, and by a context that ends: %t", store.request.Deadline, store.bounded)
					}
					if r.Deadline != c.deadline {
						t.Errorf("the caller's request has a deadline of %s now", r.Deadline)
					}
				})
			})
		}
	}
}

// A layer keeps deadlines if its Store does.
func TestLayersKeepDeadlines(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		d := &fleet.Denials{Store: &sleeper{keeps: keeps}}
		if d.KeepsDeadline() != keeps {
			t.Errorf("Denials over a Store that keeps deadlines (%t) reports otherwise", keeps)
		}
	}
	if (&fleet.Denials{Store: new(stint.Memory)}).KeepsDeadline() {
		t.Error("Denials keep deadlines over a Store that does not")
	}
}

// Over a Store that keeps deadlines, a Fallback allocates nothing for an answer.
func TestFallbackAllocs(t *testing.T) {
	limit := stint.MustLimit("1000000000 per 1h")
	f := &fleet.Fallback{Store: deadlineKeeper{new(stint.Memory)}}
	defer f.Close()
	l := stint.NewLimiter(f)
	soon, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, ctx := range []context.Context{t.Context(), soon} {
		if n := testing.AllocsPerRun(1000, func() { _, _ = l.Allow(ctx, "k", limit) }); n >= 1 {
			t.Errorf("%v allocations", n)
		}
	}
}
