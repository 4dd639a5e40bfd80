package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/reports"
	"github.com/stintdev/stint/server/rules"
)

// awayReports fail while away, and can be flushed.
type awayReports struct {
	there *atomic.Pointer[reports.Memory]
	away  atomic.Bool
}

var errAway = errors.New("away")

func (a *awayReports) Report(ctx context.Context, name, part string, text []byte, keep time.Duration) error {
	return a.there.Load().Report(ctx, name, part, text, keep)
}

func (a *awayReports) Reported(ctx context.Context, name string) (map[string][]byte, error) {
	if a.away.Load() {
		return nil, errAway
	}
	return a.there.Load().Reported(ctx, name)
}

func (a *awayReports) Claim(ctx context.Context, name, who string, keep time.Duration) (bool, error) {
	return a.there.Load().Claim(ctx, name, who, keep)
}

func newHashing(t *testing.T, log io.Writer, r Reports) *Server {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte("rules: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.NewTextHandler(log, nil))}
	c.Settings.HashKeys = true
	s := New(c)
	t.Cleanup(s.Close)
	s.reports = r
	return s
}

// All instances hash a key alike, soon after they can reach each other, and go on so after the
// store was flushed and after all of them were away for a month.
func TestShownKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var memory atomic.Pointer[reports.Memory]
		memory.Store(new(reports.Memory))
		shared := &awayReports{there: &memory}
		first := newHashing(t, io.Discard, shared)
		var log lockedBuffer
		later := &awayReports{there: &memory}
		later.away.Store(true)
		second := newHashing(t, &log, later)
		for _, s := range []*Server{first, second} {
			s.shareSalt(ctx)
			go s.followSalt(ctx)
		}
		const key = "192.0.2.1"
		agreed := first.shownKey(key)
		if !regexp.MustCompile(`^h:[0-9a-f]{16}$`).MatchString(agreed) || agreed != first.shownKey(key) || agreed == first.shownKey("192.0.2.2") {
			t.Errorf("shown as %q", agreed)
		}
		if got := second.shownKey(key); got == agreed || !strings.HasPrefix(got, "h:") {
			t.Errorf("an instance alone shows %q", got)
		}
		if first.shownKey("") != "" {
			t.Error("nothing has a hash")
		}
		if n := strings.Count(log.String(), "salt"); n != 1 {
			t.Errorf("%d log lines: %s", n, log.String())
		}
		later.away.Store(false)
		time.Sleep(2 * time.Second)
		if got := second.shownKey(key); got != agreed {
			t.Errorf("%q at one instance, %q at the other", agreed, got)
		}
		memory.Store(new(reports.Memory)) // flushed
		time.Sleep(2 * time.Minute)
		third := newHashing(t, io.Discard, shared)
		if !third.shareSalt(ctx) || third.shownKey(key) != agreed || second.shownKey(key) != agreed {
			t.Errorf("after the store was flushed: %q and %q, before %q", third.shownKey(key), second.shownKey(key), agreed)
		}
		stop()
		synctest.Wait()
		time.Sleep(29 * 24 * time.Hour)
		fourth := newHashing(t, io.Discard, shared)
		if fourth.shareSalt(t.Context()); fourth.shownKey(key) != agreed {
			t.Error("the salt was not kept for a month")
		}
	})
}

// Many instances that start at once agree.
func TestShownKeyStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		shared := new(reports.Memory)
		all := make([]*Server, 16)
		for i := range all {
			all[i] = newHashing(t, io.Discard, shared)
			go all[i].followSalt(ctx)
		}
		time.Sleep(3 * saltUnknownEvery)
		for _, s := range all {
			if s.shownKey("ann") != all[0].shownKey("ann") {
				t.Fatal("two instances show a key in two ways")
			}
		}
	})
}

// Without the setting, keys are shown as they are.
func TestShownKeyPlain(t *testing.T) {
	if got := new(Server).shownKey("ann"); got != "ann" {
		t.Error(got)
	}
}

func BenchmarkHashKey(b *testing.B) {
	of := newSalt()
	b.ReportAllocs()
	for b.Loop() {
		_ = of.hash("192.0.2.1")
	}
}
