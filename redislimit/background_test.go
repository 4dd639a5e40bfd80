package redislimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// connectLater connects in the background and does not wait.
func connectLater(address string, attempted func(redislimit.Server, error)) (*redislimit.Store, error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return redislimit.Connect(ctx, address, redislimit.Options{Background: true, Attempted: attempted})
}

// A Store that is opened before its server fails with the reason, and decides once
// the server is there.
func TestConnectInBackground(t *testing.T) {
	r := redistest.Start(t)
	r.Kill()
	told := make(chan error, 100)
	s, err := connectLater(r.URL(), func(_ redislimit.Server, err error) { told <- err })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	limiter, limit := stint.NewLimiter(s), stint.MustLimit("3 per 1h")
	if err := <-told; err == nil || !strings.Contains(err.Error(), "connect to 127.0.0.1") {
		t.Errorf("%v", err)
	}
	if _, err := limiter.Allow(t.Context(), "k", limit); err == nil || !strings.Contains(err.Error(), "connect") {
		t.Errorf("%v", err)
	}
	if _, _, err := s.Documents().Newest(t.Context(), "a"); err == nil {
		t.Error("documents without a server")
	}
	r.Launch(t)
	for deadline := time.After(20 * time.Second); ; {
		select {
		case err = <-told:
		case <-deadline:
			t.Fatal("not connected")
		}
		if err == nil {
			break
		}
	}
	if d, err := limiter.Allow(t.Context(), "k", limit); err != nil || d.Remaining != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	if s.Server().Version == "" {
		t.Error("nothing is known of the server")
	}
}

// A server that is there decides from the first request on, behind a Fallback, too; one
// that is frozen is waited for as long as the deadline.
func TestConnectInBackgroundFirst(t *testing.T) {
	keepLog(t)
	server := redistest.Start(t)
	limit := stint.MustLimit("1000 per 1h")
	for i := range 20 {
		s, err := connectLater(server.URL(), nil)
		if err != nil {
			t.Fatal(err)
		}
		f := &fleet.Fallback{Store: s, Deadline: 5 * time.Second}
		d, err := stint.NewLimiter(f).Allow(t.Context(), "k", limit)
		if err != nil || d.By != stint.ByStore || d.Remaining != int64(999-i) {
			t.Errorf("%d: %+v, %v", i, d, err)
		}
		f.Close()
		s.Close()
	}
	server.Freeze(t)
	s, err := connectLater(server.URL()+unhurried, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		began := time.Now()
		if s.Close(); time.Since(began) > atMost {
			t.Errorf("to close took %s", time.Since(began))
		}
	}()
	began := time.Now()
	r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 1}}, Deadline: 10 * time.Millisecond}
	if _, err := s.Take(t.Context(), &r, nil); !errors.Is(err, fleet.ErrNotCharged) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > atMost {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := redislimit.Connect(gone, server.URL()+unhurried, redislimit.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	r.Deadline = 0
	answers := make([]stint.Answer, 1)
	if s.TakeBatch(gone, []stint.Request{r}, answers); !errors.Is(answers[0].Err, fleet.ErrNotCharged) || !errors.Is(answers[0].Err, context.Canceled) {
		t.Errorf("%v", answers[0].Err)
	}
	if _, err := s.Take(gone, &r, nil); !errors.Is(err, fleet.ErrNotCharged) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// What is wrong with an address, or with the server, is told apart.
func TestConnectInBackgroundReasons(t *testing.T) {
	if _, err := connectLater("redis://", nil); err == nil {
		t.Error("an address without a host")
	}
	r := redistest.Start(t, "--requirepass", "secret")
	told := make(chan error, 100)
	s, err := connectLater(strings.Replace(r.URL(), "://", "://:wrong@", 1), func(_ redislimit.Server, err error) { told <- err })
	if err != nil {
		t.Fatal(err)
	}
	if err := <-told; err == nil || !strings.Contains(err.Error(), "does not accept this user and password") || strings.Contains(err.Error(), "wrong@") {
		t.Errorf("%v", err)
	}
	s.Close() // while it is trying
}

// Instances of a namespace are counted, and those of another are not.
func TestHeartbeat(t *testing.T) {
	r := redistest.Start(t)
	open := func(namespace string) *redislimit.Store {
		s, err := redislimit.Connect(t.Context(), r.URL(), redislimit.Options{Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	for want, s := range []*redislimit.Store{open("a"), open("a"), open("a")} {
		for range 2 {
			if n, err := s.Heartbeat(t.Context()); n != want+1 || err != nil {
				t.Errorf("%d live, %v; want %d", n, err, want+1)
			}
		}
	}
	if n, err := open("b").Heartbeat(t.Context()); n != 1 || err != nil {
		t.Errorf("%d live, %v", n, err)
	}
}
