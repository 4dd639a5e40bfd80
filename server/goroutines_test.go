package server_test

import (
	"context"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// Close ends what Follow has started, whether its context ends before, after or not at all, and a
// Server of which only the handlers are used leaves nothing behind.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	const file = `
rules: [{name: login, key: client.ip, limits: [3 per 1h], penalty: {ban_after: 2, ban_for: 1h}}]
alerts: [{name: near, when: usage > 50% of login}, {name: blocked, when: block_rate() > 0.5}]
`
	for name, steps := range map[string]string{
		"close": "close", "twice": "close close", "handlers": "use close", "after the context": "follow use cancel close",
		"before the context": "follow use close use cancel", "never cancelled": "follow use close",
		"cancelled": "follow close cancel",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shelf := &shelf{}
				s := newServer(t, file, func(c *server.Config) {
					c.Documents, c.Settings.HashKeys = shelf, true
					c.Settings.Webhooks = []config.Webhook{{Name: "ops", Kind: config.JSON, URL: "http://127.0.0.1:1/", Timeout: time.Second}}
				})
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				for step := range strings.FieldsSeq(steps) {
					switch step {
					case "follow":
						s.Follow(ctx)
					case "use":
						for range 10 {
							checkOne(t, s, "192.0.2.1")
						}
						for _, path := range []string{"/v1/offenders", "/v1/alerts", "/v1/audit", "/v1/series", "/v1/instances", "/metrics"} {
							w := httptest.NewRecorder()
							r := httptest.NewRequest("GET", "http://localhost"+path, nil)
							r.RemoteAddr = "127.0.0.1:1"
							s.Admin().ServeHTTP(w, r)
						}
						time.Sleep(20 * time.Second)
					case "cancel":
						cancel()
					case "close":
						s.Close()
					}
				}
				time.Sleep(5 * time.Second)
				if left := bubbled(); len(left) > 1 {
					t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
				}
			})
		})
	}
}

// bubbled returns the stacks of the goroutines in the bubble of synctest of the caller.
func bubbled() (all []string) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var bubble string // of the first goroutine, which is the caller
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		first, _, _ := strings.Cut(stack, "\n")
		_, of, _ := strings.Cut(first, "synctest bubble ")
		if bubble == "" {
			bubble = of
		}
		if of == bubble && !strings.Contains(stack, "testing/synctest.testingSynctestTest") && !strings.Contains(stack, "internal/synctest.Run") {
			all = append(all, stack)
		}
	}
	return all
}
