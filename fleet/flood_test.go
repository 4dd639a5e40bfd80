package fleet_test

import (
	"errors"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/limittest"
)

// target is who is to stay refused through a flood: keys that are exhausted, and
// one that is banned.
type target struct {
	*stint.Limiter
	limit   *stint.Limit
	penalty *stint.Penalty
}

func (g *target) keys() (all []stint.Request) {
	for i := range 20 {
		all = append(all, stint.Request{Asks: []stint.Ask{{Key: "exhausted" + strconv.Itoa(i), Limit: g.limit, Cost: 1}}})
	}
	return append(all, stint.Request{Asks: []stint.Ask{{Key: "banned", Limit: g.limit, Cost: 1, Penalty: g.penalty}}})
}

// exhaust leaves nothing to any of the keys.
func (g *target) exhaust(t *testing.T) {
	t.Helper()
	for _, r := range g.keys() {
		for range g.limit.Capacity() + 1 {
			if _, err := g.Take(t.Context(), &r, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// holds is an error of the test if any of them passes.
func (g *target) holds(t *testing.T) {
	t.Helper()
	for _, r := range g.keys() {
		d, err := g.Take(t.Context(), &r, nil)
		want := stint.Limited
		if r.Asks[0].Penalty != nil {
			want = stint.Banned
		}
		if err != nil || d.Outcome != want {
			t.Errorf("%s after the flood: %s, %v", r.Asks[0].Key, d.Outcome, err)
		}
	}
}

// flood asks once for each of n keys that nobody has seen.
func (g *target) flood(t *testing.T, n int) (full int) {
	t.Helper()
	for i := range n {
		switch _, err := g.Allow(t.Context(), "flood"+strconv.Itoa(i), g.limit); {
		case errors.Is(err, stint.ErrFull):
			full++
		case err != nil:
			t.Fatal(err)
		}
	}
	return full
}

func newTarget(t *testing.T, s stint.Store) *target {
	t.Helper()
	p, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 1, BanFor: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return &target{stint.NewLimiter(s), stint.MustLimit("4 per 24h fixed_window"), p}
}

// heap is what is in use once the garbage is gone.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Two million keys do not fit, and neither make room for themselves at the expense
// of one that is exhausted or banned, nor take more memory than the bound does.
func TestFloodOfKeys(t *testing.T) {
	room, keys := 20_000, 2_000_000
	if testing.Short() {
		room, keys = 5_000, 75_000
	}
	const perKey = 700 // bytes, of the heap
	m := &stint.Memory{MaxKeys: room}
	g := newTarget(t, m)
	before := heap()
	g.exhaust(t)
	if full := g.flood(t, keys); full > 0 {
		t.Errorf("%d keys were not counted while keys that used a quarter could go", full)
	}
	g.holds(t)
	if n := m.Len(); n > room || n < room/2 {
		t.Errorf("%d keys are kept, of a bound of %d", n, room)
	}
	grown := heap() - before
	if grown > int64(room)*perKey {
		t.Errorf("the heap grew by %d bytes, %d for each of %d keys", grown, grown/int64(room), room)
	}
	t.Logf("%d keys through room for %d: heap +%d MiB, %d bytes a key", keys, room, grown>>20, grown/int64(room))
	runtime.KeepAlive(m)
}

// What a Fallback has learnt outlives a flood that comes through the store, and one
// that comes while the store is away. With several instances, a key is exhausted
// here before its count is full: three of four, by two.
func TestFloodThroughFallback(t *testing.T) {
	for _, instances := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			var away atomic.Bool
			local := &stint.Memory{MaxKeys: 1000}
			f := &fleet.Fallback{
				Store:     &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Hang: away.Load()} }},
				Local:     local,
				Instances: instances,
			}
			defer f.Close()
			g := newTarget(t, f)
			g.exhaust(t)
			g.flood(t, 20_000)
			away.Store(true)
			g.holds(t)
			g.flood(t, 20_000)
			g.holds(t)
			if n := local.Len(); n > 1000 {
				t.Errorf("%d instances: %d keys", instances, n)
			}
		})
	}
}

// A key that has used up its share here, though not the whole count, keeps its place
// against keys that have used up theirs, too.
func TestFloodSparesShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := stint.MustLimit("10 per 24h fixed_window")
		f := &fleet.Fallback{
			Store:     &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Err: limittest.ErrFault} }},
			Local:     &stint.Memory{MaxKeys: 51}, // odd, for the search for room goes by two
			Instances: 4,
		}
		defer f.Close()
		l := stint.NewLimiter(f)
		spend := func(key string) (allowed int) {
			for range 4 {
				switch d, err := l.Allow(t.Context(), key, limit); {
				case errors.Is(err, stint.ErrFull):
				case err != nil:
					t.Fatal(err)
				case d.Allowed:
					allowed++
				}
			}
			return allowed
		}
		for i := range 3 {
			if n := spend("k" + strconv.Itoa(i)); n != 2 { // of 10, a quarter
				t.Fatalf("%d", n)
			}
		}
		for i := range 500 {
			spend("flood" + strconv.Itoa(i))
		}
		for i := range 3 {
			if n := spend("k" + strconv.Itoa(i)); n != 0 {
				t.Errorf("%d more after the flood", n)
			}
		}
	})
}

// With Local full of exhausted keys, a newcomer is refused with an error rather than
// let pass, unless it asks for that; those who are known are decided as ever, and
// when keys are unused again, newcomers are.
func TestNewcomerWhenLocalIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := stint.MustLimit("1 per 1m fixed_window")
		f := &fleet.Fallback{
			Store: &limittest.Faulty{Store: new(stint.Memory), Fault: func(int) limittest.Fault { return limittest.Fault{Err: limittest.ErrFault} }},
			Local: &stint.Memory{MaxKeys: 10},
		}
		defer f.Close()
		ask := func(key string, o stint.OnError) string {
			d, err := stint.NewLimiter(f).Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Limit: limit, Cost: 1, OnError: o}}}, nil)
			if errors.Is(err, stint.ErrFull) {
				return "full"
			}
			return d.Outcome.String() + " by " + d.By.String()
		}
		for i := range 10 {
			same(t, ask(strconv.Itoa(i), stint.OnErrorLocal), "allowed by local")
		}
		same(t, ask("new", stint.OnErrorLocal), "full")
		same(t, ask("new", stint.OnErrorAllow), "allowed by policy")
		same(t, ask("3", stint.OnErrorLocal), "limited by local")
		time.Sleep(time.Minute)
		same(t, ask("new", stint.OnErrorLocal), "allowed by local")
	})
}
