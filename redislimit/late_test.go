package redislimit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// A Store that is opened before its server fails with the reason, and decides once
// the server is there.
func TestOpenLater(t *testing.T) {
	r := redistest.Start(t)
	r.Kill()
	told := make(chan error, 100)
	s, err := redislimit.OpenLater(r.URL(), func(_ redislimit.Server, err error) { told <- err })
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

// What is wrong with an address, or with the server, is told apart.
func TestOpenLaterReasons(t *testing.T) {
	if _, err := redislimit.OpenLater("redis://", nil); err == nil {
		t.Error("an address without a host")
	}
	r := redistest.Start(t, "--requirepass", "secret")
	told := make(chan error, 100)
	s, err := redislimit.OpenLater(strings.Replace(r.URL(), "://", "://:wrong@", 1), func(_ redislimit.Server, err error) { told <- err })
	if err != nil {
		t.Fatal(err)
	}
	if err := <-told; err == nil || !strings.Contains(err.Error(), "does not accept this user and password") || strings.Contains(err.Error(), "wrong@") {
		t.Errorf("%v", err)
	}
	s.Close() // while it is trying
}

// Instances of a namespace are counted, and those of another are not.
func TestBeat(t *testing.T) {
	r := redistest.Start(t)
	open := func(namespace string) *redislimit.Store {
		s, err := redislimit.OpenIn(t.Context(), r.URL(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	for want, s := range []*redislimit.Store{open("a"), open("a"), open("a")} {
		for range 2 {
			if n, err := s.Beat(t.Context()); n != want+1 || err != nil {
				t.Errorf("%d live, %v; want %d", n, err, want+1)
			}
		}
	}
	if n, err := open("b").Beat(t.Context()); n != 1 || err != nil {
		t.Errorf("%d live, %v", n, err)
	}
}
