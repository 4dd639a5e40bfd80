package redislimit_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/attack"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

func holdUnder(t *testing.T, s *redislimit.Store, asks ...stint.Ask) (stint.HoldID, stint.Decision, []stint.Decision) {
	t.Helper()
	r := stint.Request{Asks: asks, Hold: stint.NewHoldID()}
	each := make([]stint.Decision, len(asks))
	d, err := s.Take(t.Context(), &r, each)
	if err != nil {
		t.Fatal(err)
	}
	return r.Hold, d, each
}

func holdCall(t *testing.T, s *redislimit.Store, c stint.HoldCall) stint.HoldCall {
	t.Helper()
	calls := []stint.HoldCall{c}
	if s.Holds(t.Context(), time.Time{}, calls); calls[0].Err != nil {
		t.Fatal(calls[0].Err)
	}
	return calls[0]
}

// By the server's clock: a hold that runs out is free, its key expires with it, and a hold that is
// renewed stays. What was released is not made again, what the server lost is.
func TestHoldRunsOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	limit := stint.MustLimit("2 in_flight hold 300ms retry 40ms")
	ask := stint.Ask{Key: "a", Limit: limit}
	first, d, _ := holdUnder(t, s, ask)
	second, e, _ := holdUnder(t, s, ask)
	if !d.Allowed || !e.Allowed || e.Held != 2 || e.Remaining != 0 || e.ResetAfter != 300*time.Millisecond {
		t.Fatalf("%+v, %+v", d, e)
	}
	if _, d, _ := holdUnder(t, s, ask); d.Allowed || !d.Busy || d.RetryAfter != 40*time.Millisecond {
		t.Fatalf("%+v", d)
	}
	held, err := s.Held(t.Context(), "a", []*stint.Limit{limit, stint.MustLimit("5 per 1s")})
	if err != nil || len(held) != 2 || held[0].Limit != limit || held[0].Units != 1 || held[0].For != 300*time.Millisecond || held[0].Left <= 0 {
		t.Fatalf("%+v, %v", held, err)
	}
	if ids := []stint.HoldID{held[0].ID, held[1].ID}; !slices.Contains(ids, first) || !slices.Contains(ids, second) {
		t.Errorf("%v, want %v and %v", ids, first, second)
	}
	call := func(action stint.HoldAction, id stint.HoldID, again bool) stint.HoldCall {
		return holdCall(t, s, stint.HoldCall{Action: action, Key: "a", Limit: limit, Hold: id, Units: 1, Again: again})
	}
	await.Until(t, "the second hold has run out", func() bool {
		c := call(stint.HoldRenew, first, true)
		return c.Held == 1 && c.Found
	})
	if c := call(stint.HoldSettle, second, false); c.Found {
		t.Errorf("it was settled after it ran out: %+v", c)
	}
	if c := call(stint.HoldRelease, first, false); !c.Found || c.Held != 0 {
		t.Errorf("%+v", c)
	}
	if c := call(stint.HoldRenew, first, true); c.Found || c.Held != 0 {
		t.Errorf("it was made again after its release: %+v", c)
	}
	server.Do(t, "FLUSHALL")
	if c := call(stint.HoldRenew, second, false); c.Found || c.Held != 0 {
		t.Errorf("%+v", c)
	}
	if c := call(stint.HoldRenew, second, true); c.Found || c.Held != 1 {
		t.Errorf("what the server lost was not made again: %+v", c)
	}
	if c := call(stint.HoldSettle, second, false); !c.Found || c.Held != 0 || c.Remaining != 2 {
		t.Errorf("%+v", c)
	}
	if keys, err := server.Do(t, "KEYS", "*").AsStrSlice(); err != nil || len(keys) > 0 {
		t.Errorf("left: %q, %v", keys, err)
	}
	holdUnder(t, s, ask)
	if ms, err := server.Do(t, "PTTL", "stint:{1:a}hi:").AsInt64(); err != nil || ms < 1 || ms > 500 {
		t.Errorf("it expires after %d ms, %v", ms, err)
	}
}

