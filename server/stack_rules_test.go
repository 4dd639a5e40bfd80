package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
)

const mixedRules = `
tiers: {paid: attrs.plan == "paid"}
safelist: ['attrs.user == "root"']
rules:
  - {name: calls, key: attrs.user, cost: "1", limits: [30 per 1m sliding_window], penalty: {warn_after: 2, ban_after: 4, ban_for: 8s, forget_after: 1m}}
  - name: tokens
    key: attrs.user
    limits: [60 per 1m fixed_window hold 20s, 200 per 1h hold debt 30]
    tiers: {paid: {times: 3}}
    penalty: {ban_after: 3, ban_for: 5s, forget_after: 30s}
  - {name: slots, key: attrs.user, limits: [3 in_flight hold 10s]}
  - {name: month, key: '"all"', limits: [900 per month in Europe/Berlin hold, 400 per 10m sliding_log hold debt 0]}
  - {name: watched, key: attrs.user, limits: [40 per 1m hold], mode: shadow}
  - {name: queue, key: '"all"', cost: "1", limits: [90 per 1m leaky_bucket burst 20]}
`

func drawRequest(r *rand.Rand) string {
	plan := []string{"", `,"plan":"paid"`}[r.IntN(2)]
	return fmt.Sprintf(`"cost":%d,"attrs":{"user":%q%s}`, r.IntN(2)*r.IntN(30), []string{"ann", "bob", "root"}[min(2, r.IntN(10)/4)], plan)
}

// Explanations and simulations of requests that hold say what the server answers, with tiers,
// penalties, rules in shadow mode and windows of the calendar.
func TestSaidOfHolds(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, mixedRules, over(new(stint.Memory)))
			o := operator{t, s.Admin()}
			r := rand.New(rand.NewPCG(seed, 34))
			var events, live bytes.Buffer
			note := func(event string, a answered) {
				fmt.Fprintf(&events, "{%s,\"t_us\":%d}\n", event, time.Now().UnixMicro())
				fmt.Fprint(&live, a.Outcome)
				if len(a.Decisions) > 0 && a.Outcome != "settled" && a.Outcome != "unknown" && a.Outcome != "renewed" {
					for _, d := range a.Decisions {
						fmt.Fprint(&live, " ", d.Remaining)
					}
				}
				fmt.Fprintln(&live)
			}
			holds := map[string]string{}
			for i := range 150 {
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
				name := fmt.Sprintf("h%d", r.IntN(6))
				if hold := holds[name]; hold != "" {
					if r.IntN(3) == 0 {
						callCheck(s, "/v1/renew", fmt.Sprintf(`{"hold":%q}`, hold))
						note(fmt.Sprintf(`"renew":%q`, name), answered{Outcome: "renewed"}) // whether it is found or not
						continue
					}
					cost := r.IntN(40)
					note(fmt.Sprintf(`"settle":%q,"cost":%d`, name, cost), readAnswer[answered](t, callCheck(s, "/v1/settle", fmt.Sprintf(`{"hold":%q,"cost":%d}`, hold, cost))))
					delete(holds, name)
					continue
				}
				q := drawRequest(r)
				if r.IntN(8) == 0 {
					a := readAnswer[answered](t, callCheck(s, "/v1/check?shadow=true", `{"charge":true,`+q+"}"))
					note(`"charge":true,`+q, a)
					continue
				}
				var e struct{ Outcome, Rule string }
				said := o.want(200, "POST", "/v1/explain", "{"+q+"}")
				if err := json.Unmarshal([]byte(said), &e); err != nil {
					t.Fatal(err)
				}
				hold := r.IntN(2) == 0
				with := ""
				if hold = hold && !strings.Contains(q, `"cost":0,`); hold { // a hold of 0 units asks for one
					with = `"hold":"20s",`
				}
				a := readAnswer[answered](t, callCheck(s, "/v1/check?shadow=true", "{"+with+q+"}"))
				if a.Outcome == "safe" {
					e.Outcome = "safe"
				}
				if e.Outcome != a.Outcome {
					t.Errorf("seed %d, %d: %s\nexplained %s\nanswered %s", seed, i, with+q, said, a)
				}
				if hold {
					holds[name] = a.Hold
					note(fmt.Sprintf(`"hold":%q,%s`, name, q), a)
				} else {
					note(q, a)
				}
			}
			var out, simulated bytes.Buffer
			same := strings.NewReplacer("hold 10s", "hold 20s", "hold debt", "hold 20s debt", "Berlin hold", "Berlin hold 20s", "per 1m hold]", "per 1m hold 20s]").Replace(mixedRules)
			twin := newServer(t, same, over(new(stint.Memory)))
			if err := twin.Simulate(context.Background(), bytes.NewReader(events.Bytes()), &out); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				var a answered
				if err := json.Unmarshal([]byte(line), &a); err != nil {
					t.Fatal(err)
				}
				fmt.Fprint(&simulated, a.Outcome)
				if a.Outcome != "settled" && a.Outcome != "unknown" && a.Outcome != "renewed" {
					for _, d := range a.Decisions {
						fmt.Fprint(&simulated, " ", d.Remaining)
					}
				}
				fmt.Fprintln(&simulated)
			}
			asked, have, want := strings.Split(events.String(), "\n"), strings.Split(simulated.String(), "\n"), strings.Split(live.String(), "\n")
			for i := range want {
				if have[i] != want[i] && !strings.HasPrefix(want[i], have[i]) {
					t.Fatalf("seed %d, event %d: %s\nsimulated %s\n     live %s", seed, i, asked[i], have[i], want[i])
				}
			}
		})
	}
}

// A refusal that is due to what is held is no violation, and is not explained as one.
func TestExplainBusy(t *testing.T) {
	s := newServer(t, `rules: [{name: ask, key: attrs.user, limits: [10 per 1h fixed_window hold, 2 in_flight], penalty: {ban_after: 1, ban_for: 1m}}]`)
	o, h := operator{t, s.Admin()}, holder{t, s}
	h.hold("ann", 6, "")
	o.want(200, "POST", "/v1/explain", `{"cost":5,"attrs":{"user":"ann"}}`, `{"outcome":"limited","rule":"ask"`)
	expect(t, h.hold("ann", 5, "").Outcome, "limited")
	o.want(200, "POST", "/v1/explain", `{"cost":11,"attrs":{"user":"ann"}}`, `{"outcome":"banned","rule":"ask"`)
	expect(t, h.hold("ann", 11, "").Outcome, "banned")
}
