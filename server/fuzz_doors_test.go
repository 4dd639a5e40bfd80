package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	stintcheck "github.com/stintdev/stint/server/internal/check"
	"github.com/stintdev/stint/server/internal/rulestest"
	"github.com/stintdev/stint/server/rules"
)

// Whatever the rules are, each door decides one history alike: checks, a simulation, a preview, and
// requests that a proxy asks about. Lists are in TestListsAreSingles.
//
// There are these exceptions. Simulations and previews know nothing of changes by operators, and
// previews nothing of holds and of malformed requests, so the history has checks alone, and these are
// not compared. A proxy's requests are delayed by rules that shape, and checks are not, so files
// with such rules are not compared there.
func FuzzDoors(f *testing.F) {
	for seed := range uint64(80) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			scenario := rulestest.Draw(seed)
			d := &doors{play: newPlay(t, scenario), scenario: scenario, by: map[string]int64{}}
			for i := range scenario.Steps {
				if step := &scenario.Steps[i]; step.Do == rulestest.Check {
					time.Sleep(min(step.After, 2*time.Second)) // all of it in the time of a preview
					d.check(step)
				}
			}
			d.simulated()
			d.previewed()
			d.tried()
			d.authorized()
			if t.Failed() {
				t.Fatalf("seed %d:\n%s", seed, scenario)
			}
		})
	})
}

// doors has what checks decided, for the other doors to be compared with.
type doors struct {
	*play
	scenario *rulestest.Scenario
	events   strings.Builder
	at       []time.Time
	bodies   []string
	answers  []string
	counts   adminapi.PreviewCounts
	by       map[string]int64 // refusals by rule
}

// doorAnswer is what answers of checks and simulations have in common.
type doorAnswer struct {
	Outcome   string
	Rule      string
	BanLeft   int64 `json:"ban_left_us"`
	Decisions []struct {
		Allowed    bool
		Limit      int64
		Remaining  int64
		RetryAfter int64 `json:"retry_after_us"`
		ResetAfter int64 `json:"reset_after_us"`
	}
}

func (a *doorAnswer) String() string {
	return fmt.Sprintf("%s by %q, banned for %d µs: %+v", a.Outcome, a.Rule, a.BanLeft, a.Decisions)
}

func (d *doors) check(step *rulestest.Step) {
	fmt.Fprintln(&d.events, step.Event(time.Now()))
	d.at, d.bodies = append(d.at, time.Now()), append(d.bodies, step.Body)
	w := callCheck(d.s, "/v1/check?shadow=true", step.Body)
	var a doorAnswer
	d.read(w, &a)
	if w.Code == http.StatusBadRequest {
		a = doorAnswer{Outcome: "malformed"} // decided nothing
	}
	d.answers = append(d.answers, a.String())
	switch w.Code {
	case http.StatusBadRequest:
		return
	case http.StatusOK:
		d.counts.Allowed++
	default:
		d.counts.Refused++
		if a.Rule != "" {
			d.by[a.Rule]++
		}
	}
}

func (d *doors) simulated() {
	var out strings.Builder
	s := newPlay(d.TB, d.scenario).s
	if err := s.Simulate(d.Context(), strings.NewReader(d.events.String()), &out); err != nil {
		d.Error(err)
	}
	i := 0
	for line := range strings.Lines(out.String()) {
		var a doorAnswer
		if err := json.Unmarshal([]byte(line), &a); err != nil || i >= len(d.answers) {
			d.Fatal(err, line)
		}
		if got := a.String(); got != d.answers[i] {
			d.Errorf("check %d: %s\nsimulated: %s", i, d.answers[i], got)
		}
		i++
	}
	if i != len(d.answers) {
		d.Errorf("%d of %d events simulated", i, len(d.answers))
	}
}

