package redislimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit/internal/conn"
)

// gate is a Client that lets calls of scripts pass when it is told to.
type gate struct {
	Client
	pass  chan struct{}
	mu    sync.Mutex
	calls int
}

func (g *gate) Do(ctx context.Context, args ...string) (any, error) {
	if args[0] != "EVALSHA" {
		return g.Client.Do(ctx, args...)
	}
	g.mu.Lock()
	g.calls++
	g.mu.Unlock()
	<-g.pass
	return g.Client.Do(context.Background(), args...)
}

// made is how many calls have come to the gate.
func (g *gate) made() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

// gated is a Store behind a gate, over a server of its own.
func gated(t *testing.T) (*redistest.Server, *Store, *gate) {
	t.Helper()
	server := redistest.Start(t)
	to, err := parseAddress(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	c, err := conn.New(to, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := &gate{Client: c, pass: make(chan struct{})}
	s, err := New(t.Context(), g, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return server, s, g
}

// queued is how many asks wait in the queue.
func (s *Store) queued() int {
	s.merger.mu.Lock()
	defer s.merger.mu.Unlock()
	if q := s.merger.queues[0]; q != nil {
		return q.asks
	}
	return 0
}

// busy starts as many calls as are made before requests wait.
func busy(t *testing.T, s *Store, g *gate, limit *stint.Limit, done *sync.WaitGroup) {
	t.Helper()
	for n := range fewCalls {
		done.Go(func() {
			if _, err := stint.NewLimiter(s).Allow(context.Background(), "busy", limit); err != nil {
				t.Error(err)
			}
		})
		await.Until(t, "a call is under way", func() bool { return g.made() == n+1 })
	}
}

// What waits goes in one call, whatever it costs, first come, first served; a key
// that is broken concerns its own caller only, and who leaves is not charged.
func TestMerged(t *testing.T) {
	server, s, g := gated(t)
	limit, log := stint.MustLimit("10 per 1h"), stint.MustLimit("3 per 1h sliding_log")
	server.Do(t, "LPUSH", s.key("broken", limit.ID()), "x")
	var done sync.WaitGroup
	busy(t, s, g, limit, &done)
	l := stint.NewLimiter(s)
	ctx, leave := context.WithCancel(t.Context())
	type told struct {
		d   stint.Decision
		err error
	}
	calls := []struct {
		key   string
		limit *stint.Limit
		cost  int64
		want  string
	}{
		{"a", limit, 1, "true 9"},
		{"a", limit, 1, "true 8"},
		{"broken", limit, 1, "broken"},
		{"b", log, 2, "true 1"},
		{"a", limit, 5, "true 3"}, // ends a run
		{"leaves", limit, 1, "unsent"},
		{"a", limit, 1, "true 2"},
		{"a", limit, 1, "true 1"},
		{"b", log, 2, "false 1"},
		{"a", limit, 1, "true 0"},
		{"a", limit, 1, "false 0"},
		{"a", limit, 0, "true 0"},
		{"b", log, 1, "true 0"},
	}
	got := make([]told, len(calls))
	for i, c := range calls {
		before := s.queued()
		done.Go(func() {
			ctx := ctx
			if c.key != "leaves" {
				ctx = context.Background()
			}
			got[i].d, got[i].err = l.AllowN(ctx, c.key, c.limit, c.cost)
		})
		await.Until(t, "it waits", func() bool { return s.queued() == before+1 })
	}
	leave()
	await.Until(t, "one has left", func() bool { return s.queued() == len(calls)-1 })
	close(g.pass)
	done.Wait()
	if g.made() != fewCalls+1 {
		t.Errorf("%d calls, want %d", g.made(), fewCalls+1)
	}
	for i, c := range calls {
		have := fmt.Sprint(got[i].d.Allowed, got[i].d.Remaining)
		switch err := got[i].err; {
		case errors.Is(err, fleet.ErrNotCharged) && errors.Is(err, context.Canceled):
			have = "unsent"
		case errors.Is(err, fleet.ErrBroken):
			have = "broken"
		case err != nil:
			have = err.Error()
		}
		if have != c.want {
			t.Errorf("%d: %s ×%d: %s, want %s", i, c.key, c.cost, have, c.want)
		}
	}
	if n, err := server.Do(t, "EXISTS", s.key("leaves", limit.ID())).AsInt64(); n != 0 || err != nil {
		t.Error("who left was charged", err)
	}
	await.Until(t, "no queue and no call is left", func() bool {
		s.merger.mu.Lock()
		defer s.merger.mu.Unlock()
		return len(s.merger.queues) == 0 && s.merger.calls == 0
	})
}

// Who leaves a call that is under way may have been charged, and was.
func TestCancelDuringCall(t *testing.T) {
	_, s, g := gated(t)
	limit := stint.MustLimit("10 per 1h")
	ctx, leave := context.WithCancel(t.Context())
	told := make(chan error)
	go func() {
		_, err := stint.NewLimiter(s).Allow(ctx, "a", limit)
		told <- err
	}()
	await.Until(t, "a call is under way", func() bool { return g.made() == 1 })
	leave()
	if err := <-told; !errors.Is(err, context.Canceled) || errors.Is(err, fleet.ErrNotCharged) {
		t.Error(err)
	}
	close(g.pass)
	await.Until(t, "it is charged", func() bool { // two calls under way may overtake each other
		d, err := stint.NewLimiter(s).Peek(t.Context(), "a", limit)
		return err == nil && d.Remaining == 9
	})
}

// A full call leaves while others are under way, so that a slow network does not
// limit how many are decided.
func TestManyCalls(t *testing.T) {
	_, s, g := gated(t)
	limit := stint.MustLimit("1000000 per 1h")
	var done sync.WaitGroup
	busy(t, s, g, limit, &done)
	for i := range 4 * mergedAsks {
		done.Go(func() {
			if _, err := stint.NewLimiter(s).Allow(context.Background(), fmt.Sprint(i), limit); err != nil {
				t.Error(err)
			}
		})
	}
	await.Until(t, "calls leave", func() bool { return g.made() > fewCalls+2 })
	close(g.pass)
	done.Wait()
}

// A run is its requests, one after another: whatever lies under the keys, whatever
// they cost, and however many they are, all numbers are those of Memory.
func TestRuns(t *testing.T) {
	t.Parallel()
	s, err := Connect(t.Context(), redistest.Start(t).URL(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rng := rand.New(rand.NewPCG(attack.Seed(t), 1))
	rounds := 3000
	if testing.Short() {
		rounds = 500
	}
	var limits []*stint.Limit
	for range 40 {
		spec := stint.Spec{Algorithm: stint.Algorithm(rng.IntN(3)), Amount: 1 + rng.Int64N(40), Period: time.Duration(1+rng.IntN(5000)) * time.Millisecond}
		if rng.IntN(3) == 0 {
			spec.Algorithm = []stint.Algorithm{stint.TokenBucket, stint.FixedWindow, stint.SlidingLog, stint.SlidingWindow, stint.InFlight}[rng.IntN(5)]
			spec.Hold = time.Duration(1+rng.IntN(900)) * time.Millisecond
		}
		if rng.IntN(4) == 0 {
			spec.Amount = 1 + rng.Int64N(1<<40)
		}
		if spec.Algorithm <= stint.LeakyBucket && rng.IntN(2) == 0 {
			spec.Burst = 1 + rng.Int64N(60)
		}
		if spec.Algorithm == stint.InFlight {
			spec.Period = 0
		}
		spec.Name = fmt.Sprint("l", rng.IntN(4)) // some differ from others under one name
		if l, err := stint.NewLimit(spec); err == nil {
			limits = append(limits, l)
		}
	}
	memory := new(stint.Memory)
	at := time.UnixMicro(1e15)
	var held []stint.Request
	runs, partly, heldRuns, calls := 0, 0, 0, 0
	for round := range rounds {
		at = at.Add(time.Duration(rng.Int64N(int64(300 * time.Millisecond)))).Truncate(time.Microsecond)
		b := batch{at: at}
		type one struct {
			r    stint.Request
			call *stint.HoldCall // in place of r
			spot
		}
		var all []one
		for range 1 + rng.IntN(4) {
			r := stint.Request{At: at}
			for range 1 + rng.IntN(2) {
				l := limits[rng.IntN(len(limits))]
				cost := rng.Int64N(4)
				if rng.IntN(5) == 0 {
					cost = rng.Int64N(l.Capacity() + 2)
				}
				r.Asks = append(r.Asks, stint.Ask{Key: fmt.Sprint("k", rng.IntN(3)), Limit: l, Cost: cost, Peek: cost == 0})
			}
			if stint.Internal(friend.Of{}).Check(&r) != nil {
				continue
			}
			holding := rng.IntN(101) // of a hundred, how many hold
			for range 1 + rng.IntN(12) {
				o := one{r: r}
				if rng.IntN(100) < holding {
					o.r.Hold = stint.NewHoldID()
					held = append(held, o.r)
				}
				if n := len(held); n > 0 && rng.IntN(3) == 0 {
					o.call = callAbout(rng, &held[n-1-rng.IntN(min(n, 100))])
					o.spot = s.addCall(&b, o.call)
					all = append(all, o)
					continue
				}
				o.spot = s.add(&b, &o.r)
				all = append(all, o)
			}
		}
		if len(all) == 0 {
			continue
		}
		reply, err := s.run(t.Context(), &b)
		if err != nil {
			t.Fatal(err)
		}
		answers := make([]string, len(b.groups))
		for i := range b.groups {
			if answers[i], reply, err = cut(reply, &b.groups[i]); err != nil {
				t.Fatal(err)
			}
			if n := b.groups[i].count; n > 1 {
				runs++
				if answers[i][0] == 2 && answers[i][10] > 0 {
					partly++
				}
				if len(b.groups[i].beside) > 0 && !b.groups[i].calls {
					heldRuns++
				}
			}
		}
		// Groups are decided in their order, their requests in theirs.
		for g := range b.groups {
			for _, o := range all {
				if o.group != g {
					continue
				}
				if o.call != nil {
					want, have := []stint.HoldCall{*o.call}, *o.call
					memory.Holds(t.Context(), at, want)
					s.readCall(&have, answers[g], o.place)
					if have != want[0] {
						t.Fatalf("round %d, place %d, under %s:\n got %+v\nwant %+v", round, o.place, have.Limit, have, want[0])
					}
					calls++
					continue
				}
				want, have := make([]stint.Decision, len(o.r.Asks)), make([]stint.Decision, len(o.r.Asks))
				d, err := memory.Take(t.Context(), &o.r, want)
				if err != nil {
					t.Fatal(err)
				}
				e, err := s.read(answers[g], &o.r, o.place, have)
				if err != nil {
					t.Fatal(err)
				}
				if d != e || fmt.Sprint(want) != fmt.Sprint(have) {
					t.Fatalf("round %d, place %d of %+v:\n got %+v\nwant %+v", round, o.place, o.r.Asks, have, want)
				}
			}
		}
	}
	t.Logf("%d runs, %d of them admitted in part, %d of them held; %d calls", runs, partly, heldRuns, calls)
	if runs < rounds/10 || partly < rounds/100 || heldRuns < rounds/10 || calls < rounds {
		t.Error("that proves too little")
	}
}

// callAbout is a call about one of the holds of r.
func callAbout(rng *rand.Rand, r *stint.Request) *stint.HoldCall {
	a := r.Asks[rng.IntN(len(r.Asks))]
	c := &stint.HoldCall{Key: a.Key, Limit: a.Limit, Hold: r.Hold, Units: a.Units(), For: r.HoldFor, Cost: rng.Int64N(4)}
	switch n := rng.IntN(8); {
	case !a.Limit.IsHeld():
		c.Action = stint.HoldCharge
	case n == 0:
		c.Action, c.Again = stint.HoldRenew, rng.IntN(2) == 0
	case n == 1:
		c.Action = stint.HoldRelease
	case n == 2 && a.Limit.Spec().Algorithm != stint.InFlight:
		c.Action = stint.HoldCharge
	}
	return c
}

// Requests that share a key keep their order, whatever goes together.
func TestGroupsKeepOrder(t *testing.T) {
	s, err := newStore(nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, m := stint.MustLimit("10 per 1s"), stint.MustLimit("20 per 1s")
	penalty, err := stint.NewPenalty(stint.PenaltySpec{WarnAfter: 1})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(key string, l *stint.Limit, cost int64) []stint.Ask {
		return []stint.Ask{{Key: key, Limit: l, Cost: cost, Peek: cost == 0}}
	}
	punished := ask("a", l, 1)
	punished[0].Penalty = penalty
	var b batch
	var got []string
	for _, asks := range [][]stint.Ask{
		ask("a", l, 1), ask("b", l, 1), ask("a", l, 1), // 0 1 0
		ask("a", l, 2), ask("a", l, 1), // 2 3: not with 0
		ask("b", l, 1), ask("a", m, 1), // 1; 4: another limit of that name, so the same key
		punished, punished, ask("a", l, 1), // 5 6 7
	} {
		at := s.add(&b, &stint.Request{Asks: asks})
		got = append(got, fmt.Sprintf("%d.%d", at.group, at.place))
	}
	if have, want := strings.Join(got, " "), "0.0 1.0 0.1 2.0 3.0 1.1 4.0 5.0 6.0 7.0"; have != want {
		t.Errorf("got %s\nwant %s", have, want)
	}
}

// refusing is a Client whose scripts fail.
type refusing struct{ err error }

func (r refusing) Do(_ context.Context, args ...string) (any, error) {
	if args[0] == "INFO" {
		return "redis_version:7.0.0\r\n", nil
	}
	return nil, r.err
}

// An error says that nothing was charged only where that is certain.
func TestNotCharged(t *testing.T) {
	for text, certain := range map[string]bool{
		"READONLY You can't write against a read only replica.":                  true,
		"OOM command not allowed when used memory > 'maxmemory'.":                true,
		"LOADING Redis is loading the dataset in memory":                         true,
		"CLUSTERDOWN Hash slot not served":                                       true,
		"MASTERDOWN Link with MASTER is down":                                    true,
		"BUSY Redis is busy running a script.":                                   true,
		"NOPERM this user has no permissions to run the 'rpush' command":         false,
		"ERR The user executing the script can't run this command or subcommand": false,
		"ERR Error running script (call to f_2b): @user_script:12: @user_script: 12: -READONLY You can't write against a read only replica.": true,
		"ERR Error running script: @user_script:1: Script killed by user with ...":                                                           false,
	} {
		s, err := New(t.Context(), refusing{errors.New(text)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stint.NewLimiter(s).Allow(t.Context(), "a", stint.MustLimit("1 per 1s")); err == nil || errors.Is(err, fleet.ErrNotCharged) != certain {
			t.Errorf("%s: %v", text, err)
		}
	}
	s, err := New(t.Context(), refusing{io.EOF}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stint.NewLimiter(s).Allow(t.Context(), "a", stint.MustLimit("1 per 1s")); !errors.Is(err, io.EOF) || errors.Is(err, fleet.ErrNotCharged) {
		t.Error(err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := stint.NewLimiter(s).Allow(done, "a", stint.MustLimit("1 per 1s")); !errors.Is(err, fleet.ErrNotCharged) {
		t.Error(err)
	}
}

// A bucket costs Redis hardly more than a number, and the exact log a tenth of a
// sorted set.
func TestBytes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, err := Connect(t.Context(), server.URL(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	usage := func(key string) int64 {
		n, err := server.Do(t, "MEMORY", "USAGE", key, "SAMPLES", "0").AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	l := stint.NewLimiter(s)
	bucket, log := stint.MustLimit("100 per 1h"), stint.MustLimit("10000 per 1h sliding_log")
	if _, err := l.Allow(t.Context(), "user:1234567", bucket); err != nil {
		t.Fatal(err)
	}
	key := s.key("user:1234567", bucket.ID())
	with := usage(key)
	server.Do(t, "SET", key, "1234567", "PX", "3600000")
	bare := usage(key)
	if with > bare+20 {
		t.Errorf("a bucket takes %d bytes, a number %d", with, bare)
	}
	const entries = 5000
	at := time.Now()
	for i := range entries {
		r := stint.Request{At: at.Add(time.Duration(i) * 360 * time.Millisecond), Asks: []stint.Ask{{Key: "a", Limit: log, Cost: 1}}}
		if d, err := s.Take(t.Context(), &r, nil); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	each := float64(usage(s.key("a", log.ID()))) / entries
	t.Logf("a bucket takes %d bytes, a number %d; an entry of a log %.1f", with, bare, each)
	if each > 11 {
		t.Errorf("an entry of a log takes %.1f bytes", each)
	}
}

// silent is a Client whose scripts never return.
type silent struct{}

func (silent) Do(ctx context.Context, args ...string) (any, error) {
	if args[0] == "INFO" {
		return "redis_version:7.0.0\r\n", nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// A Client of the user's own that does not answer holds up no caller for longer than two
// seconds, neither of a request nor of a list, though they set no deadline.
func TestSilentClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(t.Context(), silent{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := by(0, stint.MustLimit("10 per 1h"), "a")
		for name, take := range map[string]func() error{
			"one": func() error { _, err := s.Take(context.Background(), r, nil); return err },
			"list": func() error {
				answers := make([]stint.Answer, 1)
				s.TakeBatch(context.Background(), []stint.Request{*r}, answers)
				return answers[0].Err
			},
		} {
			began := time.Now()
			if err := take(); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fleet.ErrNotCharged) || time.Since(began) != 2*time.Second {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
		}
	})
}
