package redislimit_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// jumped are the jumps that a server's clock makes, back and forth.
var jumped = []time.Duration{
	-time.Second, time.Second, -time.Minute, time.Minute, -time.Hour, time.Hour, -24 * time.Hour, 24 * time.Hour,
}

// count is what a limit has admitted.
type count struct {
	limit    *stint.Limit
	mu       sync.Mutex
	admitted int
	last     time.Time
	longest  time.Duration // between two admissions
}

func (c *count) admittedAfter(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.After(t)
}

// A clock that jumps under load admits no more than one burst a jump beyond the
// limit, and locks no key for longer than its period, or a second, and its wait.
func TestClocks(t *testing.T) {
	const amount, period, between = 50, 400 * time.Millisecond, 1500 * time.Millisecond
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	limiter := stint.NewLimiter(open(t, server.URL()))
	var counts []*count
	began := time.Now()
	paused := redistest.WatchPauses()
	stop := make(chan struct{})
	var done sync.WaitGroup
	for a := stint.TokenBucket; a <= stint.SlidingWindow; a++ {
		limit, err := stint.NewLimit(stint.Spec{Algorithm: a, Amount: amount, Period: period})
		if err != nil {
			t.Fatal(err)
		}
		c := &count{limit: limit, last: began}
		counts = append(counts, c)
		for range 2 {
			done.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
					d, err := limiter.Allow(t.Context(), "under load", c.limit)
					if err != nil {
						t.Error(err)
						return
					}
					if now := time.Now(); d.Allowed {
						c.mu.Lock()
						c.admitted++
						c.longest, c.last = max(c.longest, now.Sub(c.last)), now
						c.mu.Unlock()
					}
				}
			})
		}
	}
	// rest lets the callers go on between two jumps; in short form no longer than until
	// each limit has admitted another burst.
	rest := func() {
		began := time.Now()
		time.Sleep(period)
		for time.Since(began) < between {
			if testing.Short() && !slices.ContainsFunc(counts, func(c *count) bool { return !c.admittedAfter(began.Add(period)) }) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	for _, by := range jumped {
		rest()
		clock.Jump(t, by)
	}
	rest()
	took := time.Since(began)
	close(stop)
	done.Wait()
	slow := 300*time.Millisecond + 10*paused() // a busy machine is late with calls, their answers and what follows
	for _, c := range counts {
		name, burst := c.limit.Spec().Algorithm, amount
		if name == stint.FixedWindow || name == stint.SlidingWindow {
			burst *= 2 // around a border
		}
		most := (1+len(jumped))*burst + int(took/period+1)*amount
		t.Logf("%s: in %s with %d jumps %d were admitted, at most %d; none for %s at the longest",
			name, took.Round(time.Millisecond), len(jumped), c.admitted, most, c.longest)
		if c.admitted > most {
			t.Errorf("%s: %d were admitted, at most %d", name, c.admitted, most)
		}
		if c.longest > time.Second+period+period/10+slow {
			t.Errorf("%s: locked for %s", name, c.longest)
		}
	}
}

// A clock that jumps back under an exhausted key and a banned one. Neither is held
// longer than its own time, and neither comes back when the clock does.
func TestClocksOfBans(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	store := open(t, server.URL())
	limiter := stint.NewLimiter(store)
	limit := stint.MustLimit("1 per 1m")
	p := penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: time.Minute, ForgetAfter: time.Minute})
	ask := func(key string) stint.Decision {
		t.Helper()
		d, err := limiter.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Cost: 1, Penalty: p}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		by     time.Duration
		banned bool
	}{
		{-time.Second, true}, {time.Second, true}, {-59 * time.Second, true}, {59 * time.Second, true},
		{-time.Hour, false}, {time.Hour, false}, {-24 * time.Hour, false}, {24 * time.Hour, false},
	} {
		key := c.by.String()
		ask(key)
		if d := ask(key); d.Outcome != stint.Banned || d.BanLeft != time.Minute {
			t.Fatalf("no ban: %+v", d)
		}
		clock.Jump(t, c.by)
		d := ask(key)
		switch {
		case d.BanLeft > time.Minute || d.BanLeft > 0 != c.banned || d.Allowed == c.banned:
			t.Errorf("after a jump by %s: %+v", c.by, d)
		case !c.banned && c.by < 0:
			// Of the ban nothing is left, even when the clock comes to it again.
			clock.Jump(t, -c.by)
			if r, err := store.Record(t.Context(), key, p); err != nil || r.BanLeft != 0 || r.Bans != 0 {
				t.Errorf("the ban that a jump by %s ended is back: %+v, %v", c.by, r, err)
			}
			clock.Jump(t, c.by)
		}
		clock.Jump(t, -c.by)
		server.Do(t, "FLUSHALL")
	}
}

