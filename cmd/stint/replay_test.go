package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/cmd/stint/internal/replay"
	"github.com/stintdev/stint/server"
)

// replayedRules has every kind of limit, and what a combined log knows.
const replayedRules = `
server: {ambiguous: {allow: [leading_slashes]}}
tiers: {bots: 'request.headers["user-agent"].startsWith("bot")'}
blocklist: ['client.ip in cidr("203.0.113.128/25")']
safelist: ['request.path == "/healthz"']
rules:
  - {name: fixed, key: client.ip, match: request.method == "GET", limits: [4 per 10s fixed_window, 30 per 1m]}
  - {name: log, key: client.ip, match: request.path.under("/api"), limits: [4 per 10s sliding_log]}
  - {name: bucket, key: '[client.ip, request.path]', match: 'has(request.query.q)', limits: [{amount: 3, period: 10s, algorithm: token_bucket, burst: 2}]}
  - {name: login, key: client.ip, match: request.path == "/login", limits: [2 per 10s], penalty: {ban_after: 3, ban_for: 20s, growth: 2, max_ban: 5m}}
  - {name: agents, mode: shadow, key: 'request.headers["user-agent"]', limits: [20 per 10s]}
  - {name: tiered, key: client.ip, limits: [60 per 1m], tiers: {bots: {limits: [3 per 10s]}}}
  - {name: rest, default: true, key: client.ip, limits: [5 per 1m]}
`

// drawn is a random request of a client, as a log in combined form has it, and as an event of a simulation.
func drawn(random *rand.Rand, at time.Time) (line, event string) {
	client := fmt.Sprintf("203.0.113.%d", random.IntN(6))
	switch random.IntN(12) {
	case 0:
		client = "2001:db8::" + fmt.Sprint(random.IntN(3))
	case 1:
		client = "203.0.113.200"
	}
	method := []string{"get", "POST", "PUT", "GET"}[min(random.IntN(16), 3)]
	path := []string{"/", "/api/a", "/api", "/login", "/healthz", "//login", "/a/../login", "/%61pi/x", "/b?q=1", "/b?q=1&q=2", "/c?q=%2", "/x;y", "/%zz"}[random.IntN(13)]
	agent := []string{"bot/1", "curl/8", "Mozilla/5.0 (X11)"}[random.IntN(3)]
	line = fmt.Sprintf("%s - - [%s] \"%s %s HTTP/1.1\" 200 12 \"-\" %q\n", client, at.Format("02/Jan/2006:15:04:05 -0700"), method, path, agent)
	event = fmt.Sprintf("{\"t_us\":%d,\"client\":%q,\"request\":{\"method\":%q,\"path\":%q,\"headers\":{\"user-agent\":%q}}}\n", at.UnixMicro(), client, method, path, agent)
	return line, event
}

// A replay of a log decides what a simulation of the same events does.
func TestReplayIsASimulation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	put(t, file, strings.ReplaceAll(replayedRules, "ambiguous: {allow: [leading_slashes]}", "ambiguous: allow"))
	refused := map[string]int{}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		var log, events strings.Builder
		at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.FixedZone("", 3600))
		for range 400 {
			at = at.Add(time.Duration(max(random.IntN(6)-4, 0)) * time.Second)
			line, event := drawn(random, at)
			log.WriteString(line)
			events.WriteString(event)
		}
		path := filepath.Join(t.TempDir(), "access.log")
		put(t, path, log.String())
		code, out, errs := call("", "replay", "--rules", file, "--each", path)
		if code != 0 {
			t.Fatal(code, errs)
		}
		code, want, errs := call(events.String(), "simulate", "--rules", file)
		if code != 0 {
			t.Fatal(code, errs)
		}
		got := strings.Split(out, "\n")
		for i, w := range strings.Split(strings.TrimSpace(want), "\n") {
			var a, b struct{ Outcome, Rule string }
			if json.Unmarshal([]byte(got[i]), &a) != nil || json.Unmarshal([]byte(w), &b) != nil {
				t.Fatal(got[i], w)
			}
			if b.Outcome == "allowed" {
				b.Rule = "" // a replay names the rule that refuses
			}
			if a.Outcome == "safe" || a.Outcome == "unmatched" { // a simulation has the answers' words
				a.Outcome = "allowed"
			}
			if a != b {
				t.Fatalf("seed %d, line %d: %s\nreplayed %+v\nsimulated %+v", seed, i+1, strings.Split(log.String(), "\n")[i], a, b)
			}
			refused[b.Outcome+" "+b.Rule]++
		}
	}
	for _, name := range []string{"limited fixed", "limited log", "limited bucket", "limited login", "banned login", "limited tiered", "blocked ", "malformed "} {
		if refused[name] == 0 {
			t.Errorf("no request was %s: %v", name, refused)
		}
	}
}