// In a Cluster, a request that holds in several slots holds in all, or in none.
func TestClusterHolds(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	memory := new(stint.Memory)
	limits := []*stint.Limit{stint.MustLimit("9 per 10s hold 2s"), stint.MustLimit("4 in_flight hold 3s"), stint.MustLimit("12 per 2s sliding_log"), stint.MustLimit("8 per 1s sliding_window hold")}
	at, rng, refused := time.UnixMicro(1e15), rand.New(rand.NewPCG(attack.Seed(t), 2)), 0
	var made []stint.Request
	for range 2000 {
		at = at.Add(time.Duration(rng.IntN(60)) * time.Millisecond)
		if n := len(made); n > 0 && rng.IntN(3) == 0 {
			r := made[n-1-rng.IntN(min(n, 8))]
			var calls []stint.HoldCall
			for _, a := range r.Asks {
				if a.Limit.IsHeld() {
					calls = append(calls, stint.HoldCall{Key: a.Key, Limit: a.Limit, Hold: r.Hold, Units: a.Units(), Cost: rng.Int64N(4)})
				}
			}
			want := slices.Clone(calls)
			s.Holds(t.Context(), at, calls)
			memory.Holds(t.Context(), at, want)
			if !slices.Equal(calls, want) {
				t.Fatalf("\n got %+v\nwant %+v", calls, want)
			}
			continue
		}
		r := stint.Request{At: at, Hold: stint.NewHoldID()}
		for _, i := range rng.Perm(5)[:1+rng.IntN(4)] {
			r.Asks = append(r.Asks, stint.Ask{Key: fmt.Sprint("user", i), Limit: limits[rng.IntN(len(limits))], Cost: 1 + rng.Int64N(3)})
		}
		got, want := make([]stint.Decision, len(r.Asks)), make([]stint.Decision, len(r.Asks))
		d, err := s.Take(t.Context(), &r, got)
		e, err2 := memory.Take(t.Context(), &r, want)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if d.Allowed != e.Allowed || d.Busy != e.Busy || d.RetryAfter != e.RetryAfter {
			t.Fatalf("%+v:\n got %+v\nwant %+v", r, got, want)
		}
		for i := range got {
			if got[i].Allowed != want[i].Allowed || got[i].Remaining != want[i].Remaining || got[i].Held != want[i].Held || got[i].RetryAfter != want[i].RetryAfter {
				t.Fatalf("%+v, ask %d:\n got %+v\nwant %+v", r, i, got[i], want[i])
			}
		}
		if !d.Allowed {
			refused++
		}
		made = append(made, r)
	}
	if refused < 200 {
		t.Errorf("only %d were refused", refused)
	}
}

// Two instances settle the same holds at the same time: each is charged once.
func TestTwoSettle(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := open(t, server.URL()), open(t, server.URL())
	limit := stint.MustLimit("1000000 per 24h fixed_window hold 10m")
	holds, keys := 100_000, 40
	if testing.Short() {
		holds = 10_000
	}
	ids := make([]stint.HoldID, holds)
	inTurns(t, 64, holds, func(i int) error {
		ids[i] = stint.NewHoldID()
		d, err := a.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: fmt.Sprint("k", i%keys), Limit: limit, Cost: 3}}, Hold: ids[i]}, nil)
		if err == nil && !d.Allowed {
			err = fmt.Errorf("%+v", d)
		}
		return err
	})
	var found atomic.Int64
	var wg sync.WaitGroup
	for _, s := range []*redislimit.Store{a, b} {
		wg.Go(func() {
			inTurns(t, 64, holds, func(i int) error {
				calls := []stint.HoldCall{{Key: fmt.Sprint("k", i%keys), Limit: limit, Hold: ids[i], Units: 3, Cost: 2}}
				s.Holds(t.Context(), time.Time{}, calls)
				if calls[0].Found {
					found.Add(1)
				}
				return calls[0].Err
			})
		})
	}
	wg.Wait()
	if found.Load() != int64(holds) {
		t.Errorf("%d of %d were settled", found.Load(), holds)
	}
	for k := range keys {
		d, err := a.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: fmt.Sprint("k", k), Limit: limit, Peek: true}}}, nil)
		if used := limit.Capacity() - d.Remaining; err != nil || d.Held != 0 || used != int64(holds/keys*2) {
			t.Errorf("k%d: %d used, %d held, %v", k, used, d.Held, err)
		}
	}
}

