package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/internal/rulestest"
	"github.com/stintdev/stint/server/rules"
)

// Whatever the rules are, and whatever happened, a list is answered as the same checks one after another,
// and nothing is held when all is settled. Charges of a list are made after its checks, so they are in
// lists of their own.
func TestListsAreSingles(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			playLists(t, seed, rulestest.Draw(seed), func(string) stint.Store { return new(stint.Memory) }, plain)
		})
	}
}

// The same through Redis, where all takes place in one instant: what was decided, by which rule, and
// what remains.
func TestListsAreSinglesThroughRedis(t *testing.T) {
	redis := redistest.Start(t)
	for seed := range uint64(40) {
		scenario := rulestest.Draw(seed)
		scenario.Rules, scenario.Envoy = inOneYear.Replace(scenario.Rules), strings.NewReplacer("unit: second", "unit: year", "unit: minute", "unit: year", "unit: hour", "unit: year", "unit: day", "unit: year").Replace(scenario.Envoy)
		for i := range scenario.Steps {
			scenario.Steps[i].After = 0
		}
		playLists(t, seed, scenario, func(name string) stint.Store { return openRedis(t, redis.URL(), fmt.Sprint(name, seed)) }, decidedOnly)
	}
}

// inOneYear makes all periods so long that nothing is free again within a test.
var inOneYear = strings.NewReplacer(
	"per 1s", "per 8760h", "per 10s", "per 8760h", "per 1m", "per 8760h", "per 1h", "per 8760h", "period: 1s", "period: 8760h", "period: 10s", "period: 8760h", "period: 1m", "period: 8760h", "period: 1h", "period: 8760h",
	"per day", "per year", "per week in Europe/Berlin starts sunday", "per year in Europe/Berlin", "per: month, in: America/New_York, starts: 31", "per: year, in: America/New_York",
	" lease 5%", "", " lease 20%", "", "hold 10s", "hold 10m", "hold 45s", "hold 10m", "hold 1m retry 2s", "hold 10m retry 2s", "ban_for: 5s", "ban_for: 30m", "ban_for: 1m", "ban_for: 30m",
)

// listPlay is one of two servers that get the same checks: in lists, or one by one.
type listPlay struct {
	*play
	store    stint.Store
	together bool
	mu       sync.Mutex
	asked    map[heldAs]bool // what requests have held
}

// heldAs is a limit under which units of a key were held.
type heldAs struct {
	key   string
	limit *stint.Limit
}

func newListPlay(t *testing.T, set *rules.Set, store stint.Store, together bool) *listPlay {
	p := &listPlay{store: store, together: together, asked: map[heldAs]bool{}}
	s := newServer(t, "rules: []", over(store), func(c *server.Config) {
		c.Rules, c.Settings.RememberedDenials = set, 0
		c.Limiter.Observe = func(_ context.Context, r *stint.Request, _ *stint.Answer) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for i := range r.Asks {
				if a := &r.Asks[i]; a.Limit != nil && a.Limit.IsHeld() && r.Hold != (stint.HoldID{}) {
					p.asked[heldAs{a.Key, a.Limit}] = true
				}
			}
		}
	})
	p.play = &play{t, s, s.Admin(), map[string]string{}}
	return p
}

