package server_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/internal/rulestest"
	"github.com/stintdev/stint/server/rules"
)

// An explanation says why in whole sentences: of lists and switches, of bans by hand, and of how the
// keys stand.
func TestExplainWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
rules:
  - {name: warns, match: operation == "warns", key: client.ip, limits: [2 per 1m fixed_window], penalty: {warn_after: 1}}
  - {name: bans, match: operation == "bans", key: client.ip, limits: [2 per 1m fixed_window], penalty: {warn_after: 2, ban_after: 3, ban_for: 10m}}
  - {name: paths, match: request.path == "/a", key: client.ip, limits: [2 per 1m]}
  - {name: users, match: request.path == "/user", key: claims.sub, limits: [2 per 1m]}
`)
		o := operator{t, s.Admin()}
		ask := func(operation string, want ...string) {
			t.Helper()
			o.want(200, "POST", "/v1/explain", `{"operation":"`+operation+`","client":"192.0.2.1"}`, want...)
		}
		ask("warns", `"Rule warns`, `2 per 1m fixed_window: 0 of 2 used, 2 left; allows"`, `penalty: 0 violations (warned from 1)"`, `"It would be allowed."`)
		outcomes(t, s, `{"operation":"bans","client":"192.0.2.1"}`, 3)
		ask("bans", `2 of 2 used, 0 left; refuses, would allow in 1m0s, unused in 1m0s"`, `penalty: 1 violation (warned from 2, banned at 3)"`, `"It would be refused (warned) by rule bans."`)
		outcome(t, s, `{"operation":"bans","client":"192.0.2.1"}`)
		ask("bans", `"It would be refused (banned) by rule bans."`)
		outcome(t, s, `{"operation":"bans","client":"192.0.2.1"}`)
		ask("bans", `penalty: banned for another 10m0s; limits are not checked until then"`, `"ban_left_us":600000000`)
		for _, c := range []struct{ ban, want string }{
			{`{"rule":"warns","key":"192.0.2.1","for":"1h","reason":"they know why"}`, `"The key 192.0.2.1 of rule warns is banned by hand, by local at 2000-01-01T00:00:00Z, until 2000-01-01T01:00:00Z: they know why."`},
			{`{"rule":"warns","key":"192.0.2.1"}`, `"The key 192.0.2.1 of rule warns is banned by hand, by local at 2000-01-01T00:00:00Z."`},
			{`{"network":"192.0.2.0/24","reason":"a crawler"}`, `"The network 192.0.2.0/24 is banned by hand, by local at 2000-01-01T00:00:00Z: a crawler."`},
		} {
			id := o.id(o.want(201, "POST", "/v1/bans", c.ban))
			ask("warns", c.want, `"outcome":"banned"`)
			o.want(200, "DELETE", "/v1/bans/"+id, "")
		}
		// What the API of checks would answer with 400 is not explained, and no token is missed.
		o.want(400, "POST", "/v1/explain", `{"client":"192.0.2.1","request":{"method":"GET","path":"/a%2Fb"}}`)
		o.want(200, "POST", "/v1/explain", `{"client":"192.0.2.1","request":{"method":"GET","path":"/user"}}`, `"outcome":"allowed"`)
		o.want(200, "PATCH", "/v1/switches", `{"enabled":false}`)
		ask("bans", `{"outcome":"allowed","words":["Limits are switched off: everything passes."]`)
	})
}

// Of several rules that refuse, an explanation names the one that a decision names: the gravest, and
// of those the one with the longest wait.
func TestExplainedRefusals(t *testing.T) {
	const hour, minute, bans = `name: hour, limits: [1 per 1h fixed_window]`, `name: minute, limits: [1 per 1m fixed_window]`, `name: bans, match: operation != "ban", limits: [1 per 1s fixed_window], penalty: {ban_after: 1, ban_for: 1s}`
	const counts = `name: counts, match: operation != "ban", limits: [1 per 1s fixed_window], penalty: {ban_after: 9, ban_for: 1s}`
	const longer, never = `name: longer, match: operation != "ban", limits: [1 per 1s fixed_window], penalty: {ban_after: 1, ban_for: 1m}`, `name: never, match: operation != "ban", cost: "operation == 'never' ? 5 : 1", limits: [1 per 1s fixed_window], penalty: {ban_after: 1, ban_for: 1s}`
	// One ban of it runs before the request that is explained.
	const running = `name: running, cost: "operation == 'ban' ? 5 : 0", limits: [1 per 1s fixed_window], penalty: {ban_after: 1, ban_for: 2s}`
	for _, c := range []struct {
		rules []string
		want  string
	}{
		{[]string{hour, minute}, "limited by hour"},
		{[]string{minute, hour}, "limited by hour"},
		{[]string{minute, `name: other, limits: [1 per 1m fixed_window]`}, "limited by minute"}, // the first of equals
		{[]string{bans, hour}, "banned by bans"},
		{[]string{hour, bans, minute}, "banned by bans"},
		{[]string{hour, counts, minute}, "limited by counts"}, // what counts as a violation is told of
		{[]string{bans, longer}, "banned by longer"},
		{[]string{bans, never}, "banned by bans"},        // of a cost that never fits, the ban is as long
		{[]string{running, longer}, "banned by running"}, // it answers for all
		{[]string{never, running, longer}, "banned by running"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var file strings.Builder
			file.WriteString("rules:\n")
			for _, r := range c.rules {
				file.WriteString("  - {" + r + ", key: client.ip}\n")
			}
			s := newServer(t, file.String())
			in := from("192.0.2.1")
			in.Operation = "first"
			if v, err := s.Decide(t.Context(), in, time.Time{}); err != nil || !v.Allowed {
				t.Fatal(say(&v, err))
			}
			in.Operation = "ban"
			if v, err := s.Decide(t.Context(), in, time.Time{}); slices.Contains(c.rules, running) && (err != nil || v.Outcome != stint.Banned) {
				t.Fatal(say(&v, err))
			}
			in.Operation = "never"
			x, err := s.Explain(t.Context(), in)
			if err != nil || x.Outcome+" by "+x.Rule != c.want {
				t.Errorf("%v: explained as %s by %s, %v, want %s", c.rules, x.Outcome, x.Rule, err, c.want)
			}
			if v, err := s.Decide(t.Context(), in, time.Time{}); !strings.HasPrefix(say(&v, err), c.want) {
				t.Errorf("%v: %s, want %s", c.rules, say(&v, err), c.want)
			}
		})
	}
}