func (d *doors) previewed() {
	w := d.admin("/v1/rules/preview", checkText("rules: []"))
	var p adminapi.Preview
	if d.read(w, &p); w.Code != 200 || p.Share != 1 || p.Partial {
		d.Fatalf("%d %s", w.Code, w.Body)
	}
	if p.Now != d.counts {
		d.Errorf("checks: %+v, a preview: %+v", d.counts, p.Now)
	}
	by := map[string]int64{}
	for _, r := range p.Rules {
		by[r.Name] = r.Now
	}
	for _, r := range d.s.Rules().Rules { // answers do not show those that a running ban hides
		if r.Mode == rules.Shadow {
			if n := metric(d.TB, d.s, fmt.Sprintf("stint_shadow_refusals_total{rule=%q}", r.Name)); n > 0 {
				d.by[r.Name] = int64(n)
			}
		}
	}
	if !maps.Equal(by, d.by) {
		d.Errorf("refused by checks: %v, in a preview: %v", d.by, by)
	}
}

// tried compares a Trial of what a log may have with a simulation of the rules that need no more than that.
func (d *doors) tried() {
	trial, _ := server.NewTrial(newPlay(d.TB, d.scenario).s, &rules.Known{
		Client: true, Method: true, Path: true, Query: true, Host: true, Route: true, Operation: true, Cost: true,
		Header: func(string) bool { return true }, Attrs: []string{"user", "plan", "size", "vip"},
	})
	var out strings.Builder
	s := newServer(d.TB, "rules: []", func(c *server.Config) { c.Rules = trial.Rules() })
	if err := s.Simulate(d.Context(), strings.NewReader(d.events.String()), &out); err != nil {
		d.Error(err)
	}
	i := 0
	for line := range strings.Lines(out.String()) {
		var want doorAnswer
		d.read(&httptest.ResponseRecorder{Body: bytes.NewBufferString(line)}, &want)
		if got := d.try(trial, i); got != want.String() {
			d.Errorf("simulated %d: %s\ntried: %s", i, &want, got)
		}
		i++
	}
}

func (d *doors) try(trial *server.Trial, i int) string {
	in, err := server.ReadInput([]byte(d.bodies[i]))
	var v *server.Verdict
	if err == nil {
		v, err = trial.Decide(d.Context(), in, d.at[i])
	}
	a := doorAnswer{Outcome: "malformed"}
	switch {
	case errors.Is(err, stint.ErrRequest):
	case err != nil:
		d.Fatal(err)
	default:
		a = triedAnswer(v)
	}
	return a.String()
}

func triedAnswer(v *server.Verdict) doorAnswer {
	a := doorAnswer{Outcome: v.Kind.Answer(), BanLeft: v.BanLeft.Microseconds()}
	if v.Rule != nil {
		a.Rule = v.Rule.Name
	}
	decisions := []stintcheck.Decision{}
	for i := range v.Each {
		decisions = append(decisions, stintcheck.DecisionOf(&v.Each[i]))
	}
	text, err := json.Marshal(decisions)
	if err != nil {
		panic(err)
	}
	if err := json.Unmarshal(text, &a.Decisions); err != nil {
		panic(err)
	}
	return a
}

// authorized compares requests that a proxy asks about with checks of the same.
func (d *doors) authorized() {
	if strings.Contains(d.scenario.Rules, "shape: true") {
		return
	}
	behind := *d.scenario
	behind.Rules = "trusted_proxies: [10.0.0.1]\n" + behind.Rules
	asked, checked := newPlay(d.TB, &behind).s, newPlay(d.TB, d.scenario).s
	n := 0
	for i := range d.scenario.Steps {
		var of struct {
			Client  string
			Request struct{ Method, Path string }
		}
		if step := &d.scenario.Steps[i]; step.Do != rulestest.Check || json.Unmarshal([]byte(step.Body), &of) != nil || of.Client == "" || of.Request.Path == "" {
			continue
		}
		if n++; n%3 == 0 {
			time.Sleep(time.Second)
		}
		want := check(checked, fmt.Sprintf(`{"client":%q,"request":{"method":%q,"path":%q}}`, of.Client, of.Request.Method, of.Request.Path)).Code
		got := authorize(checkAPI(asked), "GET", "/v1/authorize", "From: 10.0.0.1:1", "X-Forwarded-For: "+of.Client, "Host: example.com", "X-Original-Method: "+of.Request.Method, "X-Original-URI: "+of.Request.Path).StatusCode
		if got != want {
			d.Errorf("%+v: %d, as a check %d", of, got, want)
		}
	}
}
