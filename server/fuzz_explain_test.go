package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/rulestest"
)

// Whatever the rules are, whatever happened, and whatever is asked, Explain says what Decide
// then decides, takes nothing, and says the same the next time.
func FuzzExplain(f *testing.F) {
	bodies := []string{
		`{}`, `{"client":"192.0.2.1"}`, `{"client":"192.0.2.1","cost":0}`, `{"client":"192.0.2.1","cost":8}`, `{"operation":"bad"}`,
		`{"attrs":{"user":"u1","size":5,"plan":"gold"},"client":"192.0.2.1"}`, `{"attrs":{"user":"u1","size":"x"}}`, `{"attrs":{"user":"u1","vip":true}}`,
		`{"operation":"login","attrs":{"user":"u1"},"request":{"method":"GET","path":"/v1/x"},"cost":3}`, `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"u1"}]}]}`,
	}
	for seed := range uint64(60) {
		f.Add(seed, []byte(bodies[seed%uint64(len(bodies))]))
	}
	f.Fuzz(func(t *testing.T, seed uint64, body []byte) {
		synctest.Test(t, func(t *testing.T) {
			scenario := rulestest.Draw(seed)
			p := newPlay(t, scenario)
			for i := range scenario.Steps {
				step := &scenario.Steps[i]
				time.Sleep(step.After)
				if step.Do == rulestest.Check && i%2 == 0 {
					p.explained(step.Body)
				} else if step.Do == rulestest.Check {
					p.concluded(step.Body)
				} else {
					p.do(step)
				}
				if t.Failed() {
					t.Fatalf("at step %d of seed %d:\n%s", i, seed, scenario)
				}
			}
			p.explained(string(body))
			p.concluded(string(body))
		})
	})
}

// explained checks that what is explained of a check is what is decided.
func (p *play) explained(body string) {
	p.Helper()
	first, second := p.admin("/v1/explain", body), p.admin("/v1/explain", body)
	w := check(p.s, body)
	if first.Code >= 500 || second.Code != first.Code || (first.Code == 200) != (w.Code < 400 || w.Code == 403 || w.Code == 429) {
		p.Errorf("%s\nexplain: %d %s and %d, decide: %d %s", body, first.Code, first.Body, second.Code, w.Code, w.Body)
	}
	if first.Code != 200 {
		return
	}
	var said, again adminapi.Explanation
	var decided struct{ Outcome, Rule string }
	p.read(first, &said)
	p.read(second, &again)
	p.read(w, &decided)
	if decided.Outcome == "allowed" {
		decided.Rule = "" // the tightest, to be shown; it refused nothing
	}
	if said.Outcome == "unknown" && len(said.Needs) > 0 { // a check may leave out what a request has
		said.Outcome, again.Outcome = "allowed", strings.Replace(again.Outcome, "unknown", "allowed", 1)
	}
	if again.Outcome != said.Outcome || again.Rule != said.Rule {
		p.Errorf("%s\nexplain: %s %s, then %s %s", body, said.Outcome, said.Rule, again.Outcome, again.Rule)
	}
	if said.Outcome != decided.Outcome || said.Rule != decided.Rule {
		p.Errorf("%s\nexplain: %s %s, decide: %s %s\n%s", body, said.Outcome, said.Rule, decided.Outcome, decided.Rule, first.Body)
	}
}

// concluded checks that an explanation concludes what is decided next: not only who refuses, but by which
// key and limit, what is left, and for how long.
func (p *play) concluded(body string) {
	p.Helper()
	in, err := server.ReadInput([]byte(body))
	if err != nil {
		return
	}
	said, err := p.s.Concluded(p.Context(), in)
	if err != nil {
		return // explained compares
	}
	v, err := p.s.Decide(p.Context(), in, time.Time{})
	if err != nil || said.Outcome == 0 || v.Allowed && said.Allowed {
		return
	}
	sum := func(v *server.Verdict) string {
		left := v.Remaining
		for i := range v.Left { // before the call was charged although it is refused
			if d := &v.Each[i]; d.Limit == v.Limit && d.Key == v.Key {
				left = v.Left[i]
			}
		}
		rule := ""
		if v.Rule != nil {
			rule = v.Rule.Name
		}
		return fmt.Sprintf("%s by %s, key %q, limit %v, %d left, retry after %s", v.Outcome, rule, v.Key, v.Limit, left, v.RetryAfter)
	}
	if got, want := sum(&said), sum(&v); got != want {
		p.Errorf("%s\nexplain: %s\ndecide:  %s", body, got, want)
	}
}

// play is a server under the rules of a scenario.
type play struct {
	testing.TB
	s    *server.Server
	h    http.Handler      // of the admin API
	held map[string]string // by the names of holds, the holds that the server gave
}

func newPlay(t testing.TB, scenario *rulestest.Scenario, options ...func(*server.Config)) *play {
	set, err := scenario.Set()
	if err != nil {
		t.Fatal(err)
	}
	// No delay is too long, because Explain is about the gateway, which delays, and /v1/check is not.
	s := newServer(t, "rules: []", append(options, func(c *server.Config) { c.Rules, c.Settings.MaxDelay = set, 10_000*time.Hour })...)
	return &play{t, s, s.Admin(), map[string]string{}}
}

func (p *play) admin(path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://127.0.0.1:8090"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	p.h.ServeHTTP(w, r)
	return w
}

func (p *play) read(w *httptest.ResponseRecorder, to any) {
	p.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), to); err != nil {
		p.Fatalf("%v: %s", err, w.Body)
	}
}

// do carries out a step. What it does may be refused by the rules, and by nothing else.
func (p *play) do(step *rulestest.Step) {
	p.Helper()
	fits := func(w *httptest.ResponseRecorder, codes ...int) {
		p.Helper()
		if !slices.Contains(codes, w.Code) {
			p.Errorf("%s %s: %d %s", step.Do, step.Body, w.Code, w.Body)
		}
	}
	switch step.Do {
	case rulestest.Check:
		fits(check(p.s, step.Body), 200, 400, 403, 429)
	case rulestest.Hold:
		w := callCheck(p.s, "/v1/check", `{"hold":"30s",`+step.Body[1:])
		fits(w, 200, 400, 403, 429)
		var answer struct{ Hold string }
		p.read(w, &answer)
		p.held[step.Hold] = answer.Hold
	case rulestest.Settle:
		if hold := p.held[step.Hold]; hold != "" { // it was allowed, and a limit is held
			fits(callCheck(p.s, "/v1/settle", fmt.Sprintf(`{"hold":%q,"cost":%d}`, hold, step.Cost)), 200)
		}
	case rulestest.Charge:
		fits(callCheck(p.s, "/v1/check", `{"charge":true,`+step.Body[1:]), 200, 400)
	case rulestest.Ban:
		fits(p.admin("/v1/bans", step.Body), 201)
	case rulestest.Lift:
		fits(p.admin("/v1/bans/lift", step.Body), 200, 404)
	case rulestest.Override:
		fits(p.admin("/v1/overrides", step.Body), 201)
	}
}
