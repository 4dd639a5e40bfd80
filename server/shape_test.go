package server_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

const tenPerSecond = `rules: [{name: shaped, key: '"all"', limits: [10 per 1s leaky_bucket burst 5], shape: true}]`

// ask sends a request through a gateway that has no routes: 404 means that the
// limits let it pass.
func ask(ctx context.Context, h http.Handler) (status int, after time.Duration) {
	start := time.Now()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
	return w.Code, time.Since(start)
}

// A rule that shapes lets requests pass at an even pace and refuses those that find
// the bucket full.
func TestShape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServer(t, tenPerSecond).Gateway()
		statuses, waits := map[int]int{}, map[time.Duration]int{}
		var mu sync.Mutex
		for range 8 {
			go func() {
				status, after := ask(t.Context(), g)
				mu.Lock()
				defer mu.Unlock()
				statuses[status]++
				if status == http.StatusNotFound {
					waits[after]++
				}
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for i := range time.Duration(5) {
			if waits[i*100*time.Millisecond] != 1 {
				t.Errorf("none left after %s: %v", i*100*time.Millisecond, waits)
			}
		}
		if statuses[404] != 5 || statuses[429] != 3 {
			t.Errorf("statuses %v", statuses)
		}
	})
}

// Without shape the same bucket only meters.
func TestNoShape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
rules:
  - {name: meter, key: '"all"', limits: [10 per 1s leaky_bucket burst 5]}
  - {name: shadow, key: '"all"', limits: [1 per 1s leaky_bucket burst 9], shape: true, mode: shadow}
  - {name: other, key: '"all"', limits: [1000 per 1s leaky_bucket], shape: true}
