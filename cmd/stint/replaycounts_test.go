package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stintdev/stint/cmd/stint/internal/replay"
)

// replayReport is the report of lines in combined form under rules.
func replayReport(t *testing.T, rules, log string, flags ...string) (p replay.Report) {
	t.Helper()
	dir := t.TempDir()
	file, path := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "access.log")
	put(t, file, rules)
	put(t, path, log)
	code, out, errs := call("", append([]string{"replay", "--rules", file, "--json", path}, flags...)...)
	if err := json.Unmarshal([]byte(out), &p); code != 0 || err != nil {
		t.Fatal(code, errs, err)
	}
	return p
}

// combined is a line of the first hour of a day.
func combined(client string, second, status int) string {
	return fmt.Sprintf("%s - - [20/Nov/2026:10:%02d:%02d +0000] \"GET / HTTP/1.1\" %d 1 \"-\" \"-\"\n", client, second/60, second%60, status)
}

// Requests that a rule in shadow mode would refuse pass, but speak neither for nor against the client's others.
func TestReplayBestInShadow(t *testing.T) {
	const shadow = "{name: new, mode: shadow, key: client.ip, limits: [1 per 30s fixed_window]}"
	const login = "{name: login, key: client.ip, match: request.method == \"POST\", limits: [0 per 1m]}"
	var good, bad, refused strings.Builder
	for i := range 20 {
		good.WriteString(combined("192.0.2.1", 60*i, 200) + combined("192.0.2.1", 60*i+1, 404))
		bad.WriteString(combined("192.0.2.2", 60*i, 404) + combined("192.0.2.2", 60*i+1, 200))
		if i%4 == 0 {
			refused.WriteString(strings.Replace(combined("192.0.2.3", 60*i, 200), "GET", "POST", 1))
		} else {
			refused.WriteString(combined("192.0.2.3", 60*i, 200))
		}
		refused.WriteString(combined("192.0.2.3", 60*i+1, 200))
	}
	for _, c := range []struct {
		log, best string
	}{{good.String(), "192.0.2.1"}, {bad.String(), ""}, {refused.String(), ""}} {
		best := ""
		for _, b := range replayReport(t, "rules: ["+shadow+", "+login+"]", c.log).ByRule[0].Best {
			best += b.Client
			if b.Refused != 20 || b.Passed != 20 {
				t.Errorf("%+v", b)
			}
		}
		if best != c.best {
			t.Errorf("the best client is %q, want %q", best, c.best)
		}
	}
}

// A shaping rule refuses what would wait for longer than max_delay.
func TestReplayShapes(t *testing.T) {
	p := replayReport(t, "server: {max_delay: 5s, routes: [{upstream: 'http://localhost:1'}]}\n"+
		"rules: [{name: queue, shape: true, key: client.ip, limits: [60 per 1m leaky_bucket burst 30]}]", strings.Repeat(combined("192.0.2.1", 0, 200), 30))
	if p.Rules.Refused != 24 {
		t.Errorf("%d refused, want all but the first and those that wait for 1 to 5 s: 24", p.Rules.Refused)
	}
}

// What is suggested for a rule of a route is measured on the route's requests.
func TestReplaySuggestsForRoutes(t *testing.T) {
	dir := t.TempDir()
	file, path := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "app.jsonl")
	put(t, file, "server: {routes: [{name: api, path: /api, upstream: 'http://localhost:1'}]}\n"+
		"rules: [{name: api, match: request.route == \"api\", key: client.ip, limits: [1 per 1h]}]")
	var log strings.Builder
	for i := range 600 {
		fmt.Fprintf(&log, `{"time":%d,"ip":"192.0.2.%d","host":"a.example","path":"/api/x","method":"GET"}`+"\n", 1770000000+i, i%30)
	}
	put(t, path, log.String())
	code, out, errs := call("", "replay", "--rules", file, "--suggest", "api", path)
	if code != 0 || !strings.Contains(out, "Suggested for api: ") {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

// A name in a log cannot write to a terminal.
func TestReplayEachIsPlain(t *testing.T) {
	dir := t.TempDir()
	file, path := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "access.log")
	put(t, file, "rules: [{name: one, key: client.ip, limits: [1 per 1h]}]")
	put(t, path, strings.Replace(combined("192.0.2.1", 0, 200), "- - ", "- \u009b31m\u202ex ", 1))
	code, out, errs := call("", "replay", "--rules", file, "--each", path)
	if code != 0 || !strings.Contains(out, `"client":"\u009b31m\u202ex"`) {
		t.Errorf("%d %q %s", code, out, errs)
	}
}

