package stint_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

// While a key is paused, each way to ask is refused for what is left, and takes nothing; other keys pass.
func TestPause(t *testing.T) {
	limit, flight := stint.MustLimit("a: 2 per 1h"), stint.MustLimit("b: 1 in_flight")
	asks := func(keys ...string) *stint.Request {
		r := new(stint.Request)
		for _, key := range keys {
			r.Asks = append(r.Asks, stint.Ask{Key: key, Limit: limit})
		}
		return r
	}
	ways := map[string]func(context.Context, *stint.Limiter, string) (stint.Decision, error){
		"Allow": func(ctx context.Context, l *stint.Limiter, key string) (stint.Decision, error) {
			return l.Allow(ctx, key, limit)
		},
		"AllowN": func(ctx context.Context, l *stint.Limiter, key string) (stint.Decision, error) {
			return l.AllowN(ctx, key, limit, 2)
		},
		"Peek": func(ctx context.Context, l *stint.Limiter, key string) (stint.Decision, error) {
			return l.Peek(ctx, key, limit)
		},
		"Take": func(ctx context.Context, l *stint.Limiter, key string) (stint.Decision, error) {
			return l.Take(ctx, asks("other", key), nil)
		},
		"Take, each": func(ctx context.Context, l *stint.Limiter, key string) (stint.Decision, error) {
			out := make([]stint.Decision, 2)
			d, err := l.Take(ctx, asks(key, "other"), out)
			if !d.Allowed && (out[0] != d || out[1] != d) {
				t.Errorf("each is %+v", out)
			}
			return d, err
		},
		"a PauseAsk": func(ctx context.Context, l *stint.Limiter, key string) (stint.Decision, error) {
			return l.Take(ctx, &stint.Request{Asks: []stint.Ask{stint.PauseAsk(key)}}, nil)
		},
		"Reserve": func(ctx context.Context, l *stint.Limiter, key string) (stint.Decision, error) {
			r, d, err := l.Reserve(ctx, asks(key))
			if d.Allowed != (r != nil) {
				t.Error("a reservation of what was refused")
			}
			return d, errors.Join(err, r.Cancel(ctx))
		},
		"Acquire": func(ctx context.Context, l *stint.Limiter, key string) (stint.Decision, error) {
			release, d, err := l.Acquire(ctx, key, flight)
			release()
			return d, err
		},
		"TakeBatch": func(ctx context.Context, l *stint.Limiter, key string) (stint.Decision, error) {
			rs := []stint.Request{*asks("third"), *asks(""), *asks(key), *asks("fourth")}
			answers := make([]stint.Answer, 4)
			l.TakeBatch(ctx, rs, answers)
			if !answers[0].Allowed || answers[0].Key != "third" || !errors.Is(answers[1].Err, stint.ErrRequest) || !answers[3].Allowed || answers[3].Key != "fourth" {
				t.Errorf("beside a pause: %+v", answers)
			}
			return answers[2].Decision, answers[2].Err
		},
	}
	limiters := map[string]func() (paused, asked *stint.Limiter){
		"zero":   func() (_, _ *stint.Limiter) { l := new(stint.Limiter); return l, l },
		"Memory": func() (_, _ *stint.Limiter) { l := stint.NewLimiter(new(stint.Memory)); return l, l },
		"Instance": func() (_, _ *stint.Limiter) {
			l := &stint.Limiter{Instance: stint.MustLimit("1000 per 1h")}
			return l, l
		},
		"fallback": func() (_, _ *stint.Limiter) {
			l := stint.NewLimiter(&overNetwork{new(stint.Memory)})
			return l, stint.Internal(friend.Of{}).WithFallback(l)
		},
	}
	for with, make := range limiters {
		for way, ask := range ways {
			synctest.Test(t, func(t *testing.T) {
				paused, asked := make()
				if err := paused.Pause(t.Context(), "k", 10*time.Second); err != nil {
					t.Fatal(err)
				}
				time.Sleep(4 * time.Second)
				want := stint.Decision{Outcome: stint.Limited, Remembered: true, Key: "k", RetryAfter: 6 * time.Second}
				if d, err := ask(t.Context(), asked, "k"); err != nil || d != want {
					t.Errorf("%s, %s: %+v, %v", with, way, d, err)
				}
				if d, err := ask(t.Context(), asked, "free"); err != nil || !d.Allowed {
					t.Errorf("%s, %s: another key: %+v, %v", with, way, d, err)
				}
				time.Sleep(6 * time.Second)
				if d, err := asked.AllowN(t.Context(), "k", limit, 2); err != nil || !d.Allowed {
					t.Errorf("%s, %s: it has taken something: %+v, %v", with, way, d, err)
				}
			})
		}
	}
}

