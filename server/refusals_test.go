package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// lines are those of a log in JSON with this message, without their time.
func lines(t *testing.T, log, msg string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if l["msg"] == msg {
			delete(l, "time")
			delete(l, "msg")
			all = append(all, l)
		}
	}
	return all
}

func logJSON(l *logged) func(*server.Config) {
	return func(c *server.Config) { c.Log = slog.New(slog.NewJSONHandler(l, nil)) }
}

func setLog(change func(*config.Log)) func(*server.Config) {
	return func(c *server.Config) { change(&c.Settings.Log) }
}

const loggedRules = `
trusted_proxies: [192.0.2.1]
blocklist: ['request.path == "/blocked"']
rules:
- {name: login, match: 'request.path == "/login"', key: client.ip, cost: 2, limits: [5 per 1h fixed_window], penalty: {warn_after: 2, ban_after: 3, ban_for: 30m}}
- {name: pair, match: 'request.path == "/pair"', key: '[client.ip, request.method]', limits: [1 per 1h fixed_window]}
- {name: watched, match: 'request.path == "/watched/404"', key: client.ip, penalty: {on_status: [404], warn_after: 2, ban_after: 3, ban_for: 1h}}
`

// A line has all that is known of a refusal, and joins the answer by its ID.
func TestRefusalLines(t *testing.T) {
	var log logged
	s := newServer(t, loggedRules, everythingTo(upstream(t, asTold)), logJSON(&log))
	g := s.Gateway()
	get := func(path string) string {
		r := httptest.NewRequest("GET", path+"?secret=1", nil)
		r.Header.Set("X-Request-Id", "req-7")
		w := httptest.NewRecorder()
		g.ServeHTTP(final{w}, r)
		return w.Header().Get("Stint-Decision")
	}
	common := map[string]any{"client": "192.0.2.1", "method": "GET", "host": "example.com", "request_id": "req-7"}
	want := func(path, id, level string, more map[string]any) {
		t.Helper()
		got := lines(t, log.taken(), "refused")
		if len(got) != 1 {
			t.Fatalf("%s: %d lines", path, len(got))
		}
		if d, ok := got[0]["retry_after"]; ok && d != "30m0s" && !regexp.MustCompile(`^\d+(m|\.\d+s|h|s)`).MatchString(fmt.Sprint(d)) {
			t.Errorf("%s: retry_after %v", path, d)
		}
		delete(got[0], "retry_after")
		delete(got[0], "ban_left")
		line := map[string]any{"level": level, "decision": id, "path": path}
		for _, m := range []map[string]any{common, more} {
			for k, v := range m {
				line[k] = v
			}
		}
		if g, w := fmt.Sprint(got[0]), fmt.Sprint(line); g != w {
			t.Errorf("\n got %s\nwant %s", g, w)
		}
	}
	get("/login")
	get("/login")
	if text := log.taken(); strings.Contains(text, "refused") {
		t.Errorf("what is allowed has a line: %s", text)
	}
	of := func(outcome string, more map[string]any) map[string]any {
		m := map[string]any{"outcome": outcome, "rule": "login", "key": "192.0.2.1"}
		for k, v := range more {
			m[k] = v
		}
		return m
	}
	numbers := func(violations int) map[string]any {
		return map[string]any{"cost": 2, "limit": "5 per 1h fixed_window", "remaining": 1, "violations": violations}
	}
	want("/login", get("/login"), "INFO", of("limited", numbers(1)))
	want("/login", get("/login"), "WARN", of("warned", numbers(2)))
	want("/login", get("/login"), "WARN", of("banned", numbers(3)))
	want("/login", get("/login"), "WARN", of("banned", nil)) // it runs
	want("/blocked", get("/blocked"), "INFO", map[string]any{"outcome": "blocked", "entry": `blocklist entry 1: request.path == "/blocked"`})
	get("/pair")
	want("/pair", get("/pair"), "INFO", map[string]any{"outcome": "limited", "rule": "pair", "key": "192.0.2.1, GET", "cost": 1, "limit": "1 per 1h fixed_window", "remaining": 0})

	get("/watched/404")
	get("/watched/404")
	got := lines(t, log.taken(), "violation by a response")
	if len(got) != 2 || fmt.Sprint(got[1]) != "map[key:192.0.2.1 level:WARN outcome:warned rule:watched status:404 violations:2]" {
		t.Errorf("%v", got)
	}
}

