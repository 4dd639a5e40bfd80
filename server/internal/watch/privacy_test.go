package watch

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/internal/reports"
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

func newHashing(log io.Writer, r reports.Reports) *Privacy {
	p := New(Options{Log: slog.New(slog.NewTextHandler(log, nil)), HashKeys: true}).Privacy
	p.Reports, p.ID = r, rand.Text()
	return p
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
		first := newHashing(io.Discard, shared)
		var log lockedBuffer
		later := &awayReports{there: &memory}
		later.away.Store(true)
		second := newHashing(&log, later)
		for _, s := range []*Privacy{first, second} {
			s.ShareSalt(ctx)
			go s.FollowSalt(ctx)
		}
		const key = "192.0.2.1"
		agreed := first.ShownKey(key)
		if !regexp.MustCompile(`^h:[0-9a-f]{16}$`).MatchString(agreed) || agreed != first.ShownKey(key) || agreed == first.ShownKey("192.0.2.2") {
			t.Errorf("shown as %q", agreed)
		}
		if got := second.ShownKey(key); got == agreed || !strings.HasPrefix(got, "h:") {
			t.Errorf("an instance alone shows %q", got)
		}
		if first.ShownKey("") != "" {
			t.Error("nothing has a hash")
		}
		if n := strings.Count(log.String(), "salt"); n != 1 {
			t.Errorf("%d log lines: %s", n, log.String())
		}
		later.away.Store(false)
		time.Sleep(2 * time.Second)
		if got := second.ShownKey(key); got != agreed {
			t.Errorf("%q at one instance, %q at the other", agreed, got)
		}
		memory.Store(new(reports.Memory)) // flushed
		time.Sleep(2 * time.Minute)
		third := newHashing(io.Discard, shared)
		if !third.ShareSalt(ctx) || third.ShownKey(key) != agreed || second.ShownKey(key) != agreed {
			t.Errorf("after the store was flushed: %q and %q, before %q", third.ShownKey(key), second.ShownKey(key), agreed)
		}
		stop()
		synctest.Wait()
		time.Sleep(29 * 24 * time.Hour)
		fourth := newHashing(io.Discard, shared)
		if fourth.ShareSalt(t.Context()); fourth.ShownKey(key) != agreed {
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
		all := make([]*Privacy, 16)
		for i := range all {
			all[i] = newHashing(io.Discard, shared)
			go all[i].FollowSalt(ctx)
		}
		time.Sleep(3 * saltUnknownEvery)
		for _, s := range all {
			if s.ShownKey("ann") != all[0].ShownKey("ann") {
				t.Fatal("two instances show a key in two ways")
			}
		}
	})
}

// Without the setting, keys are shown as they are.
func TestShownKeyPlain(t *testing.T) {
	if got := new(Privacy).ShownKey("ann"); got != "ann" {
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