// A replay of the gateway's own access log, under the rules that decided then, says what was decided.
func TestReplayOfOwnLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	put(t, file, `
server: {ambiguous: {allow: [leading_slashes]}, log: {access: true}}
blocklist: ['client.ip in cidr("203.0.113.128/25")']
safelist: ['request.path == "/healthz"']
rules:
  - {name: fixed, key: client.ip, match: request.method == "GET", limits: [9 per 10s fixed_window, 30 per 1m]}
  - {name: log, key: client.ip, match: request.path.under("/api"), limits: [4 per 10s sliding_log]}
  - {name: login, key: client.ip, match: request.path == "/login", limits: [2 per 10s], penalty: {ban_after: 3, ban_for: 20s, growth: 2, max_ban: 5m}}
  - {name: shadow, mode: shadow, key: request.path, limits: [9 per 10s]}
  - {name: rest, default: true, key: client.ip, limits: [5 per 1m]}
`)
	settings, set, err := readConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			s := server.New(server.Config{
				Settings: settings, Rules: set, Limiter: stint.NewLimiter(new(stint.Memory)),
				AccessLog: slog.New(slog.NewJSONHandler(&log, nil)), Log: slog.New(slog.DiscardHandler),
			})
			defer s.Close()
			gateway := s.Gateway()
			random := rand.New(rand.NewPCG(seed, 9))
			for range 300 {
				time.Sleep(time.Duration(random.IntN(4_000_000)) * time.Microsecond)
				r := httptest.NewRequest("GET", "/", nil)
				r.Method = []string{"GET", "POST"}[random.IntN(2)]
				r.URL.Path = []string{"/", "/api/a", "/login", "/healthz", "//login", "/x;y", "/c/"}[random.IntN(7)]
				r.RequestURI = r.URL.Path
				r.RemoteAddr = fmt.Sprintf("203.0.113.%d:1", random.IntN(4)*50)
				r.Header.Set("User-Agent", "curl/8")
				gateway.ServeHTTP(httptest.NewRecorder(), r)
			}
			asked = append(asked, log.String())
		})
	}
	n := map[string]int{}
	for seed, log := range asked {
		path := filepath.Join(t.TempDir(), "access.log")
		put(t, path, log)
		code, out, errs := call("", "replay", "--rules", file, "--each", path)
		if code != 0 {
			t.Fatal(code, errs)
		}
		lines := strings.Split(strings.TrimSpace(log), "\n")
		got := strings.Split(strings.TrimSpace(out), "\n")
		if len(got) != len(lines) || len(lines) != 300 {
			t.Fatalf("%d of %d lines are replayed", len(got), len(lines))
		}
		for i, line := range lines {
			var then, now struct{ Outcome, Rule string }
			if json.Unmarshal([]byte(line), &then) != nil || json.Unmarshal([]byte(got[i]), &now) != nil {
				t.Fatal(line, got[i])
			}
			if then.Outcome == "allowed" {
				then.Rule = ""
			}
			if then != now {
				t.Errorf("seed %d: %s\nreplayed: %s", seed, line, got[i])
			}
			n[now.Outcome]++
		}
	}
	for _, outcome := range []string{"allowed", "limited", "banned", "safe", "blocked", "malformed"} {
		if n[outcome] == 0 {
			t.Errorf("no request was %s: %v", outcome, n)
		}
	}
}