// inTurns calls f with 0 to n-1 from so many goroutines.
func inTurns(t *testing.T, callers, n int, f func(int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A hold costs at most 100 bytes of Redis, however large its units, and no more than 4,096 count.
func TestHoldBytes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	for _, c := range []struct {
		text string
		cost int64
	}{{"5000 in_flight hold 1h", 1}, {"4000000000000 per 1h fixed_window hold 1h", 900_000_000}} {
		limit := stint.MustLimit(c.text)
		key := "stint:{1:k}h" + limit.ID()
		for _, n := range []int{100, 1000, 4096} {
			for {
				id, d, _ := holdUnder(t, s, stint.Ask{Key: "k", Limit: limit, Cost: c.cost})
				if !d.Allowed {
					t.Fatalf("%+v", d)
				}
				if d.Held == int64(n)*c.cost {
					if n == 4096 {
						if _, d, _ := holdUnder(t, s, stint.Ask{Key: "k", Limit: limit, Cost: c.cost}); d.Allowed || !d.Busy || d.Held != 4096*c.cost {
							t.Errorf("%+v", d)
						}
						holdCall(t, s, stint.HoldCall{Key: "k", Limit: limit, Hold: id, Units: c.cost})
						if _, d, _ := holdUnder(t, s, stint.Ask{Key: "k", Limit: limit, Cost: c.cost}); !d.Allowed {
							t.Errorf("%+v", d)
						}
					}
					break
				}
			}
			bytes, err := server.Do(t, "MEMORY", "USAGE", key, "SAMPLES", "0").AsInt64()
			if err != nil {
				t.Fatal(err)
			}
			each := float64(bytes) / float64(n)
			t.Logf("%s: %d holds of %.1f bytes", limit.Spec().Algorithm, n, each)
			if each > 100 {
				t.Errorf("%s: %d holds of %.1f bytes: want at most 100", limit.Spec().Algorithm, n, each)
			}
		}
	}
}

// After an instance has died, its holds run out one after another. Each is free at its instant, and few
// of the looks that find one read all the others.
func TestHoldsOfTheDead(t *testing.T) {
	defer redislimit.ClockOfInstants()()
	server := redistest.Start(t)
	s := open(t, server.URL())
	limit := stint.MustLimit("9000000000000 per 1h fixed_window hold 10s")
	const n, units, apart = 4096, 900_000_000, 250 * time.Microsecond // all within about a second
	at := time.UnixMicro(4e15)
	rs, answers := make([]stint.Request, n), make([]stint.Answer, n)
	for i := range rs {
		rs[i] = stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: units}}, Hold: stint.NewHoldID(), At: at.Add(time.Duration(i) * apart)}
		if answers[i].Decision, answers[i].Err = s.Take(t.Context(), &rs[i], nil); answers[i].Err != nil || !answers[i].Allowed {
			t.Fatalf("%+v", answers[i])
		}
	}
	server.Do(t, "CONFIG", "RESETSTAT")
	for i := range rs {
		r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Peek: true}}, At: rs[i].At.Add(10 * time.Second)}
		d, err := s.Take(t.Context(), &r, nil)
		if err != nil || d.Held != int64(n-1-i)*units {
			t.Fatalf("after %d have run out: %+v, %v", i+1, d, err)
		}
		if i == 0 {
			bytes, err := server.Do(t, "MEMORY", "USAGE", "stint:{1:k}h"+limit.ID(), "SAMPLES", "0").AsInt64()
			if each := float64(bytes) / (n - 1); err != nil || each > 100 {
				t.Errorf("%.1f bytes a hold with the agenda, %v: want at most 100", each, err)
			}
		}
	}
	if reads := called(t, server, "hgetall"); reads > 120 {
		t.Errorf("%d looks of %d read all holds", reads, n)
	}
	if keys, err := server.Do(t, "KEYS", "*").AsStrSlice(); err != nil || len(keys) > 0 {
		t.Errorf("left: %q, %v", keys, err)
	}
}