// post returns the answers to calls of a path, as they stand in a list.
func (p *listPlay) post(path string, bodies []string) []string {
	p.Helper()
	var all []string
	if !p.together {
		for _, body := range bodies {
			w := callCheck(p.s, path, body)
			var said struct{ Status int }
			p.read(w, &said)
			text := strings.TrimSpace(w.Body.String())
			if said.Status == 0 {
				text = fmt.Sprintf(`{"status":%d,%s`, w.Code, text[1:])
			}
			all = append(all, text)
		}
		return all
	}
	var each []json.RawMessage
	w := callCheck(p.s, path, "["+strings.Join(bodies, ",")+"]")
	if p.read(w, &each); w.Code != http.StatusOK || len(each) != len(bodies) {
		p.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, answer := range each {
		all = append(all, string(answer))
	}
	return all
}

// stillHeld is what is held.
func (p *listPlay) stillHeld() (all []string) {
	holder, _ := stint.As[stint.Holder](p.store)
	p.mu.Lock()
	defer p.mu.Unlock()
	for as := range p.asked {
		held, err := holder.Held(p.Context(), as.key, []*stint.Limit{as.limit})
		if err != nil || len(held) > 0 {
			all = append(all, fmt.Sprint(as.key, " ", as.limit, " ", held, " ", err))
		}
	}
	return all
}

// malformed are checks that nobody decides.
var malformed = []string{`{"cost":-1}`, `null`, `{"cost":1,"cost":2}`, `{"hold":"forever"}`, `{"client":"x"}`, `{"t_us":1}`}

// playLists plays a scenario on two servers, and compares the answers as same sees them.
func playLists(t *testing.T, seed uint64, scenario *rulestest.Scenario, store func(string) stint.Store, same func(string) string) {
	enforced := *scenario
	enforced.Rules = strings.ReplaceAll(scenario.Rules, ", mode: shadow", "")
	sets := make([]*rules.Set, 2)
	for i, s := range []*rulestest.Scenario{scenario, &enforced} {
		var err error
		if sets[i], err = s.Set(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	random := rand.New(rand.NewPCG(seed, 1))
	both := [2]*listPlay{newListPlay(t, sets[0], store("apart"), false), newListPlay(t, sets[0], store("together"), true)}
	var path string
	var waiting, names []string // bodies for path, and for each the name of its hold; empty: it has none
	flush := func() {
		if len(waiting) == 0 {
			return
		}
		var answers [2][]string
		for i, p := range both {
			answers[i] = p.post(path, waiting)
			for j, name := range names {
				var said struct{ Hold string }
				if name != "" && json.Unmarshal([]byte(answers[i][j]), &said) == nil {
					p.held[name] = said.Hold
				}
			}
		}
		for j := range waiting {
			if want, got := same(answers[0][j]), same(answers[1][j]); got != want {
				t.Fatalf("seed %d, %s %s:\n got %s\nwant %s\n%s", seed, path, waiting[j], got, want, scenario)
			}
		}
		waiting, names = nil, nil
	}
	add := func(to, body, name string) {
		if to != path {
			flush()
		}
		path, waiting, names = to, append(waiting, body), append(names, name)
	}
	settle := func(names []string, cost int64) {
		flush()
		for _, p := range both {
			var bodies []string
			for _, name := range names {
				if hold := p.held[name]; hold != "" {
					bodies = append(bodies, fmt.Sprintf(`{"hold":%q,"cost":%d}`, hold, cost))
				}
				delete(p.held, name)
			}
			for _, answer := range p.post("/v1/settle", bodies) {
				if !strings.HasPrefix(answer, `{"status":200,`) {
					t.Errorf("seed %d: settled: %s", seed, answer)
				}
			}
		}
	}
	const checks, charges = "/v1/check?shadow=true", "/v1/check"
	inForce := 0
	for i := range scenario.Steps {
		step := &scenario.Steps[i]
		if step.After > 0 {
			flush()
			time.Sleep(step.After)
		}
		switch random.IntN(20) {
		case 0:
			flush()
			inForce = 1 - inForce
			for _, p := range both {
				p.s.SetRules(sets[inForce])
			}
		case 1:
			add(checks, malformed[random.IntN(len(malformed))], "")
		}
		switch step.Do {
		case rulestest.Check:
			add(checks, step.Body, "")
		case rulestest.Hold:
			add(checks, `{"hold":"10m",`+step.Body[1:], step.Hold)
			if random.IntN(2) == 0 {
				settle([]string{step.Hold}, step.Cost)
			}
		case rulestest.Charge:
			add(charges, `{"charge":true,`+step.Body[1:], "")
		case rulestest.Settle:
			settle([]string{step.Hold}, step.Cost)
		default:
			flush()
			for _, p := range both {
				p.do(step)
			}
		}
	}
	flush()
	for _, p := range both {
		var names []string
		for name := range p.held {
			names = append(names, name)
		}
		settle(names, 1)
		if left := p.stillHeld(); left != nil && !await.So(func() bool { left = p.stillHeld(); return left == nil }) {
			t.Fatalf("seed %d: held at the end: %q\n%s", seed, left, scenario)
		}
	}
}

var (
	aHint   = regexp.MustCompile(`"retry_after":\d+,`) // at random where the limit is busy
	aHold   = regexp.MustCompile(`"hold":"[^"]+"`)
	aTiming = regexp.MustCompile(`,?"(retry_after_us|reset_after_us|ban_left_us|delay_us|message)":("[^"]*"|-?\d+)`)
)

// plain is an answer without what differs each time.
func plain(answer string) string {
	return withoutID(aHold.ReplaceAllString(aHint.ReplaceAllString(answer, ""), `"hold":"*"`))
}

// decidedOnly is an answer without the times that a clock has passed meanwhile, too. Of bans that began
// within these times, either may be the longer one.
func decidedOnly(answer string) string {
	if banned := `"outcome":"banned"`; strings.Contains(answer, banned) {
		return banned
	}
	return aTiming.ReplaceAllString(plain(answer), "")
}
