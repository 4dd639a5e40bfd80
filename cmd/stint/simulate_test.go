package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
)

// A simulation waits for a Redis that takes longer than a decision may: its results depend on the
// events alone.
func TestSimulateInSlowRedis(t *testing.T) {
	t.Parallel()
	slow := redistest.StartProxy(t, redistest.Start(t).Addr)
	slow.Set(redistest.Toxic{Latency: 60 * time.Millisecond})
	rules := configured(t, `
rules:
  - {name: a, key: client.ip, limits: [5 per 1m], decision_timeout: 5ms}
  - {name: b, key: client.ip, limits: [2 per 1m], mode: shadow}
`)
	const events = `{"t_us":1770000000000000,"client":"192.0.2.1"}` + "\n"
	code, want, errs := call(strings.Repeat(events, 6), "simulate", "--rules", rules)
	if code != 0 || strings.Count(want, "\n") != 6 {
		t.Fatal(code, want, errs)
	}
	if code, got, errs := call(strings.Repeat(events, 6), "simulate", "--rules", rules, "--store", slow.URL()); code != 0 || got != want {
		t.Errorf("exit %d: %s\nRedis says\n%s\nmemory says\n%s", code, errs, got, want)
	}
}

// A simulation in Redis says the same as one in memory, beside what else is there,
// and removes its keys however it ends.
func TestSimulateInRedis(t *testing.T) {
	redis := redistest.Start(t)
	redis.Do(t, "SET", "stint:{1:a}t1m:other", "someone else's")
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(rules, []byte(`
rules:
  - {name: a, key: client.ip, limits: [5 per 1m sliding_log, 100 per 1h], penalty: {ban_after: 9, ban_for: 1m}}
  - {name: b, key: '[client.ip, "b"]', limits: [8 per 1m], mode: shadow}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var events strings.Builder
	for i := range 500 {
		fmt.Fprintf(&events, `{"t_us":%d,"client":"192.0.2.%d"}`+"\n", 1770000000000000+int64(i)*100_000, i%3)
	}
	for name, c := range map[string]struct {
		events string
		code   int
		errs   string
	}{
		"to the end":    {events.String(), 0, ""},
		"to a bad line": {events.String() + "{\n", 1, "stint: line 501: bad request: the JSON cannot be read: unexpected end of JSON input\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, want, errs := call(c.events, "simulate", "--rules", rules)
			if code != c.code || errs != c.errs || strings.Count(want, "\n") != 500 {
				t.Errorf("memory: exit %d, %d lines: %s", code, strings.Count(want, "\n"), errs)
			}
			code, got, errs := call(c.events, "simulate", "--rules", rules, "--store", redis.URL())
			if code != c.code || errs != c.errs {
				t.Errorf("Redis: exit %d: %s", code, errs)
			}
			if got != want {
				t.Errorf("Redis says\n%.2000s\nmemory says\n%.2000s", got, want)
			}
			m := redis.Do(t, "KEYS", "*")
			if keys, err := m.AsStrSlice(); err != nil || len(keys) != 1 || keys[0] != "stint:{1:a}t1m:other" {
				t.Errorf("left %q, %v", keys, err)
			}
		})
	}
}

func TestSimulateUnreachable(t *testing.T) {
	code, out, errs := call("", "simulate", "--rules", "testdata/files/good.yaml", "--store", "redis://user:geheim@127.0.0.1:1")
	if code != 1 || out != "" || !strings.HasPrefix(errs, "stint: store: ") || !strings.Contains(errs, "connection refused") || strings.Contains(errs, "geheim") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

// Recorded paths that a server would refuse as ambiguous count by their normal form.
func TestSimulateAmbiguous(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "rules.yaml")
	put(t, file, "rules: [{name: login, match: request.path == '/login', key: client.ip, limits: [1 per 1h]}]")
	code, out, errs := call(strings.Repeat(`{"t_us":0,"client":"192.0.2.1","request":{"method":"GET","path":"//x/../login"}}`+"\n", 2), "simulate", "--rules", file)
	if code != 0 || !strings.Contains(out, `{"outcome":"allowed"`) || !strings.Contains(out, `{"outcome":"limited"`) {
		t.Errorf("%d, %s, %s", code, out, errs)
	}
}
