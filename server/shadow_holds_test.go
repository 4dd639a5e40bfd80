package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

const shadowHolds = `rules:
  - {name: s, key: '"all"', limits: [10 in_flight], mode: shadow}
  - {name: e, match: operation == "few", key: '"all"', limits: [1 per 24h]}
  - {name: h, match: operation == "held", key: '"all"', limits: [1000 in_flight]}
`

// heldNow is how many holds of the key "all" count under the limits of a rule.
func heldNow(t *testing.T, store stint.Store, s *server.Server, rule string) int {
	t.Helper()
	for _, r := range s.Rules().Rules {
		if r.Name != rule {
			continue
		}
		holder, _ := stint.As[stint.Holder](store)
		held, err := holder.Held(t.Context(), "all", r.Limits)
		if err != nil {
			t.Fatal(err)
		}
		return len(held)
	}
	t.Fatal("no rule", rule)
	return 0
}

// bothStores calls test with memory and with Redis.
func bothStores(t *testing.T, test func(t *testing.T, store stint.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, new(stint.Memory)) })
	t.Run("redis", func(t *testing.T) { test(t, openRedis(t, redistest.Start(t).URL(), "holds")) })
}

// Rules in shadow mode keep no hold of a request that others refuse, or that is settled as soon as it was
// answered. So they can be enforced at once.
func TestShadowsKeepNoHolds(t *testing.T) {
	bothStores(t, func(t *testing.T, store stint.Store) {
		s := newServer(t, shadowHolds, over(store))
		settle := func(hold, want string) {
			if a := readAnswer[answered](t, callCheck(s, "/v1/settle", `{"hold":"`+hold+`","cost":1}`)); a.Outcome != want {
				t.Errorf("a hold that is settled at once is %s", a.Outcome)
			}
		}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				for range 20 {
					for _, operation := range []string{"few", "held", "any"} { // nothing but the shadow has any
						a := readAnswer[answered](t, callCheck(s, "/v1/check", `{"hold":"24h","operation":"`+operation+`"}`))
						if a.Hold != "" {
							settle(a.Hold, "settled")
						} else if operation == "held" {
							t.Errorf("no hold: %v", a)
						}
					}
				}
			})
		}
		all.Wait()
		var left string
		if !await.So(func() bool {
			left = fmt.Sprint(heldNow(t, store, s, "s"), " by the shadow, ", heldNow(t, store, s, "h"), " enforced, ", s.Holds()["shadows"], " calls")
			return left == "0 by the shadow, 0 enforced, 0 calls"
		}) {
			t.Fatal("held at the end: " + left)
		}
		set, err := rules.Parse("rules.yaml", []byte(strings.Replace(shadowHolds, ", mode: shadow", "", 1)))
		if err != nil {
			t.Fatal(err)
		}
		s.SetRules(set)
		if w := callCheck(s, "/v1/check", `{"hold":"1s"}`); w.Code != 200 {
			t.Errorf("enforced: %d %s", w.Code, w.Body)
		}
	})
}

// failingEnds is a Store that fails the first calls about holds.
type failingEnds struct {
	*stint.Memory
	mu    sync.Mutex
	fails int
}

func (f *failingEnds) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails--; f.fails < 0 {
		f.Memory.Holds(ctx, at, calls)
		return
	}
	for i := range calls {
		calls[i].Err = context.DeadlineExceeded
	}
}

// What ends a hold of a rule in shadow mode is sent again if it fails, and the log says if it goes on to.
func TestShadowsEndAgain(t *testing.T) {
	for fails, left := range map[int]int{2: 1, 99: 2} { // of one that is allowed and one that is refused
		store := &failingEnds{Memory: new(stint.Memory), fails: fails}
		var log logged
		s := newServer(t, shadowHolds, over(store), unhurried, logTo(&log))
		for range 2 {
			callCheck(s, "/v1/check", `{"operation":"few","hold":"24h"}`)
		}
		if !await.So(func() bool { return s.Holds()["shadows"] == 0 }) || heldNow(t, store, s, "s") != left {
			t.Errorf("after %d failures: %d held, want %d", fails, heldNow(t, store, s, "s"), left)
		}
		if said := strings.Contains(log.taken(), "what a rule in shadow mode holds could not be given back"); said != (left == 2) {
			t.Errorf("after %d failures: logged is %t", fails, said)
		}
	}
}
