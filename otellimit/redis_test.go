package otellimit_test

import (
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/otellimit"
	"github.com/stintdev/stint/redislimit"
)

// However the parts are put together, a call of a Redis that is away is measured once, and so is one
// that it answers. A span is made at each layer.
func TestErrorsOfRedisCountOnce(t *testing.T) {
	redis := redistest.Start(t)
	patient := fleet.Options{Deadline: 10 * time.Second} // on a busy machine, too
	type wrap = func(stint.Store) stint.Store
	for name, build := range map[string]func(of wrap, bare, opened stint.Store) stint.Store{
		"around":        func(of wrap, _, opened stint.Store) stint.Store { return of(opened) },
		"around, twice": func(of wrap, _, opened stint.Store) stint.Store { return of(of(opened)) },
		"around, apart": func(of wrap, _, opened stint.Store) stint.Store {
			of(opened)
			return of(opened)
		},
		"within":            func(of wrap, bare, _ stint.Store) stint.Store { return fleet.New(of(bare), patient) },
		"within, twice":     func(of wrap, bare, _ stint.Store) stint.Store { return fleet.New(of(of(bare)), patient) },
		"within and around": func(of wrap, bare, _ stint.Store) stint.Store { return of(fleet.New(of(bare), patient)) },
		"the fallback of a bare one": func(of wrap, bare, _ stint.Store) stint.Store {
			return of(bare).(stint.Networked).WithFallback()
		},
		"bare": func(of wrap, bare, _ stint.Store) stint.Store { return of(bare) },
		"none": func(_ wrap, _, opened stint.Store) stint.Store { return opened },
	} {
		t.Run(name, func(t *testing.T) {
			bare, err := redislimit.Connect(t.Context(), redis.URL()+"?timeout=10s", redislimit.Options{Namespace: strings.NewReplacer(" ", "-", ",", "").Replace(name)})
			if err != nil {
				t.Fatal(err)
			}
			defer bare.Close()
			opened := fleet.New(bare, patient)
			defer opened.Close()
			r := record(sdk.AlwaysSample())
			store := build(func(s stint.Store) stint.Store { return otellimit.Store(s, r.options) }, bare, opened)
			if f, ok := stint.As[*fleet.Store](store); ok {
				defer f.Close()
			}
			limiter := stint.NewLimiter(store)
			check := func(when string, calls, failed int64) {
				t.Helper()
				if name == "none" {
					calls, failed = 0, 0
				}
				var gotCalls, gotFailed int64
				for series, n := range r.counts(t, "stint.store.duration") {
					gotCalls += n
					if strings.Contains(series, "error.type") {
						gotFailed += n
					}
				}
				if gotCalls != calls || gotFailed != failed {
					t.Errorf("%s: %d calls and %d errors, want %d and %d", when, gotCalls, gotFailed, calls, failed)
				}
			}
			ask := func(key string) { // and waits longer than a fallback by itself
				_, _ = limiter.Take(t.Context(), &stint.Request{Deadline: 10 * time.Second, Asks: []stint.Ask{{Key: key, Limit: stint.MustLimit("calls: 100 per 1h")}}}, nil)
			}
			ask("ann")
			check("Redis answers", 1, 0)
			redis.Kill()
			defer redis.Begin(t)
			ask("ann") // fewer failures than open the breaker, which probes
			ask("bob")
			check("Redis is dead", 3, 2)
		})
	}
}
