package server_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
)

// probe is what /readyz says.
func probe(s *server.Server) string {
	w := httptest.NewRecorder()
	s.Probes().ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
	return fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()))
}

// readiness has the lines about readiness that were logged since the last call, without their times.
func readiness(l *logged) (lines []string) {
	for line := range strings.Lines(l.taken()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		if strings.Contains(line, "ready") {
			lines = append(lines, line)
		}
	}
	return lines
}

// denying rules name the first of two that need the store, as the third only watches.
const denying = `
rules:
  - {name: open, key: client.ip, limits: [9 per 1m]}
  - {name: login, key: client.ip, limits: [9 per 1m], on_store_error: deny}
  - {name: pay, key: client.ip, limits: [9 per 1m], on_store_error: deny}
  - {name: tried, key: client.ip, limits: [9 per 1m], on_store_error: deny, mode: shadow}
`

// An instance that needs its store says so from its first second, once, in the log and to probes; only
// the log has the store's error. It says when it is ready again, though no probe asks.
func TestNotReadyWithoutStore(t *testing.T) {
	for names, file := range map[string]string{
		"rules login and 1 more need": denying,
		"rule login needs":            `rules: [{name: login, key: client.ip, limits: [9 per 1m], on_store_error: deny}]`,
	} {
		synctest.Test(t, func(t *testing.T) {
			var log logged
			var away atomic.Bool
			away.Store(true)
			s := newServer(t, file, logTo(&log), over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) (f limittest.Fault) {
				if away.Load() {
					f.Err = limittest.ErrFault
				}
				return f
			}}))
			why := names + " the store (on_store_error: deny), which does not decide; `stint status` says why"
			notReady := fmt.Sprintf(`level=WARN msg="not ready" why=%q error="injected fault"`, why)
			expect := func(probed string, lines ...string) {
				t.Helper()
				if got := probe(s); got != probed {
					t.Errorf("/readyz: %s, want %s", got, probed)
				}
				if got := readiness(&log); strings.Join(got, "\n") != strings.Join(lines, "\n") {
					t.Errorf("the log:\n%q, want\n%q", got, lines)
				}
			}
			s.Follow(t.Context())
			expect("503 "+why, notReady)
			time.Sleep(time.Minute)
			expect("503 " + why)
			away.Store(false)
			time.Sleep(3 * time.Second)
			expect("200 ready", `level=WARN msg="ready again"`)
			time.Sleep(time.Minute)
			expect("200 ready")
			away.Store(true)
			time.Sleep(3 * time.Second)
			expect("503 "+why, notReady)
		})
	}
}

// An instance that needs the fleet's documents says so, and when they were read.
func TestNotReadyWithoutDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		f := newFleet(t)
		f.shelf.down = true
		_, s := f.join(generous, logTo(&log), func(c *server.Config) { c.Settings.ReadyWithoutControls = false })
		const why = "the fleet's bans, lists, switches and rules have not been read yet (ready_without_controls: false); `stint status` says why"
		if got := probe(s); got != "503 "+why {
			t.Error(got)
		}
		if got := readiness(&log); len(got) != 1 || got[0] != fmt.Sprintf(`level=WARN msg="not ready" why=%q error="controls: the shelf is down"`, why) {
			t.Errorf("%q", got)
		}
		f.shelf.set(func(f *shelf) { f.down = false })
		time.Sleep(2 * time.Second)
		if got := readiness(&log); probe(s) != "200 ready" || len(got) != 1 || got[0] != `level=WARN msg="ready again"` {
			t.Errorf("%s: %q", probe(s), got)
		}
	})
}

// A stop has one line in the log, whether or not the instance was ready.
func TestStopSaysThatItIsNotReady(t *testing.T) {
	for _, delay := range []time.Duration{0, 5 * time.Second} {
		for _, store := range []stint.Store{new(stint.Memory), failing()} {
			synctest.Test(t, func(t *testing.T) {
				var log logged
				s := newServer(t, denying, logTo(&log), over(store), func(c *server.Config) {
					c.Settings.StopDelay = delay
				})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- s.Run(ctx, server.Listeners{}) }()
				time.Sleep(10 * time.Second)
				readiness(&log)
				stop()
				time.Sleep(3 * time.Second)
				if got := probe(s); got != "503 stopping" {
					t.Errorf("/readyz: %s", got)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
				want := `level=INFO msg="stopping: no longer ready; requests in flight may end" stop_timeout=25s`
				if delay > 0 {
					want = `level=INFO msg="stopping: no longer ready, but still serving" stop_delay=5s`
				}
				if got := readiness(&log); len(got) != 1 || got[0] != want {
					t.Errorf("%q, want %q", got, want)
				}
			})
		}
	}
}
