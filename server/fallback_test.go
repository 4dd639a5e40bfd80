package server_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// failing is a store that does not decide.
func failing() *limittest.Faulty {
	return &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Err: limittest.ErrFault} }}
}

const mixed = `
rules:
  - {name: local, match: 'operation in ["local", "both", "all"]', key: '"x"', limits: [2 per 1m fixed_window, 3 per 1h fixed_window]}
  - {name: allow, match: 'operation in ["allow", "both", "all"]', key: '"x"', limits: [1 per 1m], on_store_error: allow}
  - {name: deny, match: 'operation in ["deny", "all"]', key: '"x"', limits: [9 per 1m], on_store_error: deny}
  - {name: shadow, match: 'operation == "both"', key: '"x"', limits: [1 per 1m], on_store_error: deny, mode: shadow}
`

// Where the store fails, each rule's on_store_error decides: deny refuses to
// decide, local counts here, allow lets pass.
func TestStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, mixed, over(failing()))
		denied := "error: stint: the store does not decide, and \"deny\" denies then: the circuit breaker is open"
		for i, step := range []struct{ operation, want, each string }{
			{"allow", "allowed by allow, 1 left", "allow 1"},
			{"allow", "allowed by allow, 1 left", "allow 1"},
			{"local", "allowed by local, 1 left", "local 1, local 2"},
			{"both", "allowed by local, 0 left", "local 0, local 1, allow 1, shadow 0?"},
			{"both", "limited by local, 0 left, retry 1m0s", "local 0!, local 1, allow 1, shadow 0?"},
			{"local", "limited by local, 0 left, retry 1m0s", "local 0!, local 1"},
			{"deny", denied, ""},
			{"all", denied, ""},
			{"none", "allowed", ""},
		} {
			synctest.Wait() // for a probe that fails, too
			v, err := s.Decide(t.Context(), doing(step.operation), time.Time{})
			if got := say(&v, err); got != step.want || sayEach(&v) != step.each {
				t.Errorf("step %d, %s:\n got %s; %s\nwant %s; %s", i, step.operation, got, sayEach(&v), step.want, step.each)
			}
		}
		time.Sleep(time.Minute) // the local limit fills up, too
		if v, err := s.Decide(t.Context(), doing("local"), time.Time{}); say(&v, err) != "allowed by local, 0 left" {
			t.Error(say(&v, err))
		}
	})
}

// A rule that only watches responses has no limit to answer by: where another rule lets pass
// by its on_store_error, that one's limit is the answer.
func TestStoreFailsBesideWatch(t *testing.T) {
	for _, onError := range []string{"local", "allow"} {
		s := newServer(t, `
rules:
  - {name: guessing, key: '"x"', penalty: {on_status: [401], ban_after: 2, ban_for: 1h}, on_store_error: `+onError+`}
  - {name: login, key: '"x"', limits: [9 per 1m], on_store_error: allow}
`, over(failing()))
		for range 5 { // the breaker opens meanwhile
			v, err := s.Decide(t.Context(), doing("x"), time.Time{})
			if got := say(&v, err); got != "allowed by login, 9 left" || v.By != stint.ByPolicy {
				t.Errorf("guessing by %s: %s, by %s", onError, got, v.By)
			}
		}
	}
}

// When the store decides again, so do its counts. What was decided in its stead
// while it was still asked may have been charged there, and is not charged again.
func TestStoreRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := false
		s := newServer(t, mixed, over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) (f limittest.Fault) {
			if down {
				f.Err = limittest.ErrFault
			}
			return f
		}}))
		for i, step := range []struct {
			down bool
			want string
		}{
			{false, "allowed by local, 1 left"},
			{true, "allowed by local, 0 left"}, // of 2 one was used
			{true, "limited by local, 0 left, retry 1m0s"},
			{false, "allowed by local, 0 left"},
			{false, "limited by local, 0 left, retry 1m0s"},
		} {
			down = step.down
			if v, err := s.Decide(t.Context(), doing("local"), time.Time{}); say(&v, err) != step.want {
				t.Errorf("step %d: got %s, want %s", i, say(&v, err), step.want)
			}
		}
	})
}

// A penalty works locally as well.
func TestLocalBan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `rules: [{name: login, key: operation, limits: [1 per 1h fixed_window], penalty: {ban_after: 1, ban_for: 1m}}]`, over(failing()))
		for _, want := range []string{
			"allowed by login, 0 left",
			"banned by login, 0 left, banned for 1m0s, retry 1h0m0s",
			"banned by login, banned for 1m0s, retry 1h0m0s",
		} {
			if v, err := s.Decide(t.Context(), doing("x"), time.Time{}); say(&v, err) != want {
				t.Errorf("got %s, want %s", say(&v, err), want)
			}
		}
	})
}

