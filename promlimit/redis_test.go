package promlimit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/promlimit"
	"github.com/stintdev/stint/redislimit"
)

// However the parts are put together, a call of a Redis that is away is counted once, by each of two
// Collectors, and so is one that it answers.
func TestErrorsOfRedisCountOnce(t *testing.T) {
	redis := redistest.Start(t)
	patient := fleet.Options{Deadline: 1e10} // on a busy machine, too
	for name, build := range map[string]func(one, two *promlimit.Collector, bare, opened stint.Store) stint.Store{
		"around": func(one, two *promlimit.Collector, _, opened stint.Store) stint.Store {
			return one.Store(two.Store(opened))
		},
		"around, twice": func(one, two *promlimit.Collector, _, opened stint.Store) stint.Store {
			return one.Store(two.Store(one.Store(two.Store(opened))))
		},
		"around, apart": func(one, two *promlimit.Collector, _, opened stint.Store) stint.Store {
			one.Store(opened)
			two.Store(opened)
			return one.Store(opened)
		},
		"within": func(one, two *promlimit.Collector, bare, _ stint.Store) stint.Store {
			return fleet.New(one.Store(two.Store(bare)), patient)
		},
		"within, twice": func(one, two *promlimit.Collector, bare, _ stint.Store) stint.Store {
			return fleet.New(one.Store(two.Store(one.Store(bare))), patient)
		},
		"within and around": func(one, two *promlimit.Collector, bare, _ stint.Store) stint.Store {
			return two.Store(one.Store(fleet.New(two.Store(one.Store(bare)), patient)))
		},
		"one within, one around": func(one, two *promlimit.Collector, bare, _ stint.Store) stint.Store {
			return two.Store(fleet.New(one.Store(bare), patient))
		},
		"the fallback of a bare one": func(one, two *promlimit.Collector, bare, _ stint.Store) stint.Store {
			return one.Store(two.Store(bare)).(stint.Networked).WithFallback()
		},
		"bare": func(one, two *promlimit.Collector, bare, _ stint.Store) stint.Store {
			return one.Store(two.Store(bare))
		},
		"none": func(_, _ *promlimit.Collector, _, opened stint.Store) stint.Store { return opened },
	} {
		t.Run(name, func(t *testing.T) {
			bare, err := redislimit.Connect(t.Context(), redis.URL()+"?timeout=10s", redislimit.Options{Namespace: strings.NewReplacer(" ", "-", ",", "").Replace(name)})
			if err != nil {
				t.Fatal(err)
			}
			defer bare.Close()
			opened := fleet.New(bare, patient)
			defer opened.Close()
			one, two := promlimit.New(promlimit.Options{}), promlimit.New(promlimit.Options{})
			store := build(one, two, bare, opened)
			if f, ok := stint.As[*fleet.Store](store); ok {
				defer f.Close()
			}
			limiter := stint.Limiter{Store: store, Observe: one.Observe}
			counts := func() (all []string) {
				for _, c := range []*promlimit.Collector{one, two} {
					calls, failed := 0.0, 0.0
					for series, n := range scraped(t, c) {
						switch {
						case series == "store_seconds{}":
							calls = n
						case strings.HasPrefix(series, "store_errors_total{"):
							failed += n
						}
					}
					all = append(all, fmt.Sprint(calls, failed))
				}
				return all
			}
			ask := func(key string) {
				_, _ = limiter.Take(t.Context(), &stint.Request{Deadline: 1e10, Asks: []stint.Ask{{Key: key, Limit: stint.MustLimit("calls: 100 per 1h")}}}, nil)
			}
			check := func(when, want string) {
				t.Helper()
				if name == "none" {
					want = "0 0"
				}
				if got := counts(); got[0] != want || got[1] != want {
					t.Errorf("%s: %q, want %q of each: calls and errors", when, got, want)
				}
			}
			ask("ann")
			check("Redis answers", "1 0")
			redis.Kill()
			defer redis.Begin(t)
			ask("ann") // fewer failures than open the breaker, which probes
			ask("bob")
			check("Redis is dead", "3 2")
		})
	}
}