// The report counts what each request became.
func TestReplayCounts(t *testing.T) {
	dir := t.TempDir()
	file, old := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "old.yaml")
	put(t, file, replayedRules)
	put(t, old, "rules: [{name: one, key: client.ip, limits: [3 per 10s]}]")
	random := rand.New(rand.NewPCG(1, 2))
	var log strings.Builder
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for range 5000 {
		at = at.Add(time.Duration(max(random.IntN(6)-4, 0)) * time.Second)
		line, _ := drawn(random, at)
		log.WriteString(line)
	}
	path := filepath.Join(dir, "access.log")
	put(t, path, log.String())
	_, each, _ := call("", "replay", "--rules", file, "--against", old, "--each", path)
	want, oldWant := map[string]int64{}, map[string]int64{}
	clients, refusedClients := map[string]bool{}, map[string]bool{}
	var newlyRefused, newlyPassed, passedByOldRules int64
	for line := range strings.Lines(each) {
		var e replay.Each
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		want[e.Outcome]++
		oldWant[e.Against.Outcome]++
		refused := e.Rule != "" || e.Outcome == "blocked"
		if e.Outcome != "malformed" {
			clients[e.Client] = true
			if refused {
				refusedClients[e.Client] = true
			}
		}
		refused = refused || e.Outcome == "malformed"
		switch was := e.Against.Rule != "" || e.Against.Outcome == "malformed"; {
		case refused && !was:
			newlyRefused++
		case was && !refused:
			newlyPassed++
			if e.Against.Rule != "" {
				passedByOldRules++
			}
		}
	}
	code, out, errs := call("", "replay", "--rules", file, "--against", old, "--json", path)
	var got replay.Report
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatal(code, errs, err)
	}
	if !maps.Equal(got.Rules.Outcomes, want) || !maps.Equal(got.Against.Outcomes, oldWant) {
		t.Errorf("got %v and %v, want %v and %v", got.Rules.Outcomes, got.Against.Outcomes, want, oldWant)
	}
	if got.NewlyRefused != newlyRefused || got.NewlyPassed != newlyPassed || newlyRefused == 0 || newlyPassed == 0 {
		t.Errorf("newly refused %d, want %d; newly passed %d, want %d", got.NewlyRefused, newlyRefused, got.NewlyPassed, newlyPassed)
	}
	if got.Rules.Clients != int64(len(clients)) || got.Rules.RefusedClients != int64(len(refusedClients)) {
		t.Errorf("%d of %d clients, want %d of %d", got.Rules.RefusedClients, got.Rules.Clients, len(refusedClients), len(clients))
	}
	if len(got.AgainstByRule) != 1 || got.AgainstByRule[0].NewlyPassed != passedByOldRules || got.AgainstByRule[0].Refused != got.Against.Refused || passedByOldRules == 0 {
		t.Errorf("%+v, want %d newly passed", got.AgainstByRule, passedByOldRules)
	}
	var refused, byHour int64
	for _, r := range got.ByRule {
		refused, byHour = r.Refused, 0
		for _, h := range r.Hours {
			byHour += h.Refused
		}
		var byKey int64
		for _, k := range r.MostRefused {
			byKey += k.Refused
		}
		if byHour != refused || byKey > refused || byKey < refused && r.RefusedKeys <= 10 || r.RefusedKeys > r.Keys || refused > r.Requests {
			t.Errorf("%+v", r)
		}
	}
}

// What a log gives in other forms is the same.
func TestReplayForms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	put(t, file, "rules: [{name: one, key: 'attrs.tenant', limits: [{amount: 3, period: 1m}]}]")
	log := filepath.Join(t.TempDir(), "app.jsonl")
	put(t, log, strings.Repeat(`{"ts":1770000000,"uri":"/","remote":{"ip":"192.0.2.1"},"tenant":"acme","n":2}`+"\n", 3))
	code, out, errs := call("", "replay", "--rules", file, "--fields", "time=$.ts,ip=$.remote.ip,path=$.uri,attrs.tenant=$.tenant,cost=$.n", "--each", log)
	if code != 0 || strings.Count(out, `"allowed"`) != 1 || strings.Count(out, `"limited","rule":"one"`) != 2 {
		t.Errorf("%d %s%s", code, out, errs)
	}
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	code, piped, errs := call(string(data), "replay", "--rules", file, "--fields", "time=$.ts,ip=$.remote.ip,path=$.uri,attrs.tenant=$.tenant,cost=$.n", "--each", "-")
	if code != 0 || piped != strings.ReplaceAll(out, log, "-") {
		t.Errorf("%d %s%s", code, piped, errs)
	}
}