// A store that hangs is waited for DecisionTimeout, no longer, also where its
// answer gets lost.
func TestStoreHangs(t *testing.T) {
	for _, fault := range []limittest.Fault{{Hang: true}, {Hang: true, Lost: true}} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, mixed, over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return fault }}),
				func(c *server.Config) { c.Settings.DecisionTimeout = 40 * time.Millisecond })
			for _, operation := range []string{"local", "both", "deny"} {
				start := time.Now()
				v, err := s.Decide(t.Context(), doing(operation), time.Time{})
				if waited := time.Since(start); waited != 40*time.Millisecond {
					t.Errorf("%s: waited %s", operation, waited)
				}
				if operation == "deny" {
					if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stint.ErrRequest) {
						t.Error(err)
					}
				} else if err != nil || !v.Allowed {
					t.Errorf("%s: %+v, %v", operation, v, err)
				}
			}
		})
	}
}

// A request, or a list of them, waits for a store that hangs as long as the shortest decision_timeout of
// the rules that apply and are enforced. Rules without one wait as long as the server.
func TestShortestTimeout(t *testing.T) {
	const file = `
rules:
  - {name: slow, match: 'operation.contains("slow")', key: '"x"', limits: [9 per 1m], decision_timeout: 80ms}
  - {name: plain, match: 'operation.contains("plain")', key: '"x"', limits: [9 per 1m]}
  - {name: quick, match: 'operation.contains("quick")', key: '"x"', limits: [9 per 1m], decision_timeout: 30ms}
  - {name: late, match: 'operation.contains("late")', key: '"x"', limits: [9 per 1m], decision_timeout: 60ms}
  - {name: tried, match: 'operation.contains("tried")', mode: shadow, key: '"x"', limits: [9 per 1m], decision_timeout: 10ms}
`
	for _, c := range []struct {
		checks string // operations
		want   time.Duration
	}{
		{"plain", 40 * time.Millisecond},
		{"slow", 80 * time.Millisecond},
		{"slow-quick", 30 * time.Millisecond},
		{"slow-quick-late", 30 * time.Millisecond},
		{"slow-plain", 80 * time.Millisecond},
		{"slow-tried", 80 * time.Millisecond},
		{"tried", 40 * time.Millisecond}, // which nobody enforces
		{"slow quick late", 30 * time.Millisecond},
		{"slow late plain", 60 * time.Millisecond},
		{"quick tried slow-tried", 30 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, file, over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Hang: true} }}),
				func(c *server.Config) { c.Settings.DecisionTimeout = 40 * time.Millisecond })
			var list []string
			for operation := range strings.FieldsSeq(c.checks) {
				list = append(list, `{"operation":"`+operation+`"}`)
			}
			for _, shadow := range []string{"true", "false"} {
				want := c.want
				if shadow == "false" && c.checks == "tried" {
					want = 0 // nobody waits for its answer
				}
				start := time.Now()
				w := checkAt(s, "/v1/check?shadow="+shadow, "["+strings.Join(list, ",")+"]")
				if waited := time.Since(start); waited != want || strings.Count(w.Body.String(), `"outcome":"allowed"`) != len(list) {
					t.Errorf("%s, shadow=%s: waited %s, want %s: %s", c.checks, shadow, waited, want, w.Body)
				}
			}
			time.Sleep(time.Second) // until nobody waits for the store
		})
	}
}

// Whoever has left needs no answer: nothing is counted here in the store's stead,
// and nothing is logged.
func TestCallerCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		fault := limittest.Fault{Hang: true}
		s := newServer(t, mixed, over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return fault }}),
			func(c *server.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, leave)
		if v, err := s.Decide(ctx, doing("local"), time.Time{}); !errors.Is(err, context.Canceled) || v.Allowed {
			t.Errorf("%+v, %v", v, err)
		}
		if log.Len() > 0 {
			t.Errorf("logged: %s", &log)
		}
		fault = limittest.Fault{Err: limittest.ErrFault}
		if v, err := s.Decide(t.Context(), doing("local"), time.Time{}); say(&v, err) != "allowed by local, 1 left" {
			t.Error(say(&v, err))
		}
	})
}

