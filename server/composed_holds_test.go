package server_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	layers "github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
)

// holder is a client of the check API that holds and settles.
type holder struct {
	testing.TB
	s *server.Server
}

// hold asks for cost units as user, and returns the answer.
func (h holder) hold(user string, cost int64, more string) answered {
	h.Helper()
	return readAnswer[answered](h.TB, callCheck(h.s, "/v1/check", fmt.Sprintf(`{"operation":"ask","hold":"60s","cost":%d,"attrs":{"user":%q%s}}`, cost, user, more)))
}

func (h holder) settle(hold string, cost int64) answered {
	h.Helper()
	return readAnswer[answered](h.TB, callCheck(h.s, "/v1/settle", fmt.Sprintf(`{"hold":%q,"cost":%d}`, hold, cost)))
}

// An override that comes and goes while requests hold never lets more be used and held than the
// larger of the two limits allows, and what is held under one counts under the other.
func TestOverridesWhileHeld(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 15))
			s := newServer(t, `rules: [{name: ask, key: attrs.user, limits: [1000 per 1h fixed_window hold, 4 in_flight]}]`, over(new(stint.Memory)))
			o, h := operator{t, s.Admin()}, holder{t, s}
			type running struct {
				hold string
				cost int64
			}
			var held []running
			var used, most, places int64 = 0, 1000, 4
			override := ""
			time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
			for range 60 {
				switch n := random.IntN(10); {
				case n == 0 && override == "":
					most, places = random.Int64N(3000)+1, random.Int64N(8)+1
					override = o.id(o.want(201, "POST", "/v1/overrides", fmt.Sprintf(`{"rule":"ask","key":"ann","limits":["%d per 1h fixed_window","%d in_flight"]}`, most, places)))
				case n == 1 && override != "":
					o.want(200, "DELETE", "/v1/overrides/"+override, "")
					override, most, places = "", 1000, 4
				case n < 6:
					cost := random.Int64N(600) + 1
					sum := used
					for _, r := range held {
						sum += r.cost
					}
					want := sum+cost <= most && int64(len(held)) < places
					a := h.hold("ann", cost, "")
					if (a.Outcome == "allowed") != want {
						t.Fatalf("seed %d: %d used and held of %d, %d of %d places: %d more: %s", seed, sum, most, len(held), places, cost, a)
					}
					if want {
						held = append(held, running{a.Hold, cost})
					}
				case len(held) > 0:
					i := random.IntN(len(held))
					cost := random.Int64N(held[i].cost + 1)
					if a := h.settle(held[i].hold, cost); a.Outcome != "settled" || a.Decisions[0].Charged != cost {
						t.Fatalf("seed %d: settle %d: %s", seed, cost, a)
					}
					used += cost
					held = append(held[:i], held[i+1:]...)
				}
			}
		})
	}
}

// A free and a paid tier over one key count apart, what is held included, until an override makes
// the one a customer of the other: a hold is settled where it was made.
func TestTiersHoldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
tiers: {paid: attrs.plan == "paid"}
rules:
  - name: ask
    key: attrs.user
    limits: [100 per 1h fixed_window hold, 1 in_flight]
    tiers: {paid: {limits: [1000 per 1h fixed_window hold, 3 in_flight]}}
  - {name: also, key: attrs.user, limits: [700 per 1h fixed_window hold, 2 in_flight]}