// interrupted is a log on a pipe, and the context of a person who stops after a part of it.
func interrupted(t *testing.T) (context.Context, io.Reader) {
	ctx, stop := context.WithCancel(t.Context())
	in, lines := io.Pipe()
	go func() {
		for range 50_000 {
			if _, err := io.WriteString(lines, `192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`+"\n"); err != nil {
				return
			}
		}
		stop() // the log goes on, and the person does not
	}()
	t.Cleanup(func() { in.Close() })
	return ctx, in
}

// Ctrl-C prints what is known by then.
func TestReplayInterrupted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	put(t, file, "rules: [{name: one, key: client.ip, limits: [1 per 1h]}]")
	ctx, in := interrupted(t)
	var out, errs bytes.Buffer
	code := run(ctx, []string{"replay", "--rules", file, "-"}, in, &out, &errs)
	if code != 0 || !strings.Contains(out.String(), "Interrupted: this is what was read until then.") || !strings.Contains(out.String(), "one: 1 per 1h") {
		t.Errorf("%d %s%s", code, &out, &errs)
	}
}

// If the refused repeat, later requests meet them.
func TestReplayRepeats(t *testing.T) {
	dir := t.TempDir()
	file, path := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "access.log")
	for _, c := range []struct {
		limit   string
		seconds []int
		refused int64 // as they came
		want    replay.Repeats
	}{
		{"1 per 10s sliding_log", []int{0, 20, 40}, 0, replay.Repeats{}},
		// That of 1 s passes at 10, that of 2 s at 20, and that of 15 s, which passes as they came, at 30.
		{"1 per 10s sliding_log", []int{0, 1, 2, 15}, 2, replay.Repeats{Refused: 3, Sent: 5}},
		// Of nine at once, one passes at once and one after each repetition but the last: five.
		{"1 per 10s sliding_log", []int{0, 0, 0, 0, 0, 0, 0, 0, 0}, 8, replay.Repeats{Refused: 8, Lost: 3, Sent: 8 + 7 + 6 + 5 + 4}},
	} {
		put(t, file, "rules: [{name: one, key: client.ip, limits: ["+c.limit+"]}]")
		var log strings.Builder
		for _, s := range c.seconds {
			fmt.Fprintf(&log, "192.0.2.1 - - [20/Nov/2026:10:00:%02d +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n", s)
		}
		put(t, path, log.String())
		code, out, errs := call("", "replay", "--rules", file, "--repeats", "--json", path)
		var got replay.Report
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
			t.Fatal(code, errs, err)
		}
		if got.Rules.Refused != c.refused || *got.Repeats != c.want {
			t.Errorf("%v: %d refused as they came, want %d; if repeated %+v, want %+v", c.seconds, got.Rules.Refused, c.refused, *got.Repeats, c.want)
		}
	}
}

// A file that breaks off is reported on as far as it goes, and then is an error.
func TestReplayOfBrokenFile(t *testing.T) {
	dir := t.TempDir()
	file, path := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "access.log.gz")
	put(t, file, "rules: [{name: one, key: client.ip, limits: [1 per 1h]}]")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	random := rand.New(rand.NewPCG(1, 1))
	for range 50_000 {
		fmt.Fprintf(w, "192.0.2.%d - - [20/Nov/2026:10:00:00 +0000] \"GET /%x HTTP/1.1\" 200 1 \"-\" \"-\"\n", random.IntN(250), random.Uint64())
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, path, packed.String()[:packed.Len()-1000])
	code, out, errs := call("", "replay", "--rules", file, path)
	if code != 1 || errs != "stint: "+path+": unexpected EOF\n" || !strings.Contains(out, "Interrupted: this is what was read until then.") || !strings.Contains(out, "one: 1 per 1h, by client.ip") {
		t.Errorf("%d %s%s", code, errs, out)
	}
}
