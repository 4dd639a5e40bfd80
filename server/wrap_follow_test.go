package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
)

// Load and Wrap are enough that a program obeys what is changed at run time at another instance.
func TestLoadFollows(t *testing.T) {
	redis := redistest.Start(t)
	rule := "rules: [{name: all, key: client.ip, limits: [1000000 per 1h], penalty: {ban_after: 9, ban_for: 1h}}]\n"
	load := func(t *testing.T, namespace string, noFollow bool) *server.Server {
		path := filepath.Join(t.TempDir(), "stint.yaml")
		put(t, path, []byte("server: {store: '"+redis.URL()+"', namespace: "+namespace+", rules: fleet}\n"+rule))
		s, err := server.Load(path, server.Config{Log: slog.New(slog.DiscardHandler), NoFollow: noFollow})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	// The address that through calls from is banned, given no units, or limited by other rules.
	for i, change := range []struct {
		method, path, body string
		done               int
		is                 string // the status and the limit that are in force then
	}{
		{"POST", "/v1/bans", `{"rule":"all","key":"192.0.2.1"}`, 201, "429 "},
		{"POST", "/v1/overrides", `{"rule":"all","key":"192.0.2.1","times":2}`, 201, "200 2000000"},
		{"PATCH", "/v1/switches", `{"rules":{"all":"off"}}`, 200, "200 "},
		{"PATCH", "/v1/switches", `{"enabled":false}`, 200, "200 "},
		{"PUT", "/v1/rules", push(strings.ReplaceAll(rule, "1000000", "77"), 0), 200, "200 77"},
	} {
		namespace := fmt.Sprint("change", i)
		asked := operator{t, load(t, namespace, false).Admin()}
		answers := func(noFollow bool) func() string {
			h := load(t, namespace, noFollow).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			return func() string {
				w := through(h, "GET", "/")
				return fmt.Sprint(w.Code, " ", w.Header().Get("X-RateLimit-Limit"))
			}
		}
		other, deaf := answers(false), answers(true)
		if got := other(); got != "200 1000000" {
			t.Fatalf("before %s: %s", change.body, got)
		}
		asked.want(change.done, change.method, change.path, change.body)
		if !await.So(func() bool { return other() == change.is }) {
			t.Errorf("after %s %s: %q, want %q", change.path, change.body, other(), change.is)
		}
		if got := answers(false)(); got != change.is {
			t.Errorf("after %s, the first request to one that starts: %q, want %q", change.path, got, change.is)
		}
		if got := deaf(); got != "200 1000000" {
			t.Errorf("NoFollow, after %s: %q", change.path, got)
		}
	}
}

// What Load starts ends with Close, whether the program calls Follow as well or in its place.
func TestLoadLeavesNoGoroutine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stint.yaml")
	put(t, path, []byte("server: {privacy: hash}\nrules: [{name: all, key: client.ip, limits: [1 per 1h]}]\nalerts: [{name: near, when: usage > 50% of all}]\n"))
	for _, noFollow := range []bool{false, true} {
		for name, steps := range map[string]string{
			"load": "close", "twice": "close close", "follow": "follow close", "ended": "follow cancel close",
			"followed twice": "follow follow cancel close", "too late": "close follow", "ended at last": "follow close cancel",
		} {
			t.Run(fmt.Sprint(name, noFollow), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					s, err := server.Load(path, server.Config{Log: slog.New(slog.DiscardHandler), NoFollow: noFollow})
					if err != nil {
						t.Fatal(err)
					}
					for step := range strings.FieldsSeq(steps) {
						switch step {
						case "follow":
							s.Follow(ctx)
						case "cancel":
							cancel()
						case "close":
							s.Close()
						}
						time.Sleep(10 * time.Second)
					}
					if left := bubbled(); len(left) > 1 {
						t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
					}
				})
			})
		}
	}
}

// A Load that fails leaves nothing behind, nor does one over a store that is closed.
func TestLoadThatFails(t *testing.T) {
	redis := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "stint.yaml")
	of := func() (n int) {
		stacks := make([]byte, 4<<20)
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "stint/server.(*Server)") || strings.Contains(stack, "stint/redislimit") || strings.Contains(stack, "server/internal/") {
				n++
			}
		}
		return n
	}
	before := of()
	for _, settings := range []string{"", ", secrets: {pepper: {file: /none}}", ", rules: fleet, per_second_store: 'redis://x/none'"} {
		put(t, path, []byte("server: {store: '"+redis.URL()+"'"+settings+"}\n"))
		s, err := server.Load(path, server.Config{Log: slog.New(slog.DiscardHandler)})
		if (err != nil) != (settings != "") {
			t.Fatal(settings, err)
		}
		if s != nil {
			s.Close()
		}
		await.Until(t, "no goroutine is left of "+settings, func() bool { return of() <= before })
	}
}
