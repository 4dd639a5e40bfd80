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
			var events, live bytes.Buffer
			note := func(event string, a answered) {
				fmt.Fprintf(&events, "{%s,\"t_us\":%d}\n", event, time.Now().UnixMicro())
				fmt.Fprint(&live, a.Outcome)
				if a.Outcome != "settled" { // else those of rules in shadow mode are not shown
					for _, d := range a.Decisions {
						fmt.Fprint(&live, " ", d.Remaining)
					}
				}
				fmt.Fprintln(&live)
			}
			holds := map[string]string{} // by the names in the events
			for range 80 {
				time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
				name := fmt.Sprintf("h%d", r.IntN(6))
				if hold := holds[name]; hold != "" {
					cost := r.IntN(5)
					a := readAnswer[answered](t, callCheck(s, "/v1/settle", fmt.Sprintf(`{"hold":%q,"cost":%d}`, hold, cost)))
					if a.Outcome == "unknown" {
						a.Decisions = nil
					}
					note(fmt.Sprintf(`"settle":%q,"cost":%d`, name, cost), a)
					delete(holds, name)
					continue
				}
				call := drawCall(r)
				if r.IntN(2) == 0 {
					note(call, readAnswer[answered](t, callCheck(s, "/v1/check?shadow=true", "{"+call+"}")))
					continue
				}
				a := readAnswer[answered](t, callCheck(s, "/v1/check?shadow=true", `{"hold":"30s",`+call+"}"))
				holds[name] = a.Hold
				note(fmt.Sprintf(`"hold":%q,%s`, name, call), a)
			}
			var out, simulated bytes.Buffer
			twin := newCalls(t, heldCalls, "{}", over(new(stint.Memory)))
			if err := twin.Simulate(context.Background(), bytes.NewReader(events.Bytes()), &out); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				var a answered
				if err := json.Unmarshal([]byte(line), &a); err != nil {
					t.Fatal(err)
				}
				fmt.Fprint(&simulated, a.Outcome)
				if a.Outcome != "settled" && a.Outcome != "unknown" {
					for _, d := range a.Decisions {
						fmt.Fprint(&simulated, " ", d.Remaining)
					}
				}
				fmt.Fprintln(&simulated)
			}
			asked, have, want := strings.Split(events.String(), "\n"), strings.Split(simulated.String(), "\n"), strings.Split(live.String(), "\n")
			for i := range want {
				if have[i] != want[i] {
					t.Fatalf("seed %d, event %d: %s\nsimulated %s\n     live %s", seed, i, asked[i], have[i], want[i])
				}
			}
		})
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