// overNetwork is a Networked with a fallback over the same counts.
type overNetwork struct{ *stint.Memory }

func (n *overNetwork) WithFallback() stint.Store { return n.Memory }

// Observe sees the refusals of a pause, of one request and of a batch.
func TestPauseIsObserved(t *testing.T) {
	limit := stint.MustLimit("5 per 1h")
	var seen []stint.Outcome
	l := &stint.Limiter{Observe: func(_ context.Context, _ *stint.Request, a *stint.Answer) { seen = append(seen, a.Outcome) }}
	if err := l.Pause(t.Context(), "k", time.Hour); err != nil {
		t.Fatal(err)
	}
	r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}}}
	_, _ = l.Allow(t.Context(), "k", limit)
	_, _ = l.Take(t.Context(), &r, nil)
	l.TakeBatch(t.Context(), []stint.Request{r, r}, make([]stint.Answer, 2))
	r.At = time.Now() // a simulation's
	_, _ = l.Take(t.Context(), &r, nil)
	if len(seen) != 5 || seen[0] != stint.Limited || seen[1] != stint.Limited || seen[2] != stint.Limited || seen[3] != stint.Limited || seen[4] != stint.Allowed {
		t.Error(seen)
	}
}

// Callers that wait go on when the pause ends, learn at once that their deadline is too soon, and heed a
// pause that is made longer meanwhile.
func TestPauseIsWaitedFor(t *testing.T) {
	limit, flight := stint.MustLimit("a: 5 per 1h"), stint.MustLimit("b: 1 in_flight")
	for way, wait := range map[string]func(context.Context, *stint.Limiter) error{
		"Wait":  func(ctx context.Context, l *stint.Limiter) error { return l.Wait(ctx, "k", limit) },
		"WaitN": func(ctx context.Context, l *stint.Limiter) error { return l.WaitN(ctx, "k", limit, 3) },
		"TakeWait": func(ctx context.Context, l *stint.Limiter) error {
			return l.TakeWait(ctx, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}, stint.PauseAsk("k")}})
		},
		"ReserveWait": func(ctx context.Context, l *stint.Limiter) error {
			r, err := l.ReserveWait(ctx, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: flight}}})
			return errors.Join(err, r.Cancel(ctx))
		},
		"AcquireWait": func(ctx context.Context, l *stint.Limiter) error {
			release, err := l.AcquireWait(ctx, "k", flight)
			release()
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, start := stint.NewLimiter(new(stint.Memory)), time.Now()
			pause := func(d time.Duration) {
				if err := l.Pause(t.Context(), "k", d); err != nil {
					t.Error(err)
				}
			}
			pause(10 * time.Second)
			time.AfterFunc(3*time.Second, func() { pause(time.Second) }) // shorter: it changes nothing
			time.AfterFunc(5*time.Second, func() { pause(15 * time.Second) })
			soon, cancel := context.WithTimeout(t.Context(), 9*time.Second)
			defer cancel()
			err := wait(soon, l)
			var refused *stint.RefusedError
			if !errors.As(err, &refused) || !errors.Is(err, context.DeadlineExceeded) || refused.RetryAfter != 10*time.Second || time.Since(start) != 0 {
				t.Errorf("%s: a deadline: %v after %s", way, err, time.Since(start))
			}
			if err := wait(t.Context(), l); err != nil || time.Since(start) != 20*time.Second {
				t.Errorf("%s: %v after %s", way, err, time.Since(start))
			}
		})
	}
}