// A request that would wait for longer than the gateway lets it is refused, and explained as that.
func TestExplainedDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
rules:
  - {name: even, key: '"all"', limits: [1 per 10s leaky_bucket burst 9], shape: true}
`, func(c *server.Config) { c.Settings.MaxDelay = 15 * time.Second })
		o := operator{t, s.Admin()}
		for _, want := range []string{"allowed", "allowed", "limited"} {
			o.want(200, "POST", "/v1/explain", `{"client":"192.0.2.1","request":{"method":"GET","path":"/","host":"example.com"}}`, `"outcome":"`+want+`"`)
			go func() {
				w := httptest.NewRecorder()
				s.Wrap(who("up")).ServeHTTP(w, httptest.NewRequest("GET", "http://example.com/", nil))
				if (w.Code == 200) != (want == "allowed") {
					t.Errorf("%d, explained as %s", w.Code, want)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
	})
}

// failsFrom is a Store that fails from its nth call on.
type failsFrom struct {
	stint.Store
	n, calls atomic.Int64
}

func (f *failsFrom) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if f.calls.Add(1) >= f.n.Load() {
		return stint.Decision{}, errors.New("gone")
	}
	return f.Store.Take(ctx, r, out)
}

// A rule that denies without the store is explained as that, whenever the store fails. Each key is looked at
// once.
func TestExplainWhileTheStoreFails(t *testing.T) {
	f := &failsFrom{Store: new(stint.Memory)}
	s := newServer(t, `rules: [{name: a, key: '"all"', limits: [5 per 1h], on_store_error: deny}, {name: b, key: client.ip, limits: [9 per 1h]}]`, over(f))
	for n := int64(1); n <= 3; n++ {
		f.calls.Store(0)
		f.n.Store(n)
		want := "undecided"
		if n == 3 {
			want = "allowed"
		}
		if x, err := s.Explain(t.Context(), from("192.0.2.1")); err != nil || x.Outcome != want {
			t.Errorf("gone from call %d: %s, %v: %q", n, x.Outcome, err, x.Words)
		}
		if got := f.calls.Load(); got > 2 {
			t.Errorf("gone from call %d: %d calls for two keys", n, got)
		}
	}
}

// Whatever happens while an explanation looks at the store, its numbers and its conclusion are of one instant:
// it says that a request would be refused if, and only if, it shows a limit or a ban that refuses it.
func TestExplainIsOfOneInstant(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 15
	}
	refused := 0
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			scenario := rulestest.Draw(seed)
			memory := new(stint.Memory)
			var looking sync.Mutex // rules in shadow mode ask at the same time
			meanwhile, first, now := map[int]func(){}, 0, 0
			f := &limittest.Faulty{Store: memory, Fault: func(n int) limittest.Fault {
				looking.Lock()
				defer looking.Unlock()
				if now = max(now, n); meanwhile[n-first] != nil {
					meanwhile[n-first]()
				}
				return limittest.Fault{}
			}}
			p := newPlay(t, scenario, over(f))
			for i := range scenario.Steps {
				step := &scenario.Steps[i]
				time.Sleep(step.After)
				in, err := server.ReadInput([]byte(step.Body))
				if step.Do != rulestest.Check || err != nil || strings.Contains(step.Body, "domain") {
					p.do(step)
					continue
				}
				synctest.Wait() // for what the last step began
				looking.Lock()
				var plan rules.Plan
				if p.s.Rules().Asks(in, &plan) == nil {
					meanwhile[1+i%5] = func() { exhaust(t, memory, plan.Asks) }
				}
				first = now
				looking.Unlock()
				x, err := p.s.Explain(t.Context(), in)
				looking.Lock()
				clear(meanwhile)
				looking.Unlock()
				if err == nil && len(x.Rules) > 0 && x.Rule != "" != showsRefusal(x) {
					t.Fatalf("at step %d of seed %d, %s: %q\n%s", i, seed, step.Body, x.Words, scenario)
				}
				if err == nil && x.Rule != "" {
					refused++
				}
			}
		})
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// exhaust charges what is asked until it is gone.
func exhaust(t *testing.T, memory *stint.Memory, all []stint.Ask) {
	for _, a := range all {
		if a.Limit == nil || a.Limit.Spec().Algorithm == stint.InFlight {
			continue
		}
		if _, err := stint.NewLimiter(memory).Charge(t.Context(), a.Key, a.Limit, 100); err != nil {
			t.Fatal(err)
		}
	}
}

// showsRefusal reports whether x shows a limit or a ban of an enforced rule that refuses.
func showsRefusal(x *adminapi.Explanation) bool {
	return slices.ContainsFunc(x.Rules, func(r adminapi.ExplainedRule) bool {
		return r.Mode == "enforce" && r.Applies && (r.BanLeft > 0 || slices.ContainsFunc(r.Limits, func(l adminapi.ExplainedLimit) bool { return !l.Allowed }))
	})
}