// called is how often a server has run a command.
func called(t testing.TB, server *redistest.Server, command string) (calls int) {
	t.Helper()
	text, err := server.Do(t, "INFO", "commandstats").ToString()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(text, "cmdstat_"+command+":calls=")
	_, _ = fmt.Sscanf(after, "%d", &calls)
	return calls
}

// A list of more identical requests than one command of a script takes goes as one, and the holds that
// it makes are settled as a list.
func TestHoldList(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).URL())
	limit := stint.MustLimit("4100 in_flight hold 10m")
	rs, answers := make([]stint.Request, 5000), make([]stint.Answer, 5000)
	for i := range rs {
		rs[i] = stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}}, Hold: stint.NewHoldID()}
	}
	s.TakeBatch(t.Context(), rs, answers)
	var calls []stint.HoldCall
	for i, a := range answers {
		if a.Err != nil || a.Allowed != (i < 4096) || a.Busy == a.Allowed {
			t.Fatalf("%d: %+v", i, a)
		}
		calls = append(calls, stint.HoldCall{Action: stint.HoldRenew, Key: "k", Limit: limit, Hold: rs[i].Hold, Units: 1})
	}
	s.Holds(t.Context(), time.Time{}, calls)
	for i := range calls {
		if calls[i].Err != nil || calls[i].Found != (i < 4096) || calls[i].Held != 4096 {
			t.Fatalf("%d: %+v", i, calls[i])
		}
		calls[i].Action = stint.HoldSettle
	}
	s.Holds(t.Context(), time.Time{}, calls)
	for i := range calls {
		if calls[i].Err != nil || calls[i].Found != (i < 4096) || calls[i].Held != int64(max(0, 4095-i)) {
			t.Fatalf("%d: %+v", i, calls[i])
		}
	}
}

