package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	layers "github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server/rules"
)

// What a request did cost is charged once under the limit by which it was held, whatever becomes of
// the rule meanwhile, and whether the store is away when it begins, when it ends, or both.
func TestRulesChangeWhileOwed(t *testing.T) {
	const file = `rules: [{name: ask, key: '"all"', cost: "5", cost_after: 'int(response.headers["x-cost"])', limits: [%s per 24h %s], on_store_error: local, mode: %s}]`
	before := fmt.Sprintf(file, "100", "fixed_window hold", "enforce")
	for name, after := range map[string]string{
		"same":      before,
		"larger":    fmt.Sprintf(file, "900", "fixed_window hold", "enforce"),
		"smaller":   fmt.Sprintf(file, "7", "fixed_window hold", "enforce"),
		"not held":  `rules: [{name: ask, key: '"all"', limits: [100 per 24h fixed_window]}]`,
		"other":     fmt.Sprintf(file, "100", "sliding_log hold", "enforce"),
		"off":       fmt.Sprintf(file, "100", "fixed_window hold", "off"),
		"shadow":    fmt.Sprintf(file, "100", "fixed_window hold", "shadow"),
		"deleted":   `{}`,
		"all off":   `enabled: false`,
		"in flight": `rules: [{name: ask, key: '"all"', limits: [2 in_flight]}]`,
	} {
		for away := range 4 {
			synctest.Test(t, func(t *testing.T) {
				var broken atomic.Bool
				shared := new(stint.Memory)
				store := layers.New(&limittest.Faulty{Store: shared, Fault: func(int) (f limittest.Fault) {
					if broken.Load() {
						f.Err = limittest.ErrFault
					}
					return f
				}}, layers.Options{})
				defer store.Close()
				s := newServer(t, before, over(store))
				begun, end := make(chan bool), make(chan bool)
				h := s.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					begun <- true
					<-end
					w.Header().Set("X-Cost", "12")
				}))
				get := func() int {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest("GET", "http://example.com/", nil))
					return w.Code
				}
				status := make(chan int)
				broken.Store(away&1 != 0)
				go func() { status <- get() }()
				<-begun
				broken.Store(away&2 != 0)
				if away == 1 {
					time.Sleep(5 * time.Second) // until the store is asked again
				}
				set, err := rules.Parse("rules.yaml", []byte(after))
				if err != nil {
					t.Fatal(err)
				}
				s.SetRules(set)
				end <- true
				if got := <-status; got != 200 {
					t.Errorf("%s, %d: status %d", name, away, got)
				}
				time.Sleep(3 * time.Second)
				broken.Store(false)
				limiter := stint.NewLimiter(store)
				for range 5 { // a call that is answered starts what is owed
					time.Sleep(3 * time.Second)
					if _, err := limiter.Allow(t.Context(), "other", stint.MustLimit("other: 9 per 1s")); err != nil {
						t.Fatal(err)
					}
				}
				d, err := stint.NewLimiter(shared).Peek(t.Context(), "all", stint.MustLimit("ask: 100 per 24h fixed_window hold"))
				if err != nil || d.Remaining != 88 || d.Held != 0 {
					t.Errorf("rules %s, store away %d: %d left, %d held, %v", name, away, d.Remaining, d.Held, err)
				}
			})
		}
	}
}