// Old and new rules trust proxies of their own, so the old ones refuse what they refuse alone.
func TestReplayAgainstOtherProxies(t *testing.T) {
	const rule = "rules: [{name: one, key: client.ip, limits: [5 per 1m]}]"
	var log strings.Builder
	for i := range 60 {
		line := strings.TrimSuffix(combined("10.0.0.1", 0, 200), "\n")
		fmt.Fprintf(&log, "%s \"198.51.100.%d\"\n", line, i)
	}
	dir := t.TempDir()
	plain, behind := filepath.Join(dir, "plain.yaml"), filepath.Join(dir, "behind.yaml")
	put(t, plain, rule)
	put(t, behind, "trusted_proxies: [10.0.0.0/8]\n"+rule)
	if p := replayReport(t, "trusted_proxies: [10.0.0.0/8]\n"+rule, log.String(), "--against", plain); p.Rules.Refused != 0 ||
		p.Against.Refused != 55 || p.NewlyPassed != 55 || p.NewlyRefused != 0 || p.Rules.Clients != 60 || p.Against.Clients != 1 {
		t.Errorf("new proxies: %+v against %+v, %d newly passed", p.Rules, *p.Against, p.NewlyPassed)
	}
	if p := replayReport(t, rule, log.String(), "--against", behind); p.Rules.Refused != 55 || p.Against.Refused != 0 || p.NewlyRefused != 55 ||
		p.Rules.Clients != 1 || p.Against.Clients != 60 {
		t.Errorf("old proxies: %+v against %+v, %d newly refused", p.Rules, *p.Against, p.NewlyRefused)
	}
}

// Bans that begin because of responses count, too, once each.
func TestReplayBansByStatus(t *testing.T) {
	var log strings.Builder
	for i := range 40 {
		log.WriteString(combined("192.0.2.1", 30*i, 401))
	}
	p := replayReport(t, "rules: [{name: guess, key: client.ip, penalty: {on_status: [401], ban_after: 5, ban_for: 5m}}]", log.String())
	r := p.ByRule[0]
	// Of each 14 requests, 5 are answered, and the 9 that come in less than 5m after them are refused. 7 of the last
	// 12 are.
	if r.Bans != 3 || r.Refused != 9+9+7 {
		t.Errorf("%d bans and %d refused, want 3 and 25", r.Bans, r.Refused)
	}
}

// Of very many clients, a sample is kept. The few that are refused are counted all the same.
func TestReplayFewRefusedOfMany(t *testing.T) {
	var log strings.Builder
	for i := range 300_000 {
		log.WriteString(combined(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), 0, 200))
	}
	for i := range 12 {
		log.WriteString(strings.Repeat(combined(fmt.Sprintf("192.0.2.%d", i), 0, 200), 7))
	}
	p := replayReport(t, "rules: [{name: one, key: client.ip, limits: [5 per 1m]}]", log.String())
	r := p.ByRule[0]
	if !r.Sampled || r.Refused != 24 || r.RefusedKeys != 12 || !p.Rules.Sampled || p.Rules.RefusedClients != 12 {
		t.Errorf("%d refused of %d keys and %d clients, want 24 of 12", r.Refused, r.RefusedKeys, p.Rules.RefusedClients)
	}
}

// A file of a directory that is no log is named, once, with the reason.
func TestReplaySkips(t *testing.T) {
	dir := t.TempDir()
	rules, logs := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "logs")
	put(t, rules, "rules: [{name: one, key: client.ip, limits: [1 per 1h]}]")
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(logs, "access.log"), combined("192.0.2.1", 0, 200))
	put(t, filepath.Join(logs, "notes.txt"), "no log\n")
	code, out, errs := call("", "replay", "--rules", rules, logs)
	flat := strings.Join(strings.Fields(out), " ") // it wraps
	if code != 0 || !strings.Contains(flat, "/notes.txt: not read: its form is not recognised") || !strings.Contains(flat, "/access.log: combined") {
		t.Errorf("%d %s%s", code, out, errs)
	}
}