`, over(new(stint.Memory)))
		h := holder{t, s}
		const paid = `,"plan":"paid"`
		free := h.hold("ann", 90, "")
		big := h.hold("ann", 500, paid)
		expect(t, big.String(), "allowed: ask 500 left, 500 held; ask 2 left, 1 held; also 110 left, 590 held; also 0 left, 2 held")
		// Refused by the second rule alone: nothing is held under the first.
		refused := h.hold("ann", 50, paid)
		expect(t, fmt.Sprint(refused.Busy, " ", refused), "true limited: ask 500 left, 500 held; ask 2 left, 1 held; also 110 left, 590 held; also 0 left, 2 held")
		expect(t, h.settle(free.Hold, 95).String(), "settled: ask 5 left, 0 held, 95 charged; ask 1 left, 0 held; also 105 left, 500 held, 95 charged; also 1 left, 1 held")
		expect(t, h.settle(big.Hold, 400).String(), "settled: ask 600 left, 0 held, 400 charged; ask 3 left, 0 held; also 205 left, 0 held, 400 charged; also 2 left, 0 held")
	})
}

// A rule in shadow mode holds beside an enforced one, and its mode may change while requests run.
func TestModesWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
rules:
  - {name: shown, key: attrs.user, limits: [1 in_flight], mode: shadow}
  - {name: real, key: attrs.user, limits: [3 in_flight, 100 per 1h fixed_window hold]}
`, over(new(stint.Memory)))
		o, h := operator{t, s.Admin()}, holder{t, s}
		first, second := h.hold("ann", 10, ""), h.hold("ann", 10, "")
		expect(t, first.Outcome+" "+second.Outcome, "allowed allowed") // the shadow refuses nothing
		o.want(200, "PATCH", "/v1/switches", `{"rules":{"shown":"enforce"}}`)
		if a := h.hold("ann", 10, ""); a.Outcome != "limited" || !a.Busy {
			t.Errorf("enforced: %v %s", a.Busy, a)
		}
		// What ran before the switch gives back what it held, under both.
		expect(t, h.settle(first.Hold, 10).Outcome, "settled")
		expect(t, h.settle(second.Hold, 10).Outcome, "settled")
		third := h.hold("ann", 10, "")
		expect(t, third.String(), "allowed: shown 0 left, 1 held; real 2 left, 1 held; real 70 left, 10 held, 20 used")
		o.want(200, "PATCH", "/v1/switches", `{"rules":{"shown":"off","real":"shadow"}}`)
		expect(t, h.settle(third.Hold, 30).Outcome, "settled")
		o.want(200, "PATCH", "/v1/switches", `{"rules":{"shown":null,"real":null}}`)
		o.want(200, "POST", "/v1/keys/show", `{"rule":"shown","key":"ann"}`, `"capacity":1,"used":0,"remaining":1`)
		o.want(200, "POST", "/v1/keys/show", `{"rule":"real","key":"ann"}`, `"capacity":3,"used":0,"remaining":3`, `"capacity":100,"used":50,"remaining":50`)
	})
}

// A ban stops new requests, and what runs is settled as ever. Requests that are refused because of
// what is held are no violations; those that the budget itself refuses are.
func TestBansWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
rules:
  - name: ask
    key: attrs.user
    limits: [2 in_flight, 100 per 1h fixed_window hold]
    penalty: {warn_after: 1, ban_after: 2, ban_for: 10m}
`, over(new(stint.Memory)))
		o, h := operator{t, s.Admin()}, holder{t, s}
		first, second := h.hold("ann", 50, ""), h.hold("ann", 50, "")
		for range 20 {
			if a := h.hold("ann", 1, ""); a.Outcome != "limited" || !a.Busy {
				t.Fatalf("busy: %v %s", a.Busy, a)
			}
		}
		o.want(201, "POST", "/v1/bans", `{"rule":"ask","key":"ann","for":"30s"}`)
		expect(t, h.hold("ann", 1, "").Outcome, "banned")
		expect(t, h.settle(first.Hold, 60).String(), "settled: ask 1 left, 1 held; ask 0 left, 50 held, 60 charged")
		time.Sleep(31 * time.Second)
		expect(t, h.settle(second.Hold, 40).String(), "settled: ask 2 left, 0 held; ask 0 left, 0 held, 40 charged")
		var all []string
		for range 3 {
			a := h.hold("ann", 1, "")
			all = append(all, fmt.Sprint(a.Outcome, " ", a.Busy))
		}
		expect(t, strings.Join(all, ", "), "warned false, banned false, banned false")
	})
}

// What one instance holds is listed by a second, settled by it, and released by a third; a
// released hold is lost for its client at every instance.
func TestHoldsOfThreeInstances(t *testing.T) {
	redis := redistest.Start(t)
	join := func() holder {
		store, err := redislimit.Open(t.Context(), redis.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return holder{t, newServer(t, `rules: [{name: ask, key: attrs.user, cost: cost, limits: [60 per 1m, 100 per month in Europe/Berlin hold, 2 in_flight]}]`, over(store), func(c *server.Config) { c.Settings.DecisionTimeout = 20 * time.Second })}
	}
	a, b, c := join(), join(), join()
	o := operator{t, c.s.Admin()}
	first, second := a.hold("ann", 40, ""), b.hold("ann", 40, "")
	expect(t, first.Outcome+" "+second.Outcome, "allowed allowed")
	if got := c.hold("ann", 1, ""); got.Outcome != "limited" || !got.Busy {
		t.Errorf("a third request: %v %s", got.Busy, got)
	}
	expect(t, b.settle(first.Hold, 70).String(), "settled: ask 0 left, 40 held, 70 charged; ask 1 left, 1 held")
	expect(t, a.settle(first.Hold, 70).Outcome, "unknown")
	o.want(200, "POST", "/v1/keys/release", `{"rule":"ask","key":"ann","all":true}`, `"released":1,`, `"used":70,"remaining":30`)
	for _, h := range []holder{a, b, c} {
		expect(t, readAnswer[answered](t, callCheck(h.s, "/v1/renew", `{"again":true,"hold":"`+second.Hold+`"}`)).Outcome, "unknown")
		expect(t, h.settle(second.Hold, 40).String(), "unknown: ask 30 left, 0 held; ask 2 left, 0 held")
	}
	if got := c.hold("ann", 30, ""); got.Outcome != "allowed" {
		t.Errorf("after the release: %s", got)
	}
}

// A gateway whose second rule refuses has held nothing under the first, and has passed nothing on.
func TestGatewayRefusedBySecondRule(t *testing.T) {
	var m stint.Memory
	end := make(chan bool)
	var mu sync.Mutex
	passed := 0
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		passed++
		mu.Unlock()
		<-end
	})
	s := newServer(t, `
