package auth

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/config"
)

// One holder of a token who signs in again and again ends sessions of that token only, the one
// that was used least recently first. Sessions that have ended make room before others.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(sessions)
		of := func(name string) [sha256.Size]byte { return sha256.Sum256([]byte(name)) }
		mine, _ := s.start(of("mine"))
		first, _ := s.start(of("greedy"))
		time.Sleep(time.Second)
		for range config.MaxSessions - 2 {
			s.start(of("greedy"))
		}
		if _, _, ok := s.use(first); !ok { // now the second is the least recently used
			t.Fatal("the first session has ended early")
		}
		time.Sleep(time.Second)
		last, _ := s.start(of("greedy"))
		for _, id := range []string{mine, first, last} {
			if _, _, ok := s.use(id); !ok {
				t.Error("a session has ended that was used")
			}
		}
		for range 3 * config.MaxSessions {
			s.start(of("greedy"))
		}
		if token, _, ok := s.use(mine); !ok || token != of("mine") {
			t.Error("the session of another token has ended")
		}
		if len(s.open) != config.MaxSessions {
			t.Errorf("%d sessions", len(s.open))
		}
		if _, _, ok := s.use("nothing"); ok {
			t.Error("an ID that was never given is one")
		}
		other, _ := s.start(of("other")) // has none of its own that may go
		if _, _, ok := s.use(other); !ok || len(s.open) != config.MaxSessions {
			t.Errorf("the first session of a token: %v, of %d", ok, len(s.open))
		}
		time.Sleep(sessionIdle + 1)
		if s.start(of("other")); len(s.open) != 1 {
			t.Errorf("%d sessions, after all but one have ended", len(s.open))
		}
	})
}

// A holder of a token who has filled all places with sessions, and uses them all, pushes out no
// session of others, however long theirs were not used, and whoever signs in next.
func TestAttackSessionsPushedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(sessions)
		of := func(name string) [sha256.Size]byte { return sha256.Sum256([]byte(name)) }
		operator, _ := s.start(of("operator"))
		time.Sleep(30 * time.Minute)
		for range config.MaxSessions {
			s.start(of("attacker"))
		}
		var others []string
		for i := range 20 { // each with a token of its own
			id, _ := s.start(of(fmt.Sprint("other", i)))
			others = append(others, id)
			s.start(of("attacker"))
		}
		for _, id := range append(others, operator) {
			if _, _, ok := s.use(id); !ok {
				t.Error("a session of another token has ended")
			}
		}
		if len(s.open) != config.MaxSessions {
			t.Errorf("%d sessions", len(s.open))
		}
	})
}

// A session takes no more than the bounds say (docs/bounds.md).
func TestBytesOfSessions(t *testing.T) {
	s := new(sessions)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range config.MaxSessions {
		s.start(sha256.Sum256(fmt.Append(nil, i)))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	const most = 400
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / config.MaxSessions; each > most {
		t.Errorf("%d bytes a session, want at most %d", each, most)
	}
	runtime.KeepAlive(s)
}
