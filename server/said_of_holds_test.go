package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
)

// heldCalls has limits of a file of Envoy's form that are held, in quota mode, in shadow mode, and that
// keep what they refuse.
const heldCalls = `
domain: d
descriptors:
  - {key: plain, rate_limit: {unit: hour, requests_per_unit: 6}}
  - {key: kept, rate_limit: {unit: hour, requests_per_unit: 6, charge_refused: false}}
  - {key: held, rate_limit: {unit: hour, requests_per_unit: 9, hold: true, debt: 4}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 7, hold: 30s}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 5, hold: 30s}}
  - {key: log, rate_limit: {unit: minute, requests_per_unit: 8, algorithm: sliding_log, hold: true}}
`

// drawCall is a random call of heldCalls, in JSON without its braces.
func drawCall(r *rand.Rand) string {
	var all []string
	for range 1 + r.IntN(3) {
		key := []string{"plain", "kept", "held", "quota", "shadow", "log"}[r.IntN(6)]
		more := ""
		if r.IntN(8) == 0 {
			more = `,"is_negative_hits":true`
		}
		all = append(all, fmt.Sprintf(`{"entries":[{"key":%q,"value":"v%d"}],"hits_addend":%d%s}`, key, r.IntN(2), r.IntN(4), more))
	}
	return `"domain":"d","descriptors":[` + strings.Join(all, ",") + "]"
}

// A preview of calls counts what the server has answered.
func TestPreviewOfCalls(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			s := newCalls(t, heldCalls, "{}", over(new(stint.Memory)))
			o := operator{t, s.Admin()}
			r := rand.New(rand.NewPCG(seed, 31))
			allowed, refused := int64(0), int64(0)
			for range 120 {
				a := readAnswer[answered](t, callCheck(s, "/v1/check", "{"+drawCall(r)+"}"))
				switch a.Outcome {
				case "allowed", "unmatched":
					allowed++
				case "limited":
					refused++
				default:
					t.Fatalf("%+v", a)
				}
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			}
			if p := o.preview("{}"); p.Now.Allowed != allowed || p.Now.Refused != refused || refused == 0 {
				t.Errorf("seed %d: preview %+v; %d were allowed and %d refused", seed, p.Now, allowed, refused)
			}
		})
	}
}

// A simulation of calls that hold answers as the server did.
func TestSimulateHeldCalls(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			s := newCalls(t, heldCalls, "{}", over(new(stint.Memory)))
			r := rand.New(rand.NewPCG(seed, 32))
			var said recorded
			holds := map[string]string{} // by the names in the events
			for range 80 {
				time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
				name := fmt.Sprintf("h%d", r.IntN(6))
				if hold := holds[name]; hold != "" {
					cost := r.IntN(5)
					a := readAnswer[answered](t, callCheck(s, "/v1/settle", fmt.Sprintf(`{"hold":%q,"cost":%d}`, hold, cost)))
					said.note(fmt.Sprintf(`"settle":%q,"cost":%d`, name, cost), a)
					delete(holds, name)
					continue
				}
				call := drawCall(r)
				if r.IntN(2) == 0 {
					said.note(call, readAnswer[answered](t, callCheck(s, "/v1/check?shadow=true", "{"+call+"}")))
					continue
				}
				a := readAnswer[answered](t, callCheck(s, "/v1/check?shadow=true", `{"hold":"30s",`+call+"}"))
				holds[name] = a.Hold
				said.note(fmt.Sprintf(`"hold":%q,%s`, name, call), a)
			}
			said.isSimulated(t, newCalls(t, heldCalls, "{}", over(new(stint.Memory))))
		})
	}
}

// recorded are events and what a server answered to each.
type recorded struct{ events, answers []string }

func (r *recorded) note(event string, a answered) {
	r.events = append(r.events, fmt.Sprintf("{%s,\"t_us\":%d}", event, time.Now().UnixMicro()))
	r.answers = append(r.answers, outcomeAndLeft(a))
}