rules:
  - {name: wide, key: '"all"', cost: 10, limits: [1000 per 24h fixed_window hold, 9 in_flight]}
  - {name: narrow, key: '"all"', limits: [1 in_flight]}
`, over(&m), everythingTo(up))
	g := start(t, s)
	first := make(chan answer)
	go func() { first <- send(t, g.gateway, "GET", "/") }()
	wantHeld(t, s, &m, 11)
	for range 5 {
		if got := send(t, g.gateway, "GET", "/"); got.StatusCode != 429 || got.Header.Get("Retry-After") == "" {
			t.Errorf("%s", got.Status)
		}
	}
	if got := heldBy(t, s, &m); got != 11 {
		t.Errorf("%d held by one request", got)
	}
	end <- true
	<-first
	wantHeld(t, s, &m, 0)
	mu.Lock()
	defer mu.Unlock()
	if passed != 1 {
		t.Errorf("%d passed", passed)
	}
}

// While the store is away, held limits follow on_store_error. What was held before is settled once
// the store answers again, and what was held in the meantime is charged then.
func TestHeldWithoutStore(t *testing.T) {
	for policy, c := range map[string]struct{ during, after string }{
		"allow": {"allowed allowed allowed", `"used":20,"remaining":80`}, // and nothing to settle
		"deny":  {"unavailable unavailable unavailable", `"used":20,"remaining":80`},
		"local": {"allowed limited limited", `"used":25,"remaining":75`}, // one place of two was held before
	} {
		synctest.Test(t, func(t *testing.T) {
			var away atomic.Bool
			shared := &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) (f limittest.Fault) {
				if away.Load() {
					f.Err = limittest.ErrFault
				}
				return f
			}}
			store := layers.New(shared, layers.Options{})
			defer store.Close()
			s := newServer(t, `rules: [{name: ask, key: attrs.user, limits: [100 per 1h fixed_window hold, 2 in_flight], on_store_error: `+policy+`}]`, over(store))
			o, h := operator{t, s.Admin()}, holder{t, s}
			before := h.hold("ann", 30, "")
			expect(t, before.Outcome, "allowed")

			away.Store(true)
			var all, held []string
			for range 3 {
				a := h.hold("ann", 10, "")
				if a.Status == http.StatusServiceUnavailable {
					a.Outcome = "unavailable"
				}
				all = append(all, a.Outcome)
				if (a.Hold != "") != (policy == "local" && a.Outcome == "allowed") {
					t.Errorf("%s: %s, hold %q", policy, a.Outcome, a.Hold)
				}
				if a.Hold != "" {
					held = append(held, a.Hold)
				}
			}
			for _, hold := range held {
				expect(t, h.settle(hold, 5).Outcome, "settled") // without the store
			}
			expect(t, policy+": "+strings.Join(all, " "), policy+": "+c.during)
			if a := h.settle(before.Hold, 20); a.Status != http.StatusServiceUnavailable {
				t.Errorf("%s: settled without the store: %s", policy, a)
			}

			away.Store(false)
			time.Sleep(20 * time.Second)
			expect(t, h.settle(before.Hold, 20).Outcome, "settled")
			o.want(200, "POST", "/v1/keys/show", `{"rule":"ask","key":"ann"}`, `"capacity":100,`+c.after, `"capacity":2,"used":0,"remaining":2`)
		})
	}
}

// A request that holds through the store, and ends while the store is away, is charged what it did
// cost when the store answers again; so is one that holds without the store.
func TestGatewayHoldsBeforeAnOutage(t *testing.T) {
	for policy, want := range map[string]string{
		"local": `"used":84,"remaining":916`,
		"deny":  `"used":42,"remaining":958`, // the second was refused
		"allow": `"used":42,"remaining":958`, // and not counted
	} {
		synctest.Test(t, func(t *testing.T) {
			var away atomic.Bool
			s := newServer(t, `rules: [{name: ask, key: '"all"', cost: "100", cost_after: int(response.headers.used), limits: [1000 per 24h fixed_window hold, 9 in_flight], on_store_error: `+policy+`}]`,
				over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) (f limittest.Fault) {
					if away.Load() {
						f.Err = limittest.ErrFault
					}
					return f
				}}))
			o := operator{t, s.Admin()}
			h := s.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				away.Store(true) // while the request is under way
				w.Header().Set("Used", "42")
			}))
			for range 2 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			}
			time.Sleep(5 * time.Second)
			away.Store(false)
			time.Sleep(20 * time.Second) // less than what is held lasts
			o.want(200, "POST", "/v1/keys/show", `{"rule":"ask","key":"all"}`, `"capacity":1000,`+want, `"capacity":9,"used":0,"remaining":9`)
		})
	}
}

// If the store is away for longer than a hold lasts, what the request did cost is lost. The log says so,
// and it is counted.
func TestCostLostInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var log logged
		s := newServer(t, `rules: [{name: ask, key: '"all"', cost: "100", limits: [1000 per 24h fixed_window hold 10s]}]`, logTo(&log),
			over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) (f limittest.Fault) {
				if away.Load() {
					f.Err = limittest.ErrFault
				}
				return f
			}}))
		h := s.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { away.Store(true) }))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		lost := func() bool {
			return strings.Contains(metrics(s), `stint_holds_ended_total{result="lost",rule="ask"} 1`+"\n")
		}
		if lost() {
			t.Error("it is lost while the hold lasts")
		}
		time.Sleep(25 * time.Second)
		away.Store(false)
		time.Sleep(2 * time.Minute)
		if text := log.taken(); !lost() || !strings.Contains(text, `level=ERROR msg="a request was not charged what it did cost" rule=ask`) {
			t.Errorf("lost %t: %s", lost(), text)
		}
		operator{t, s.Admin()}.want(200, "POST", "/v1/keys/show", `{"rule":"ask","key":"all"}`, `"used":0,"remaining":1000`)
	})
}

// A budget of the calendar that is in debt at the end of its month begins the next with nothing used,
// and a request that runs over the end is charged to the month in which it ends.
func TestDebtAtTheEndOfAMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		to := func(month time.Month, day, hour, minute int) {
			time.Sleep(time.Until(time.Date(2000, month, day, hour, minute, 0, 0, berlin)))
		}
		to(3, 31, 23, 59)
		time.Sleep(30 * time.Second)
		s := newServer(t, `rules: [{name: ask, key: attrs.user, limits: [100 per month in Europe/Berlin hold], debt: 50%}]`, over(new(stint.Memory)))
		o, h := operator{t, s.Admin()}, holder{t, s}
		first, second, third := h.hold("ann", 30, ""), h.hold("ann", 30, ""), h.hold("ann", 40, "")
		expect(t, third.String(), "allowed: ask 0 left, 100 held")
		expect(t, h.settle(first.Hold, 140).String(), "settled: ask 0 left, 70 held, 140 charged")
		expect(t, h.settle(second.Hold, 30).String(), "settled: ask 0 left, 40 held, 10 charged") // no more than half of it is owed
		refused := h.hold("ann", 1, "")
		expect(t, fmt.Sprint(refused.Outcome, " ", refused.Busy, " ", time.Duration(refused.Decisions[0].RetryAfter)*time.Microsecond), "limited false 30s")
		to(4, 1, 0, 0)
		expect(t, h.hold("ann", 61, "").Outcome, "limited") // what still runs counts
		fourth := h.hold("ann", 60, "")
		expect(t, fourth.String(), "allowed: ask 0 left, 100 held")
		expect(t, h.settle(third.Hold, 45).String(), "settled: ask 0 left, 60 held, 45 charged")
		expect(t, h.settle(fourth.Hold, 1).String(), "settled: ask 54 left, 0 held, 1 charged")
		o.want(200, "POST", "/v1/explain", `{"operation":"ask","attrs":{"user":"ann"}}`, "46 of 100 used", "2000-04-01 00:00 CEST")
	})
}