// Each rule has so many lines a second, and one that counts the rest, whichever are refused.
// None is forgotten.
func TestRefusalLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		s := newServer(t, loggedRules, logJSON(&log), setLog(func(l *config.Log) { l.Refusals = 3 }))
		decide := func(path string) { // and a client of their own, but for the rule login
			in := from("192.0.2.7")
			in.Request = &rules.Request{Method: "GET", Path: path, Host: "x"}
			_, _ = s.Decide(t.Context(), in, time.Time{})
		}
		const seconds, each = 4, 50
		for range seconds {
			for range each {
				decide("/login")
				decide("/blocked")
			}
			time.Sleep(time.Second)
		}
		time.Sleep(2 * time.Second)
		text := log.taken()
		refused, more := lines(t, text, "refused"), lines(t, text, "more refusals")
		if n := len(refused); n != seconds*3*2 {
			t.Errorf("%d lines for %d seconds", n, seconds)
		}
		if len(more) > 2*(seconds+1) {
			t.Errorf("%d lines of counts", len(more))
		}
		counts := map[string]int{}
		for _, l := range refused {
			counts[fmt.Sprint(l["outcome"])]++
		}
		for _, l := range more {
			for _, outcome := range []string{"limited", "warned", "banned", "blocked"} {
				if n, ok := l[outcome].(float64); ok {
					counts[outcome] += int(n)
				}
			}
		}
		if got := fmt.Sprint(counts); got != fmt.Sprintf("map[banned:%d blocked:%d limited:1 warned:1]", seconds*each-4, seconds*each) {
			t.Error(got)
		}
		for range 5 {
			decide("/blocked")
		}
		log.taken()
		s.Close() // counts what is left
		if got := lines(t, log.taken(), "more refusals"); len(got) != 1 || got[0]["blocked"] != 2.0 {
			t.Errorf("at the end: %v", got)
		}
	})
}

// All rules together have 20 times as many lines as one.
func TestRefusalLinesOfAllRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := "rules:\n"
		for i := range 200 {
			file += fmt.Sprintf("- {name: r%d, match: 'operation == \"%d\"', limits: [1 per 1h]}\n", i, i)
		}
		var log logged
		s := newServer(t, file, logJSON(&log), setLog(func(l *config.Log) { l.Refusals = 2 }))
		for i := range 200 {
			for range 4 {
				_, _ = s.Decide(t.Context(), &rules.Input{Operation: fmt.Sprint(i), Cost: 1}, time.Time{})
			}
		}
		time.Sleep(2 * time.Second)
		text := log.taken()
		if n := len(lines(t, text, "refused")); n != 40 {
			t.Errorf("%d lines", n)
		}
		if n := len(lines(t, text, "more refusals")); n != 200 {
			t.Errorf("%d lines of counts", n)
		}
	})
}

// Without the store, each rule says so now and then, and its refusals have a line as always.
func TestDegradedLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		s := newServer(t, "rules: [{name: one, key: client.ip, limits: [4 per 1h]}, {name: two, key: client.ip, limits: [100 per 1h]}]",
			over(failing()), logJSON(&log))
		for range 100 {
			_, _ = s.Decide(t.Context(), from("192.0.2.1"), time.Time{})
			time.Sleep(200 * time.Millisecond)
		}
		text := log.taken()
		if got := lines(t, text, "decided without the store"); len(got) != 2 && len(got) != 3 || got[0]["rule"] != "one" || got[0]["by"] != "local" || got[0]["outcome"] != "allowed" {
			t.Errorf("%v", got)
		}
		if got := lines(t, text, "refused"); len(got) == 0 || got[0]["by"] != "local" {
			t.Errorf("%v", got)
		}
	})
}

// With refusals: 0, no refusal is logged, and with level: warn, none that only says no.
func TestRefusalsOff(t *testing.T) {
	var log logged
	off := newServer(t, loggedRules, logJSON(&log), setLog(func(l *config.Log) { l.Refusals = 0 }))
	warn := newServer(t, loggedRules, func(c *server.Config) {
		c.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	for _, s := range []*server.Server{off, warn} {
		for range 5 {
			in := from("192.0.2.1")
			in.Request = &rules.Request{Method: "GET", Path: "/login", Host: "x"}
			_, _ = s.Decide(t.Context(), in, time.Time{})
			in.Request = &rules.Request{Method: "GET", Path: "/blocked", Host: "x"}
			_, _ = s.Decide(t.Context(), in, time.Time{})
		}
		got := lines(t, log.taken(), "refused")
		if s == off && len(got) != 0 || s == warn && (len(got) != 2 || got[0]["outcome"] != "warned" || got[1]["outcome"] != "banned") {
			t.Errorf("%v", got)
		}
	}
}

// A simulation writes no lines.
func TestSimulationIsNotLogged(t *testing.T) {
	var log logged
	s := newServer(t, loggedRules, logJSON(&log))
	for range 5 {
		in := from("192.0.2.1")
		in.Request = &rules.Request{Method: "GET", Path: "/login", Host: "x"}
		_, _ = s.Decide(t.Context(), in, time.Unix(1_700_000_000, 0))
	}
	if text := log.taken(); strings.Contains(text, "refused") {
		t.Error(text)
	}
}

// hostile are texts that end a line, forge one, move a cursor, turn text around or are long.
var hostile = []string{
	"a\nlevel=ERROR msg=forged", "a\r\nb", "a\x1b[2J", "a\u202eb", "a\u2028b", "\x00", "\xff\xfe", `" outcome=allowed x="`, "a\u0085b",
	`{"msg":"forged"}`, strings.Repeat("k", 4000), "\u200b", "\x7f",
}

// Whatever clients send, a line stays a line, short, without characters that are not
// printed, in text, in JSON and for a handler that writes what it gets.
func TestAttackLogInjection(t *testing.T) {
	var text, js, raw logged
	for _, log := range []struct {
		to      *logged
		handler slog.Handler
	}{
		{&text, slog.NewTextHandler(&text, nil)}, {&js, slog.NewJSONHandler(&js, nil)},
		{&raw, slog.NewTextHandler(&raw, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindString {
				a.Value = slog.StringValue(strings.ReplaceAll(a.Value.String(), `"`, "'"))
			}
			return a
		}})},
	} {
		s := newServer(t, `rules: [{name: all, key: operation, limits: [1 per 1h]}]`, func(c *server.Config) { c.Log, c.Settings.Log.Refusals = slog.New(log.handler), 1000 })
		for _, bad := range hostile {
			for range 2 {
				in := &rules.Input{Operation: bad, Cost: 1, Request: &rules.Request{Method: bad, Path: bad, Host: bad, Header: http.Header{"X-Request-Id": {bad}}}}
				_, _ = s.Decide(t.Context(), in, time.Time{})
			}
		}
		out := log.to.taken()
		n := 0
		for line := range strings.Lines(out) {
			if strings.Contains(line, "refused") {
				n++
			}
			if len(line) > 6*300+500 {
				t.Errorf("a line of %d bytes", len(line))
			}
			if i := strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool {
				return r < ' ' || r == 0x7f || r == '\u202e' || r == '\u2028' || r == '\u0085' || r == '\u200b' || r == 0xfffd
			}); i >= 0 {
				t.Errorf("%q", line)
			}
		}
		if n < len(hostile)-3 { // some are no keys
			t.Errorf("%d lines of %d", n, len(hostile))
		}
	}
}