// Of other Limiters over the Store, requests with a PauseAsk see the longest pause, until it is lifted.
func TestPauseOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, limit := new(stint.Memory), stint.MustLimit("100 per 1h")
		l, other := stint.NewLimiter(store), stint.NewLimiter(store)
		left := func() time.Duration {
			d, err := other.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}, stint.PauseAsk("k")}}, make([]stint.Decision, 2))
			want := stint.Decision{Outcome: stint.Limited, Key: "k", RetryAfter: d.RetryAfter}
			if err != nil || !d.Allowed && d != want {
				t.Errorf("%+v, %v", d, err)
			}
			answers := make([]stint.Answer, 1)
			other.TakeBatch(t.Context(), []stint.Request{{Asks: []stint.Ask{stint.PauseAsk("k")}}}, answers)
			if answers[0].RetryAfter != d.RetryAfter || !d.Allowed && answers[0].Decision != want {
				t.Errorf("a batch: %+v", answers)
			}
			return d.RetryAfter
		}
		for _, step := range []struct {
			at    time.Duration // after the step before
			pause time.Duration
			left  time.Duration
		}{
			{0, 0, 0},
			{0, 10 * time.Second, 10 * time.Second},
			{time.Second, time.Second, 9 * time.Second},
			{time.Second, 60 * time.Second, 60 * time.Second},
			{time.Second, -1, 0},
			{time.Second, time.Nanosecond, time.Millisecond},
			{time.Second, 1 << 62, 100 * 365 * 24 * time.Hour},
		} {
			time.Sleep(step.at)
			if err := l.Pause(t.Context(), "k", step.pause); err != nil {
				t.Error(err)
			}
			if got := left(); got != step.left {
				t.Errorf("after a pause of %s: %s are left, want %s", step.pause, got, step.left)
			}
			if d, err := other.Allow(t.Context(), "k", limit); err != nil || !d.Allowed {
				t.Errorf("without a PauseAsk: %+v, %v", d, err)
			}
		}
	})
}

// plain is a Store without optional interfaces.
type plain struct{ store stint.Store }

func (p plain) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	return p.store.Take(ctx, r, out)
}

// unwilling is a Store that counts no violation at present.
type unwilling struct{ plain }

var errUnwilling = errors.New("away")

func (unwilling) Violate(context.Context, *stint.Request) (stint.Decision, error) {
	return stint.Decision{}, errUnwilling
}

// alone is a Store that answers without others, as a fleet.Fallback does while the shared one is away.
type alone struct{ *stint.Memory }

func (a alone) Violate(ctx context.Context, r *stint.Request) (stint.Decision, error) {
	d, err := a.Memory.Violate(ctx, r)
	d.By = stint.ByLocal
	return d, err
}

// A pause that others do not learn of is an error.
func TestPauseOfOneInstance(t *testing.T) {
	l := stint.NewLimiter(alone{new(stint.Memory)})
	for _, d := range []time.Duration{time.Minute, time.Hour} { // one that another ban stands for, too
		if err := l.Pause(t.Context(), "k", d); err == nil || !strings.Contains(err.Error(), "only this instance knows it") {
			t.Errorf("%v", err)
		}
	}
	if d, err := l.Allow(t.Context(), "k", stint.MustLimit("100 per 1h")); err != nil || d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

// A Limiter knows its pauses whatever its Store does. Malformed keys, and too many, are errors.
func TestPauseErrors(t *testing.T) {
	limit := stint.MustLimit("100 per 1h")
	for _, c := range []struct {
		store stint.Store
		is    error
	}{{nil, nil}, {plain{new(stint.Memory)}, nil}, {unwilling{plain{new(stint.Memory)}}, errUnwilling}} {
		l := stint.NewLimiter(c.store)
		if err := l.Pause(t.Context(), "k", time.Hour); !errors.Is(err, c.is) {
			t.Errorf("%T: %v", c.store, err)
		}
		if d, err := l.Allow(t.Context(), "k", limit); err != nil || d.Allowed {
			t.Errorf("%T: %+v, %v", c.store, d, err)
		}
	}
	l := new(stint.Limiter)
	if err := l.Pause(t.Context(), "", time.Hour); !errors.Is(err, stint.ErrRequest) {
		t.Error(err)
	}
	for i := range 10_000 {
		if err := l.Pause(t.Context(), strconv.Itoa(i), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Pause(t.Context(), "one more", time.Hour); !errors.Is(err, stint.ErrFull) {
		t.Error(err)
	}
	if err := l.Pause(t.Context(), "7", 0); err != nil {
		t.Error(err)
	}
	if err := l.Pause(t.Context(), "one more", time.Hour); err != nil {
		t.Error(err)
	}
}