// An instance that counts by itself can be full, too.
func TestLocalIsFull(t *testing.T) {
	s := newServer(t, `rules: [{name: client, key: client.ip, limits: [1 per 1h]}]`, over(failing()), func(c *server.Config) { c.Settings.MaxKeys = 1 })
	if v, err := s.Decide(t.Context(), from("192.0.2.1"), time.Time{}); err != nil || !v.Allowed {
		t.Fatal(err)
	}
	_, err := s.Decide(t.Context(), from("192.0.2.2"), time.Time{})
	if !errors.Is(err, limittest.ErrFault) || !errors.Is(err, stint.ErrFull) {
		t.Error(err)
	}
}

// Where an instance has no room to remember, the store decides all the same, for any
// number of keys and for all instances together.
func TestLocalIsFullStoreDecides(t *testing.T) {
	shared := &limittest.Faulty{Store: new(stint.Memory)}
	var fleet []*server.Server
	for range 2 {
		fleet = append(fleet, newServer(t, `rules: [{name: client, key: client.ip, limits: [3 per 1h]}]`, over(shared), func(c *server.Config) { c.Settings.MaxKeys = 1 }))
	}
	for i := range 4 {
		for _, ip := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
			v, err := fleet[i%2].Decide(t.Context(), from(ip), time.Time{})
			if err != nil || v.Allowed != (i < 3) || v.By != stint.ByStore {
				t.Errorf("request %d of %s: %s by %s", i, ip, say(&v, err), v.By)
			}
		}
	}
}

// A store that fails is logged every ten seconds, however many ask.
func TestStoreFailureIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		s := newServer(t, mixed, over(failing()), logTo(&log))
		for range 2 {
			for range 100 {
				_, _ = s.Decide(t.Context(), doing("all"), time.Time{})
				_, _ = s.Decide(t.Context(), doing("both"), time.Time{})
			}
			time.Sleep(10 * time.Second)
		}
		text := log.taken()
		if n := strings.Count(text, "level=ERROR"); n != 3 || // one of them of the breaker
			!strings.Contains(text, "the store is not called until it answers again") || !strings.Contains(text, `error="injected fault"`) {
			t.Errorf("%d lines: %s", n, text)
		}
	})
}

// The log tells the story of the circuit breaker, and the status says why it is open.
func TestBreakerIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		var away atomic.Bool
		s := newServer(t, `rules: [{name: client, key: client.ip, limits: [1000 per 1h]}]`, logTo(&log), over(&limittest.Faulty{Store: new(stint.Memory), Fault: func(int) (f limittest.Fault) {
			if away.Load() {
				f.Err = limittest.ErrFault
			}
			return f
		}}))
		ask := func() { _, _ = s.Decide(t.Context(), from("192.0.2.1"), time.Time{}) }
		ask()
		if text := log.taken(); strings.Contains(text, "circuit breaker") || s.StoreError() != nil {
			t.Errorf("a store that answers: %v: %s", s.StoreError(), text)
		}
		away.Store(true)
		for range 50 {
			time.Sleep(10 * time.Millisecond)
			ask()
		}
		if text := log.taken(); strings.Count(text, `level=ERROR msg="circuit breaker open: the store is not called until it answers again; on_store_error decides instead" error="injected fault"`) != 1 || !errors.Is(s.StoreError(), limittest.ErrFault) {
			t.Errorf("a store that fails: %v: %s", s.StoreError(), text)
		}
		away.Store(false)
		for range 60 {
			time.Sleep(time.Second)
			ask()
		}
		if text := log.taken(); strings.Count(text, `level=WARN msg="circuit breaker" state=closed`) != 1 || strings.Contains(text, "level=ERROR") || s.StoreError() != nil {
			t.Errorf("a store that answers again: %v: %s", s.StoreError(), text)
		}
	})
}

// In a simulation nothing stands in for the store, not even for rules in shadow.
func TestSimulationWithoutStore(t *testing.T) {
	s := newServer(t, mixed+`  - {name: only, match: 'operation == "only"', key: '"x"', limits: [1 per 1m], mode: shadow}`, over(failing()))
	for _, operation := range []string{"local", "allow", "both", "only"} {
		if v, err := s.Decide(t.Context(), doing(operation), noon); !errors.Is(err, limittest.ErrFault) {
			t.Errorf("%s: %+v, %v", operation, v, err)
		}
	}
}

// A malformed request stays one, whatever on_store_error says of a store that
// blames the request.
func TestStoreReturnsErrRequest(t *testing.T) {
	blames := &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Err: stint.ErrRequest} }}
	s := newServer(t, mixed, over(blames))
	for _, operation := range []string{"local", "allow", "all", "both"} {
		v, err := s.Decide(t.Context(), doing(operation), time.Time{})
		if !errors.Is(err, stint.ErrRequest) || v.List != rules.Unlisted || v.Allowed {
			t.Errorf("%s: %+v, %v", operation, v, err)
		}
	}
}