// With privacy: hash, no line has a key or the address of a client, only their hashes.
func TestPrivacyOfLines(t *testing.T) {
	var log logged
	s := newServer(t, loggedRules, everythingTo(upstream(t, asTold)), logJSON(&log), withTLS(nil, nil, newAuthority(t).sign(t, "server").write(t, nil)),
		func(c *server.Config) { c.Settings.HashKeys, c.Settings.Log.Access = true, true })
	g := start(t, s)
	log.taken() // has the addresses of listeners
	for _, path := range []string{"/login", "/login", "/login", "/blocked", "/pair", "/pair", "/watched/404", "/watched/404"} {
		send(t, g.gateway, "GET", path)
	}
	send(t, g.gateway, "GET", "/", "X-Forwarded-For: 192.0.2.7")
	send(t, g.admin, "GET", "/") // without TLS, of which net/http logs a line
	for _, call := range [][2]string{
		{"/v1/bans", `{"rule":"login","key":"127.0.0.1","reason":"r"}`},
		{"/v1/bans", `{"rule":"pair","key":["127.0.0.1","]\\\"x"],"reason":"\"key\":\"of it\""}`},
		{"/v1/keys/reset", `{"rule":"login","key":"127.0.0.1","reason":"r"}`},
	} {
		r := httptest.NewRequest("POST", "http://localhost"+call[0], strings.NewReader(call[1]))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Admin().ServeHTTP(w, r)
		if w.Code/100 != 2 {
			t.Fatalf("%s: %d %s", call[0], w.Code, w.Body)
		}
	}
	var out string
	await.So(func() bool { // net/http writes its line afterwards
		out += log.taken()
		return strings.Contains(out, "TLS handshake error")
	})
	for _, wanted := range []string{`"msg":"refused"`, `"msg":"request"`, `"msg":"violation by a response"`, `"msg":"audit"`, "TLS handshake error from h:", "of it"} {
		if !strings.Contains(out, wanted) {
			t.Errorf("the log does not have %s:\n%s", wanted, out)
		}
	}
	for line := range strings.Lines(out) {
		line = regexp.MustCompile(`"(upstream|host)":"[^"]*"`).ReplaceAllString(line, "") // of this machine
		if strings.Contains(line, "127.0.0.1") || strings.Contains(line, `]\\`) {
			t.Errorf("%s", line)
		}
	}
	if n := len(regexp.MustCompile(`h:[0-9a-f]{16}`).FindAllString(out, -1)); n < 15 {
		t.Errorf("%d hashes in\n%s", n, out)
	}
}

func benchmarkDecide(b *testing.B, log *slog.Logger, path string, change func(*config.Log)) {
	s := newServer(b, loggedRules, func(c *server.Config) { c.Log = log }, setLog(change))
	in := from("192.0.2.7")
	in.Request = &rules.Request{Method: "GET", Path: path, Host: "x"}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = s.Decide(b.Context(), in, time.Time{})
	}
}

// What lines cost: of requests that are allowed and refused, without the log, with a log that
// nobody reads, and with refusals off.
func BenchmarkRefusalLines(b *testing.B) {
	for _, path := range []string{"/free", "/blocked", "/login"} {
		for _, c := range []struct {
			name string
			most int64
		}{{"off", 0}, {"on", 5}} {
			b.Run(path[1:]+"/"+c.name, func(b *testing.B) {
				benchmarkDecide(b, slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)), path, func(l *config.Log) { l.Refusals = c.most })
			})
		}
	}
}
