package limittest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// checkEndedContext calls a Limiter with ended contexts: nothing is charged and no violation counted.
func checkEndedContext(t testing.TB, e *env) {
	store := e.open()
	limiter := stint.NewLimiter(store)
	_, holder := stint.As[stint.Holder](store)
	_, violator := stint.As[stint.Violator](store)
	for _, limit := range append(oneOfEach(5, 1000*time.Hour, "}ended"), stint.MustLimit("}ended held: 5 per 1000h fixed_window hold")) {
		asks := []stint.Ask{{Key: "k", Limit: limit, Cost: 2, Penalty: strict}}
		ways := []struct {
			name  string
			ask   func(ctx context.Context) error
			lacks bool // the store cannot do it
		}{
			{"Allow", func(ctx context.Context) error { _, err := limiter.Allow(ctx, "k", limit); return err }, false},
			{"AllowN", func(ctx context.Context) error { _, err := limiter.AllowN(ctx, "k", limit, 6); return err }, false},
			{"Peek", func(ctx context.Context) error { _, err := limiter.Peek(ctx, "k", limit); return err }, false},
			{"Wait", func(ctx context.Context) error { return limiter.Wait(ctx, "k", limit) }, false},
			{"Take", func(ctx context.Context) error {
				_, err := limiter.Take(ctx, &stint.Request{Asks: asks}, nil)
				return err
			}, false},
			{"Take, each", func(ctx context.Context) error {
				_, err := limiter.Take(ctx, &stint.Request{Asks: asks}, make([]stint.Decision, 1))
				return err
			}, false},
			{"TakeBatch", func(ctx context.Context) error {
				answers := make([]stint.Answer, 2)
				limiter.TakeBatch(ctx, []stint.Request{{Asks: asks}, {Asks: asks}}, answers)
				return errors.Join(answers[0].Err, answers[1].Err)
			}, false},
			{"Reserve", func(ctx context.Context) error {
				_, _, err := limiter.Reserve(ctx, &stint.Request{Asks: asks})
				return err
			}, !holder},
			{"Charge", func(ctx context.Context) error { _, err := limiter.Charge(ctx, "k", limit, 2); return err }, !holder},
			{"Violate", func(ctx context.Context) error { _, err := limiter.Violate(ctx, "k", strict); return err }, !violator},
		}
		for _, w := range ways {
			if w.lacks {
				continue
			}
			ended, end := context.WithCancel(t.Context())
			end()
			err := w.ask(ended)
			if !errors.Is(err, context.Canceled) || w.name != "Wait" && !errors.Is(err, fleet.ErrNotCharged) {
				t.Fatalf("%s under %s with a context that has ended: the error is %v", w.name, limit, err)
			}
			d, err := limiter.Peek(t.Context(), "k", limit)
			if err != nil || d.Remaining != 5 || d.Held != 0 || d.ResetAfter != 0 {
				t.Fatalf("%s under %s with a context that has ended: then %s, %v; nothing may be charged", w.name, limit, show(&d), err)
			}
		}
	}
	if !violator {
		return
	}
	if r, err := limiter.Record(t.Context(), "k", strict); err == nil && (r.Violations != 0 || r.Bans != 0) {
		t.Fatalf("violations were counted with a context that has ended: %+v", r)
	}
}
