package server_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// changing are rule files that a server has one after another. The rules a and b are in some of them.
func changing(random *rand.Rand) string {
	var b strings.Builder
	b.WriteString("rules:\n  - {name: kept, match: 'operation == \"kept\"', key: client.ip, limits: [3 per 10s]}\n")
	for _, name := range [...]string{"a", "b"} {
		if random.IntN(4) == 0 {
			continue
		}
		mode, policy := [...]string{"enforce", "shadow", "off"}[random.IntN(3)], [...]string{"local", "allow", "deny"}[random.IntN(3)]
		fmt.Fprintf(&b, "  - {name: %s, match: 'operation == %q', key: client.ip, mode: %s, on_store_error: %s, limits: [%d per 10s]}\n", name, name, mode, policy, 1+random.IntN(5))
	}
	return b.String()
}

// bystander counts what requests are told.
type bystander struct {
	all map[string]float64            // by outcome
	of  map[string]map[string]float64 // by rule and outcome
}

func (b *bystander) ask(t *testing.T, s *server.Server, operation string) {
	in := from(fmt.Sprintf("192.0.2.%d", len(operation)))
	in.Operation = operation
	v, err := s.Decide(t.Context(), in, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	outcome := v.Outcome.String()
	if v.Rule == nil && v.Allowed && len(v.Rules) == 0 {
		outcome = "unmatched"
	} else if v.Rule != nil {
		if b.of[v.Rule.Name] == nil {
			b.of[v.Rule.Name] = map[string]float64{}
		}
		b.of[v.Rule.Name][outcome]++
	}
	b.all[outcome]++
}

// plotted is the sum over time of the rates that a page shows, by outcome.
func plotted(t *testing.T, s *server.Server, rule string) map[string]float64 {
	t.Helper()
	series, code := getJSON[adminapi.Series](t, s.Admin(), "/v1/series?rule="+url.QueryEscape(rule))
	if code != http.StatusOK {
		t.Fatalf("series of %q: %d", rule, code)
	}
	sums := map[string]float64{}
	for outcome, rates := range series.Outcomes {
		for _, rate := range rates {
			sums[outcome] += rate * float64(series.Step)
		}
	}
	return sums
}

// Whatever changes the rules while requests come and go – switches, the kill switch, overrides, new
// files – what a page has shown adds up to what requests were told.
func TestNumbersThroughChanges(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			s := newServer(t, changing(random))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			s.Follow(ctx)
			o := operator{t, s.Admin()}
			seen := bystander{map[string]float64{}, map[string]map[string]float64{}}
			for range 60 {
				time.Sleep(time.Duration(random.IntN(int(5 * time.Second))))
				for range random.IntN(12) {
					seen.ask(t, s, [...]string{"kept", "a", "b", "none"}[random.IntN(4)])
				}
				if random.IntN(2) == 0 {
					time.Sleep(time.Duration(random.IntN(int(2 * time.Second))))
				}
				name := [...]string{"kept", "a", "b"}[random.IntN(3)]
				switch random.IntN(4) {
				case 0:
					set, err := rules.Parse("rules.yaml", []byte(changing(random)))
					if err != nil {
						t.Fatal(err)
					}
					if _, err := s.SetRules(set); err != nil {
						t.Fatal(err)
					}
				case 1: // of a rule that there may not be
					mode := [...]string{`"enforce"`, `"shadow"`, `"off"`, "null"}[random.IntN(4)]
					o.call("PATCH", "/v1/switches", fmt.Sprintf(`{"rules":{%q:%s}}`, name, mode))
				case 2:
					o.want(200, "PATCH", "/v1/switches", fmt.Sprintf(`{"enabled":%t}`, random.IntN(3) > 0))
				case 3:
					o.call("POST", "/v1/overrides", fmt.Sprintf(`{"rule":%q,"key":"192.0.2.1","times":%d,"for":"1m"}`, name, 2+random.IntN(3)))
				}
			}
			set, err := rules.Parse("rules.yaml", []byte("rules: [{name: kept, limits: [1 per 1s]}, {name: a, limits: [1 per 1s]}, {name: b, limits: [1 per 1s]}]"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.SetRules(set); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			near(t, fmt.Sprint("seed ", seed, ", all"), plotted(t, s, ""), seen.all)
			for rule, want := range seen.of {
				near(t, fmt.Sprintf("seed %d, rule %s", seed, rule), plotted(t, s, rule), want)
			}
			totals := s.FleetTotals()
			if got, want := totals.All[:4], sums(seen.of); !slices.Equal(got, want) {
				t.Errorf("seed %d: rules have decided %v, want %v", seed, got, want)
			}
		})
	}
}

// sums adds up what rules decided: allowed, limited, warned, banned.
func sums(of map[string]map[string]float64) []int64 {
	all := make([]int64, 4)
	for _, counts := range of {
		for i, outcome := range [...]string{"allowed", "limited", "warned", "banned"} {
			all[i] += int64(counts[outcome])
		}
	}
	return all
}

// near compares sums of rates, which are rounded, with counts.
func near(t *testing.T, what string, got, want map[string]float64) {
	t.Helper()
	for _, outcome := range slices.Sorted(maps.Keys(want)) {
		if d := got[outcome] - want[outcome]; d < -0.5 || d > 0.5 {
			t.Errorf("%s: shown as %s %.2f, were %.0f", what, outcome, got[outcome], want[outcome])
		}
	}
	for outcome, n := range got {
		if n > 0.5 && want[outcome] == 0 && outcome != "beside" && outcome != "shadow" {
			t.Errorf("%s: shown as %s %.2f, were none", what, outcome, n)
		}
	}
}

// A rule that is switched to shadow mode and back makes no traffic: no rate grows, and no alert fires.
func TestSwitchesMakeNoTraffic(t *testing.T) {
	h := hook(t)
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
rules:
  - {name: login, key: client.ip, limits: [5 per 1h fixed_window]}
alerts:
  - {name: blocked, when: block_rate() > 0.5 && rate("login") > 0}
  - {name: many, when: 'rate("login", "refused") > 1'}
  - {name: shadowed, when: 'rate("*", "shadow_refused") > 0'}
`, func(c *server.Config) { c.Settings.Webhooks = []config.Webhook{h.Webhook} })
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		s.Follow(t.Context())
		time.Sleep(5 * time.Minute)
		for range 100 {
			checkOne(t, s, "192.0.2.1")
		}
		time.Sleep(5 * time.Minute)
		h.told() // what these requests caused
		o := operator{t, s.Admin()}
		for _, mode := range [...]string{"shadow", "enforce", "off", "enforce", "shadow", "off", "shadow", "enforce"} {
			o.want(200, "PATCH", "/v1/switches", fmt.Sprintf(`{"rules":{"login":%q}}`, mode))
			before := plotted(t, s, "")
			time.Sleep(45 * time.Second)
			if after := plotted(t, s, ""); !maps.Equal(after, before) {
				t.Errorf("switched to %s: shown %v, were %v", mode, after, before)
			}
			if got := h.told(); got != "" {
				t.Errorf("switched to %s: told %q", mode, got)
			}
		}
	})
}