// A server that has no room makes no hold, and says so. One whose key holds something else says
// which.
func TestHoldNotMade(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	limit, rate := stint.MustLimit("5 in_flight"), stint.MustLimit("9 per 1h")
	asks := []stint.Ask{{Key: "a", Limit: rate}, {Key: "a", Limit: limit}}
	id, _, _ := holdUnder(t, s, asks...)
	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	_, err := s.Take(t.Context(), &stint.Request{Asks: asks, Hold: stint.NewHoldID()}, nil)
	if !errors.Is(err, stint.ErrFull) || !errors.Is(err, fleet.ErrNotCharged) {
		t.Error(err)
	}
	if c := holdCall(t, s, stint.HoldCall{Key: "a", Limit: limit, Hold: id, Units: 1}); !c.Found {
		t.Errorf("a server without room did not settle: %+v", c)
	}
	// Several requests of one call: their holds are written at once, and those of two keys.
	budget := stint.MustLimit("1000 per 1h fixed_window hold")
	var several []stint.Request
	for i, key := range []string{"d", "d", "e", "d", "e"} {
		several = append(several, stint.Request{Asks: []stint.Ask{{Key: key, Limit: budget, Cost: int64(1 + i)}}, Hold: stint.NewHoldID()})
	}
	several = append(several, stint.Request{Asks: []stint.Ask{{Key: "d", Limit: budget, Peek: true}}})
	answers := make([]stint.Answer, len(several))
	s.TakeBatch(t.Context(), several, answers)
	for i, a := range answers[:5] {
		if !errors.Is(a.Err, stint.ErrFull) || !errors.Is(a.Err, fleet.ErrNotCharged) {
			t.Errorf("request %d of a call to a server without room: %+v", i, a)
		}
	}
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	s.TakeBatch(t.Context(), several[5:], answers[5:])
	if a := answers[5]; a.Err != nil || a.Held != 0 {
		t.Errorf("%+v, want nothing held", a)
	}
	s.TakeBatch(t.Context(), several, answers)
	for i, want := range []int64{1, 3, 3, 7, 8, 7} {
		if a := answers[i]; a.Err != nil || a.Held != want {
			t.Errorf("request %d of a call: %+v, want %d held", i, a, want)
		}
	}
	for i, r := range several[:5] {
		if c := holdCall(t, s, stint.HoldCall{Key: r.Asks[0].Key, Limit: budget, Hold: r.Hold, Units: int64(1 + i)}); !c.Found {
			t.Errorf("request %d of a call was not settled: %+v", i, c)
		}
	}
	if _, _, each := holdUnder(t, s, asks...); each[0].Remaining != 7 || each[1].Held != 1 {
		t.Errorf("%+v", each)
	}
	server.Do(t, "SET", "stint:{1:b}hi:", "x")
	server.Do(t, "HSET", "stint:{1:c}hi:", "", "x")
	for _, key := range []string{"b", "c"} {
		_, err := s.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Limit: rate}, {Key: key, Limit: limit}}, Hold: stint.NewHoldID()}, nil)
		calls := []stint.HoldCall{{Key: key, Limit: limit, Hold: id, Units: 1}}
		s.Holds(t.Context(), time.Time{}, calls)
		_, err2 := s.Held(t.Context(), key, []*stint.Limit{limit})
		for _, err := range []error{err, calls[0].Err, err2} {
			if !errors.Is(err, fleet.ErrBroken) {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}

// Requests that hold and settlements that wait together write the head of their key's holds once,
// whichever came first.
func TestHeadWrittenOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	limit, other := stint.MustLimit("100 per 1h fixed_window hold"), stint.MustLimit("other: 100 per 1h")
	ids := holdSome(t, s, "k", limit, 4)
	server.Do(t, "CONFIG", "RESETSTAT")
	thaw := server.Freeze(t)
	var wg sync.WaitGroup
	start := func(asks, calls int, f func()) {
		wg.Go(f)
		await.Until(t, fmt.Sprintf("%d asks wait for %d calls", asks, calls), func() bool {
			a, c := s.Waiting()
			return a == asks && c == calls
		})
	}
	take := func(r stint.Request) {
		if d, err := s.Take(t.Context(), &r, nil); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	}
	for i := range 2 { // as many calls as may be under way before others wait
		start(0, i+1, func() { take(stint.Request{Asks: []stint.Ask{{Key: "o", Limit: other}}}) })
	}
	hold := func() {
		take(stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 5}}, Hold: stint.NewHoldID()})
	}
	settle := func(id stint.HoldID) func() {
		return func() {
			calls := []stint.HoldCall{{Key: "k", Limit: limit, Hold: id, Units: 1, Cost: 3}}
			if s.Holds(t.Context(), time.Time{}, calls); !calls[0].Found || calls[0].Charged != 3 {
				t.Errorf("%+v", calls[0])
			}
		}
	}
	start(1, 2, hold)
	start(2, 2, settle(ids[0]))
	start(3, 2, hold)
	start(4, 2, settle(ids[1]))
	thaw()
	wg.Wait()
	if n := called(t, server, "hset"); n != 1 {
		t.Errorf("%d writes of holds: want 1", n)
	}
	held, err := s.Held(t.Context(), "k", []*stint.Limit{limit})
	if _, d, _ := holdUnder(t, s, stint.Ask{Key: "k", Limit: limit}); err != nil || len(held) != 4 || d.Held != 13 || d.Remaining != 100-6-13 {
		t.Errorf("%+v, %+v, %v", held, d, err)
	}
}