// A replica with another clock takes over, an hour behind its master and then, with
// the first back in its place, an hour ahead.
func TestClocksOfTwoServers(t *testing.T) {
	t.Parallel()
	const amount, period = 5, time.Second
	first, _ := redistest.StartWithClock(t)
	second, clock := redistest.StartWithClock(t)
	clock.Jump(t, -time.Hour)
	limit := stint.MustLimit("5 per 1s sliding_log")
	banned := penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: time.Minute, ForgetAfter: time.Minute})
	follow := func(replica, master *redistest.Server) {
		t.Helper()
		replica.Do(t, "REPLICAOF", "127.0.0.1", master.Addr[len("127.0.0.1:"):])
		await.Until(t, "the replica follows", func() bool { return replica.Info("replication", "master_link_status") == "up" })
	}
	admit := func(s *stint.Limiter) (n int) {
		t.Helper()
		for range 4 * amount {
			d, err := s.Allow(t.Context(), "a", limit)
			if err != nil {
				t.Fatal(err)
			}
			if d.Allowed {
				n++
			}
		}
		return n
	}
	pairs := [][2]*redistest.Server{{second, first}, {first, second}}
	if testing.Short() {
		pairs = pairs[:1] // the replica is an hour ahead
	}
	for _, pair := range pairs {
		master, replica := pair[0], pair[1]
		follow(replica, master)
		before, after := stint.NewLimiter(open(t, master.URL())), open(t, replica.URL())
		n := admit(before)
		if _, err := before.Violate(t.Context(), "b", banned); err != nil {
			t.Fatal(err)
		}
		master.Do(t, "WAIT", "1", "5000")
		replica.Do(t, "REPLICAOF", "NO", "ONE")
		m := admit(stint.NewLimiter(after))
		if n > amount || m > amount {
			t.Errorf("%d admitted before and %d after; at most one burst of %d each", n, m, amount)
		}
		if m == 0 {
			t.Error("locked by a clock an hour apart")
		}
		if d, err := stint.NewLimiter(after).Allow(t.Context(), "a", limit); err != nil || d.RetryAfter > 2*period {
			t.Errorf("locked for %s, more than two periods, %v", d.RetryAfter, err)
		}
		await.Until(t, "another burst is admitted", func() bool { return admit(stint.NewLimiter(after)) > 0 })
		if r, err := after.Record(t.Context(), "b", banned); err != nil || r.BanLeft != 0 {
			t.Errorf("banned by a clock an hour apart: %+v, %v", r, err)
		}
	}
}

// Instances that died before the clock jumped back are not counted for ever.
func TestHeartbeatsOfClocks(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	a, b := open(t, server.URL()), open(t, server.URL())
	for _, by := range []time.Duration{-time.Hour, time.Hour, -24 * time.Hour} {
		if _, err := a.Heartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, err := b.Heartbeat(t.Context()); n != 2 || err != nil {
			t.Fatalf("%d live, %v", n, err)
		}
		clock.Jump(t, by)
		for range 2 {
			if n, err := b.Heartbeat(t.Context()); n != 1 || err != nil {
				t.Errorf("after a jump by %s: %d live, %v; want b alone", by, n, err)
			}
		}
	}
}
