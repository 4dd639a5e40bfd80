package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A sample of a log tells about what the whole log does, where a limit is large enough for that.
func TestReplaySampled(t *testing.T) {
	const rules = `
rules:
  - {name: api, key: client.ip, limits: [300 per 1m fixed_window]}
  - {name: burst, key: client.ip, limits: [1000 per 1m burst 50]}
  - {name: closed, match: request.path == "/closed", key: client.ip, limits: [0 per 1m]}
  - {name: guess, key: client.ip, penalty: {on_status: [401], ban_after: 5, ban_for: 5m}}
  - {name: tiered, key: client.ip, limits: [5000 per 1h], tiers: {few: {limits: [99 per 1h]}}}
  - {name: dear, match: request.path == "/dear", key: client.ip, cost: 50, limits: [4999 per 1h]}
  - {name: differs, match: request.path == "/differs", key: client.ip, cost: 'request.path == "/a" ? 50 : 1', limits: [90000 per 1h]}
  - {name: bans, match: request.path == "/bans", key: client.ip, limits: [5000 per 1h], penalty: {ban_after: 30, ban_for: 5m}}
tiers: {few: client.ip == "192.0.2.1"}`
	random := rand.New(rand.NewPCG(5, 5))
	var all []string
	for second := range 180 {
		for c := range 105 {
			n := 0.15
			if c >= 100 {
				n = 15 // three times the limit
			}
			for ; n > random.Float64(); n-- {
				all = append(all, combined(fmt.Sprintf("192.0.2.%d", c), second, 200))
			}
		}
	}
	whole := replayReport(t, rules, strings.Join(all, ""))
	for _, percent := range []int{10, 30, 70} {
		some := slices.DeleteFunc(slices.Clone(all), func(string) bool { return random.IntN(100) >= percent })
		told := replayReport(t, rules, strings.Join(some, ""), "--sampled", fmt.Sprintf("%d%%", percent))
		if told.Log.Share != float64(percent)/100 || whole.Log.Share != 0 {
			t.Errorf("shares %v and %v", told.Log.Share, whole.Log.Share)
		}
		share := told.Log.Share
		isNear := func(told, want, of int64) bool { // three standard deviations of a sum that has so many requests
			return math.Abs(float64(told-want)) <= 3*math.Sqrt(float64(of)*(1-share)/share)
		}
		if !isNear(told.Requests, whole.Requests, whole.Requests) {
			t.Errorf("%d%%: %d requests are told to be %d", percent, whole.Requests, told.Requests)
		}
		a, b := whole.ByRule[0], told.ByRule[0]
		if a.Name != "api" || b.Name != "api" || !isNear(b.Refused, a.Refused, 5*180*15) || a.RefusedKeys != 5 || b.RefusedKeys != 5 {
			t.Errorf("%d%%: of %d requests of %d keys, %d of %d are refused", percent, a.Refused, a.RefusedKeys, b.Refused, b.RefusedKeys)
		}
		var lacks []string
		for _, n := range told.NotReplayed {
			lacks = append(lacks, n.Rule+" "+strings.Join(n.Reads, " "))
		}
		want := map[int][]string{
			10: {
				"burst every request, for 1000 per 1m token_bucket burst 50", "guess every response", "tiered every request, for 99 per 1h",
				"dear every request, for 4999 per 1h", "differs every request, for 90000 per 1h", "bans every refused request, for its bans",
			},
			30: {"guess every response", "differs every request, for 90000 per 1h", "bans every refused request, for its bans"},
			70: {"guess every response", "differs every request, for 90000 per 1h"},
		}[percent]
		if !slices.Equal(lacks, want) {
			t.Errorf("%d%%: not replayed: %q", percent, lacks)
		}
	}
}

func TestReplaySampledSays(t *testing.T) {
	dir := t.TempDir()
	file, path := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "access.log")
	put(t, file, "rules: [{name: one, key: client.ip, limits: [100 per 1h]}, {name: two, key: client.ip, limits: [99 per 1h]}]")
	put(t, path, strings.Repeat(combined("192.0.2.1", 0, 200), 11))
	for _, c := range []struct {
		flags []string
		code  int
		want  string
	}{
		{[]string{"--sampled", "10%"}, 0, "about 110 requests, "},
		{[]string{"--sampled", "10%"}, 0, "Not replayed: rule two reads every request, for 99 per 1h, which this log lacks."},
		{[]string{"--sampled", "10%"}, 0, "and 1,000 requests of a key are seen as some 905 to 1,095, fewer less exactly."},
		{[]string{"--sampled", "10%"}, 0, "refuse more here than in truth, and more of the keys."},
		{[]string{"--sampled", "0.1%"}, 0, "each is replayed about 1,000 times at once"},
		{[]string{"--sampled", "30%"}, 0, "each is replayed about 3.33 times at once"},
		{[]string{"--sampled", "10%"}, 0, "These rules refuse 9.1% of the requests"},
		{[]string{"--sampled", "100%"}, 2, "want a percentage above 0 and below 100"},
		{[]string{"--sampled", "0.01%"}, 2, "--sampled: want at least 0.1%"},
		{[]string{"--sampled", "10%", "--each"}, 2, "want it without --each and --suggest"},
		{[]string{"--sampled", "10%", "--suggest", "all"}, 2, "want it without --each and --suggest"},
	} {
		code, out, errs := call("", append([]string{"replay", "--rules", file, path}, c.flags...)...)
		if code != c.code || !strings.Contains(strings.Join(strings.Fields(out+errs), " "), c.want) {
			t.Errorf("%q: %d, no %q in %s%s", c.flags, code, c.want, out, errs)
		}
	}
}

// Where one side of a comparison is not replayed, the report does not say that this is a change.
func TestReplaySampledAgainst(t *testing.T) {
	dir := t.TempDir()
	old, same := filepath.Join(dir, "old.yaml"), filepath.Join(dir, "same.yaml")
	put(t, old, "rules: [{name: one, key: client.ip, limits: [50 per 1h]}]")
	put(t, same, "rules: [{name: one, key: client.ip, limits: [200 per 1h]}]")
	log := strings.Repeat(combined("192.0.2.1", 0, 200), 30)
	has := func(rules, against, what string) bool {
		p := replayReport(t, rules, log, "--sampled", "10%", "--against", against)
		return strings.Contains(fmt.Sprint(p.Notes, p.Judgement), what)
	}
	const now, unseen = "rules: [{name: one, key: client.ip, limits: [100 per 1h]}]", "rules: [{name: one, key: client.ip, limits: [20 per 1h]}]"
	const differ = "Some rules are replayed on one side only"
	if !has(now, old, differ) || has(now, same, differ) || has(unseen, old, differ) {
		t.Error("only the first two are replayed on one side")
	}
	if !has(unseen, old, "No rule could be replayed; 0 newly refused") {
		t.Error("no rule is replayed, which the judgement does not say")
	}
}