`, func(c *server.Config) { c.Settings.MaxDelay = 100 * time.Millisecond }) // shorter than the delays of the others
		g := s.Gateway()
		for i := range time.Duration(5) {
			// The rule that shapes holds by its own delay, not by that of another.
			if status, after := ask(t.Context(), g); status != 404 || after > time.Millisecond {
				t.Errorf("request %d: %d after %s", i, status, after)
			}
		}
		if status, _ := ask(t.Context(), g); status != 429 {
			t.Errorf("the sixth: %d", status)
		}
		if line := `stint_shadow_refusals_total{rule="shadow"} 0` + "\n"; !strings.Contains(metrics(s), line) {
			t.Errorf("no %s", line)
		}
	})
}

// A request that cannot be held takes no place in the queue: because it would wait too
// long, or because no more may be held. One whose client leaves gives its turn to
// the one behind it, whose own is left for the next, and refunds all else.
func TestShapeGivesUp(t *testing.T) {
	for name, store := range map[string]func() stint.Store{
		"memory":       func() stint.Store { return new(stint.Memory) },
		"far away":     func() stint.Store { return &limittest.Faulty{Store: new(stint.Memory)} },
		"in its stead": func() stint.Store { return failing() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, `rules: [{name: shaped, key: '"all"', limits: [10 per 1s leaky_bucket burst 5, 4 per 1h fixed_window], shape: true}]`,
					over(store()), func(c *server.Config) {
						c.Settings.MaxDelayed, c.Settings.MaxDelay = 2, 250*time.Millisecond
					})
				g := s.Gateway()
				gone, leave := context.WithCancel(t.Context())
				if status, after := ask(t.Context(), g); status != 404 || after != 0 {
					t.Fatalf("the first: %d after %s", status, after)
				}
				left := make(chan int)
				go func() { status, _ := ask(gone, g); left <- status }() // held for 100 ms
				synctest.Wait()
				go func() { status, _ := ask(t.Context(), g); left <- status }() // for 200 ms
				synctest.Wait()
				if status, after := ask(t.Context(), g); status != 429 || after != 0 { // there is no room
					t.Errorf("no room: %d after %s", status, after)
				}
				leave()
				if status := <-left; status != 503 { // which nobody sees
					t.Errorf("who has left: %d", status)
				}
				if status, after := ask(t.Context(), g); status != 429 || after != 0 { // would be held for 300 ms
					t.Errorf("too long: %d after %s", status, after)
				}
				time.Sleep(60 * time.Millisecond)
				if status, after := ask(t.Context(), g); status != 404 || after != 140*time.Millisecond {
					t.Errorf("the next: %d after %s", status, after)
				}
				if status := <-left; status != 404 {
					t.Errorf("the one behind who has left: %d", status)
				}
				// Three passed, and the fixed window has room for one more.
				time.Sleep(time.Second)
				for i, want := range []int{404, 429} {
					if status, _ := ask(t.Context(), g); status != want {
						t.Errorf("request %d in the hour: %d, want %d", 4+i, status, want)
					}
				}
			})
		})
	}
}

// Requests come and go at random, and those that pass are never closer to each other
// than the pace, whoever has left meanwhile; and the queue is not filled by those that
// are refused.
func TestShapeKeepsThePace(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			g := newServer(t, `rules: [{name: shaped, key: '"all"', limits: [10 per 1s leaky_bucket burst 50], shape: true}]`, func(c *server.Config) {
				c.Settings.MaxDelayed, c.Settings.MaxDelay = 8, time.Second
			}).Gateway()
			var mu sync.Mutex
			var passed []time.Time
			var all sync.WaitGroup
			for range 500 { // 50 a second, of which a third leave
				ctx, leave := context.WithCancel(t.Context())
				if random.IntN(3) == 0 {
					time.AfterFunc(time.Duration(random.Int64N(int64(time.Second))), leave)
				}
				all.Go(func() {
					defer leave()
					if status, _ := ask(ctx, g); status == 404 {
						mu.Lock()
						defer mu.Unlock()
						passed = append(passed, time.Now())
					}
				})
				time.Sleep(time.Duration(random.Int64N(int64(40 * time.Millisecond))))
			}
			all.Wait()
			for i := range passed[1:] {
				if apart := passed[i+1].Sub(passed[i]); apart < 100*time.Millisecond-time.Microsecond {
					t.Errorf("seed %d: request %d passes %s after the one before", seed, i+1, apart)
				}
			}
			if len(passed) < 60 { // of 100 places in 10 s; who left kept some
				t.Errorf("seed %d: %d passed", seed, len(passed))
			}
		})
	}
}

// If refunding fails, the units stay taken, and that is logged.
func TestShapeCannotRefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		store := &limittest.Faulty{Store: new(stint.Memory), Fault: func(call int) (f limittest.Fault) {
			f.Hang = call == 3
			return f
		}}
		g := newServer(t, `rules: [{name: shaped, key: '"all"', limits: [10 per 1s leaky_bucket, 9 per 1h], shape: true}]`, over(store), func(c *server.Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		}).Gateway()
		if status, _ := ask(t.Context(), g); status != 404 {
			t.Fatal(status)
		}
		const inLine = 50 * time.Millisecond // of 100
		leaving, leave := context.WithCancel(t.Context())
		time.AfterFunc(inLine, leave)
		if status, after := ask(leaving, g); status != 503 || after != inLine+config.Default().DecisionTimeout {
			t.Errorf("who leaves: %d after %s", status, after)
		}
		if !strings.Contains(log.String(), "its units could not be refunded") {
			t.Errorf("log: %s", log.String())
		}
	})
}

// Over real sockets, the upstream never sees requests come faster than the pace.
func TestShapeOverTheWire(t *testing.T) {
	var mu sync.Mutex
	var came []time.Time
	up := upstream(t, func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		came = append(came, time.Now())
	})
	g := start(t, newServer(t, `rules: [{name: shaped, key: '"all"', limits: [50 per 1s leaky_bucket burst 6], shape: true}]`, everythingTo(up)))
	first := time.Now()
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if got := send(t, g.gateway, "GET", "/"); got.StatusCode != 200 {
				t.Error(got.Status)
			}
		})
	}
	all.Wait()
	for i, at := range came {
		// Of each it is known only that it came no sooner than its turn.
		if turn := first.Add(time.Duration(i) * 20 * time.Millisecond); at.Before(turn) {
			t.Errorf("request %d came %s early", i, turn.Sub(at))
		}
	}
}

// The turns of those that left go to the next, of whichever group of rules they are; but not where
// several limits delay, since a turn in one queue may be too early for the other.
func TestShapeTurnsOfThoseThatLeft(t *testing.T) {
	const shadow = `{name: shadow, key: '"all"', limits: [9 per 1s], mode: shadow}`
	const shaped = `{name: shaped, key: '"all"', limits: [10 per 1s leaky_bucket burst 50], shape: true}`
	const metered = `{name: metered, key: '"all"', limits: [5 per 1s leaky_bucket burst 50]}`
	const slower = `{name: slower, key: '"all"', limits: [5 per 1s leaky_bucket burst 50], shape: true}`
	for _, c := range []struct {
		rules string
		want  time.Duration // after which the next passes
	}{
		{shaped, 50 * time.Millisecond},
		{shadow + ", " + shaped, 50 * time.Millisecond},
		{shaped + ", " + shadow, 50 * time.Millisecond},
		{metered + ", " + shaped, 50 * time.Millisecond},
		{shaped + ", " + slower, 4150 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newServer(t, "rules: ["+c.rules+"]").Gateway()
			if status, _ := ask(t.Context(), g); status != 404 {
				t.Fatal(status)
			}
			gone, leave := context.WithCancel(t.Context())
			for range 20 {
				go ask(gone, g)
				synctest.Wait()
			}
			time.Sleep(50 * time.Millisecond)
			leave()
			synctest.Wait()
			if status, after := ask(t.Context(), g); status != 404 || after != c.want {
				t.Errorf("%s: %d after %s, want %s", c.rules, status, after, c.want)
			}
		})
	}
}
