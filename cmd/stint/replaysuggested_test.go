package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/cmd/stint/internal/replay"
)

const suggestedFor = `# limits of the shop
rules:
  - name: address # everybody
    key: client.ip
    limits: [1000000 per 1h]
    penalty: {ban_after: 100, ban_for: 1m}
  - {name: login, match: request.path == "/login", key: client.ip, limits: ["1 per 1d"]}
  - {name: tenant, key: attrs.tenant, limits: [1 per 1d]}
`

// The limits that a log suggests are put into the rules file, which keeps the rest. They refuse the crawler, and
// hardly anybody else. What a rule's limits were does not matter.
func TestReplaySuggests(t *testing.T) {
	dir := t.TempDir()
	file, path, suggested := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "access.log"), filepath.Join(dir, "suggested.yaml")
	put(t, file, suggestedFor)
	random := rand.New(rand.NewPCG(4, 4))
	start := time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)
	var log strings.Builder
	line := func(client string, at time.Time, target string) {
		fmt.Fprintf(&log, "%s - - [%s] \"GET %s HTTP/1.1\" 200 12 \"-\" \"-\"\n", client, at.Format("02/Jan/2006:15:04:05 -0700"), target)
	}
	soon := func(at time.Time) time.Time { return at.Add(time.Duration(random.IntN(20)) * time.Second) }
	for minute := range 3 * 24 * 60 {
		at := start.Add(time.Duration(minute) * time.Minute)
		for range 4 { // each of a few visits of some pages, and a login
			at := at.Add(time.Duration(random.IntN(40)) * time.Second)
			client := fmt.Sprintf("10.0.%d.%d", random.IntN(8), random.IntN(250))
			for range 2 + random.IntN(6) {
				line(client, soon(at), "/page")
			}
			line(client, soon(at), "/login")
		}
		for range 60 {
			line("203.0.113.9", soon(at), "/page") // a crawler
		}
	}
	put(t, path, log.String())
	code, out, errs := call("", "replay", "--rules", file, "--suggest", "address,login", "--untouched", "99%", "--suggested", suggested, "--json", path)
	var report replay.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || len(report.Suggestions) != 2 {
		t.Fatal(code, errs, err, len(report.Suggestions))
	}
	for _, s := range report.Suggestions {
		if len(s.Limits) == 0 || s.Untouched < 0.99 || s.Why.String() == "" || len(s.Windows) == 0 {
			t.Errorf("%+v", s)
		}
	}
	if apart := report.Suggestions[0].Apart; len(apart) != 1 || apart[0].Key != "203.0.113.9" {
		t.Errorf("set apart: %v", apart)
	}
	text, err := os.ReadFile(suggested)
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{"# limits of the shop", "# everybody", "penalty: {ban_after: 100, ban_for: 1m}", "key: attrs.tenant, limits: [1 per 1d]"} {
		if !strings.Contains(string(text), kept) {
			t.Errorf("%q is lost:\n%s", kept, text)
		}
	}
	if strings.Contains(string(text), "1000000 per 1h") {
		t.Errorf("%s", text)
	}
	code, out, errs = call("", "replay", "--rules", suggested, "--json", path)
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
		t.Fatal(code, errs, err)
	}
	for i := range report.ByRule {
		if r := report.ByRule[i]; r.RefusedKeys > r.Keys/100 || r.Name == "address" && r.MostRefused[0].Key != "203.0.113.9" {
			t.Errorf("%+v", r)
		}
	}

	several := t.TempDir() // of which no copy is one file, which is said before the log is read
	put(t, filepath.Join(several, "a.yaml"), "rules: [{name: a, key: client.ip, limits: [1 per 1m]}]")
	put(t, filepath.Join(several, "b.yaml"), "rules: [{name: b, key: client.ip, limits: [1 per 1m]}]")
	if code, out, errs := call("", "replay", "--rules", several, "--suggest", "all", "--suggested", filepath.Join(dir, "b"), path); code != 1 || out != "" || !strings.Contains(errs, "has 2 files: give --rules one of them") {
		t.Errorf("%d, %s%s", code, out, errs)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--suggest", "adress"}, `no rule "adress" is in force: did you mean address?`},
		{[]string{"--suggest", "tenant"}, "rule tenant is not replayed: it reads attrs.tenant, which the log lacks"},
		{[]string{"--suggest", "all", "--untouched", "100%"}, "want a percentage above 0 and below 100, such as 99.9%"},
		{[]string{"--suggested", suggested}, "--suggested wants --suggest RULE, or --suggest all"},
		{[]string{"--suggest", "all", "--suggested", suggested}, "file exists"},
		{[]string{"--suggest", "all", "--each"}, "--each prints no report: want it without --json, --repeats, --suggest and --html"},
	} {
		if code, _, errs := call("", append([]string{"replay", "--rules", file, path}, c.args...)...); code == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: %d, %s", c.args, code, errs)
		}
	}
}