// outcomeAndLeft is the outcome of a request and what it left. What is settled may be of limits that no answer
// shows, as those of rules in shadow mode.
func outcomeAndLeft(a answered) string {
	text := a.Outcome
	if a.Outcome != "settled" && a.Outcome != "unknown" && a.Outcome != "renewed" {
		for _, d := range a.Decisions {
			text += fmt.Sprint(" ", d.Remaining)
		}
	}
	return text
}

// isSimulated plays the events to s, which has had none, and wants the same answers.
func (r *recorded) isSimulated(t *testing.T, s *server.Server) {
	t.Helper()
	var out bytes.Buffer
	if err := s.Simulate(t.Context(), strings.NewReader(strings.Join(r.events, "\n")), &out); err != nil {
		t.Fatal(err)
	}
	i := 0
	for line := range strings.Lines(out.String()) {
		var a answered
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		if got := outcomeAndLeft(a); got != r.answers[i] {
			t.Fatalf("event %d: %s\nsimulated %s\n     live %s", i, r.events[i], got, r.answers[i])
		}
		i++
	}
	if i != len(r.events) {
		t.Fatalf("%d answers to %d events", i, len(r.events))
	}
}

// An explanation says what a call is answered right after it.
func TestExplainHeldCalls(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			s := newCalls(t, heldCalls, "{}", over(new(stint.Memory)))
			o := operator{t, s.Admin()}
			r := rand.New(rand.NewPCG(seed, 33))
			var holds []string
			for i := range 80 {
				time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
				if n := len(holds); n > 0 && r.IntN(3) == 0 {
					callCheck(s, "/v1/settle", fmt.Sprintf(`{"hold":%q,"cost":%d}`, holds[n-1], r.IntN(5)))
					holds = holds[:n-1]
				}
				call, hold := drawCall(r), ""
				if r.IntN(2) == 0 {
					hold = `"hold":"30s",`
				}
				var e struct{ Outcome, Rule string }
				said := o.want(200, "POST", "/v1/explain", "{"+call+"}")
				if err := json.Unmarshal([]byte(said), &e); err != nil {
					t.Fatal(err)
				}
				a := readAnswer[answered](t, callCheck(s, "/v1/check?shadow=true", "{"+hold+call+"}"))
				if a.Hold != "" {
					holds = append(holds, a.Hold)
				}
				if e.Outcome != a.Outcome {
					t.Fatalf("seed %d, %d: %s\nexplained %s\nanswered %s", seed, i, hold+call, said, a)
				}
			}
		})
	}
}

// mixedRules have tiers, penalties, a rule in shadow mode and windows of the calendar.
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
			var log recorded
			holds := map[string]string{}
			for i := range 150 {
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
				name := fmt.Sprintf("h%d", r.IntN(6))
				if hold := holds[name]; hold != "" {
					if r.IntN(3) == 0 {
						callCheck(s, "/v1/renew", fmt.Sprintf(`{"hold":%q}`, hold))
						log.note(fmt.Sprintf(`"renew":%q`, name), answered{Outcome: "renewed"}) // whether it is found or not
						continue
					}
					cost := r.IntN(40)
					log.note(fmt.Sprintf(`"settle":%q,"cost":%d`, name, cost), readAnswer[answered](t, callCheck(s, "/v1/settle", fmt.Sprintf(`{"hold":%q,"cost":%d}`, hold, cost))))
					delete(holds, name)
					continue
				}
				q := drawRequest(r)
				if r.IntN(8) == 0 {
					a := readAnswer[answered](t, callCheck(s, "/v1/check?shadow=true", `{"charge":true,`+q+"}"))
					log.note(`"charge":true,`+q, a)
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
					log.note(fmt.Sprintf(`"hold":%q,%s`, name, q), a)
				} else {
					log.note(q, a)
				}
			}
			same := strings.NewReplacer("hold 10s", "hold 20s", "hold debt", "hold 20s debt", "Berlin hold", "Berlin hold 20s", "per 1m hold]", "per 1m hold 20s]").Replace(mixedRules)
			log.isSimulated(t, newServer(t, same, over(new(stint.Memory))))
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
