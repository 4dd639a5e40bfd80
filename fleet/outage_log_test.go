package fleet_test

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/limittest"
)

// logged is where slog.Default writes until the test ends.
type logged struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func logDefault(t *testing.T) *logged {
	l := new(logged)
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	t.Cleanup(func() { slog.SetDefault(was) })
	return l
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(b)
}

// take is the lines since the last time.
func (l *logged) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimSpace(l.lines.String())
	l.lines.Reset()
	lines := strings.Split(text, "\n")
	slices.Sort(lines) // each is written by a goroutine of its own
	return lines
}

// Who has set no hooks reads in the log that the store fails, that it is no longer asked
// and that it decides again: each once, and not again and again. It runs in a process of its
// own, since what other tests leave behind may log as well.
func TestOutageIsLogged(t *testing.T) {
	const alone = "STINT_OUTAGE_LOG_ALONE"
	if os.Getenv(alone) == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestOutageIsLogged$", "-test.v")
		c.Env = append(os.Environ(), alone+"=1")
		if out, err := c.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestOutageIsLogged")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	log := logDefault(t)
	synctest.Test(t, func(t *testing.T) {
		c := new(cluster)
		f := &fleet.Fallback{Store: c}
		defer f.Close()
		l := stint.NewLimiter(f)
		spend := func(keys ...string) {
			for range 8 {
				for _, key := range keys {
					if _, err := l.Allow(t.Context(), key, stint.MustLimit("1000 per 1h")); err != nil {
						t.Fatal(err)
					}
				}
			}
			time.Sleep(3 * time.Second)
		}
		const (
			fails  = `level=WARN msg="stint: the store does not decide; OnError decides instead" error="context deadline exceeded" key=a`
			partly = `level=ERROR msg="stint: circuit breaker open: a server of the store is not asked until it answers again; OnError decides about its keys" error="a: context deadline exceeded"`
			open   = `level=ERROR msg="stint: circuit breaker open: the store is not asked until it answers again; OnError decides instead" error="limittest: call 5: context deadline exceeded"`
			again  = `level=INFO msg="stint: the store decides again"`
		)
		want := func(what string, lines ...string) {
			t.Helper()
			synctest.Wait()
			if have := log.take(); !slices.Equal(have, lines) {
				t.Errorf("%s: logged\n%s\nwant\n%s", what, strings.Join(have, "\n"), strings.Join(lines, "\n"))
			}
		}
		c.set("a")
		spend("a", "b")
		want("one server hangs", partly, fails)
		c.set()
		spend("a", "b")
		want("it answers again", again)
		spend("a", "b", "c")
		want("nothing happens", "")
		time.Sleep(time.Minute)
		c.set("a", "b", "c")
		spend("a", "b", "c")
		want("all hang", partly, fails)
		c.set()
		time.Sleep(time.Minute)
		want("they answer again", again)
		var hangs atomic.Bool
		f = &fleet.Fallback{Store: &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Hang: hangs.Load()} }}}
		defer f.Close()
		l = stint.NewLimiter(f)
		hangs.Store(true)
		spend("a")
		want("the only one hangs", open, strings.Replace(fails, `"context`, `"limittest: call 1: context`, 1))
		hangs.Store(false)
		spend("a")
		want("it answers again", again)
	})
}
