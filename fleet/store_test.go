package fleet_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/limittest"
)

func fleetOver(t testing.TB, s stint.Store, o fleet.Options) *fleet.Store {
	f := fleet.New(s, o)
	t.Cleanup(f.Close)
	return f
}

func TestStoreKit(t *testing.T) {
	limittest.Kit{
		New: func(t *testing.T) stint.Store {
			return fleetOver(t, newNotifier(), fleet.Options{Deadline: time.Minute})
		},
		Fleet: func(t *testing.T) []stint.Store {
			s, o := newNotifier(), fleet.Options{Deadline: time.Minute, Instances: 2}
			return []stint.Store{fleetOver(t, s, o), fleetOver(t, s, o)}
		},
		Steps: 2000,
	}.Run(t)
}

// A Memory is decided by itself: what it is full of is not decided by another one.
func TestStoreOverMemory(t *testing.T) {
	m := new(stint.Memory)
	s := fleetOver(t, m, fleet.Options{})
	limit := stint.MustLimit("2 per 1h lease 50%")
	if d, err := stint.NewLimiter(s).Allow(t.Context(), "k", limit); !d.Allowed || err != nil || s.IsLayered() {
		t.Errorf("%+v, %v", d, err)
	}
	if d, _ := stint.NewLimiter(m).Peek(t.Context(), "k", limit); d.Remaining != limit.Capacity()-1 {
		t.Errorf("the Memory itself: %+v", d)
	}
	if s.Shared() != stint.Store(m) {
		t.Error("the shared store is another")
	}
	if s.State() != fleet.Closed || s.Live() != 1 || s.Connected() || s.Remembered() != 0 || s.Leased() != (fleet.LeasedUnits{}) {
		t.Error("a Store without layers says something of them")
	}
	s.ForgetDenials()
	s.Forget(&stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}}})
	if err := s.Look(&stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}}}, make([]stint.Decision, 1)); err != nil {
		t.Error(err)
	}
}

// However a store is wrapped, and whatever layers it has, it gets layers once, and a Memory none.
func TestStoreOverWrappers(t *testing.T) {
	limittest.Wrapper(t, func(s stint.Store) stint.Store { return wrapped{s} })
}

// wrapped is a Store that wraps another one and adds nothing.
type wrapped struct{ stint.Store }

func (w wrapped) Unwrap() stint.Store { return w.Store }

// Each layer can be turned off, and Close ends all of them, refunds what is leased and calls
// OnClose, once.
func TestStoreOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, shared := stint.MustLimit("10000 per 1s lease 50%"), newNotifier()
		for _, c := range []struct {
			options           fleet.Options
			leased, connected bool
		}{
			{fleet.Options{Instances: 1}, true, true},
			{fleet.Options{Instances: 1, MaxLeases: -1}, false, true},
			{fleet.Options{Instances: 1, MaxDenials: -1}, true, false},
			{fleet.Options{}, false, true}, // nobody counts the instances
		} {
			closed := 0
			c.options.OnClose = func() { closed++ }
			s := fleet.New(shared, c.options)
			l := stint.NewLimiter(s)
			for range 200 {
				if d, err := l.Allow(t.Context(), "k", limit); !d.Allowed || err != nil {
					t.Fatal(d, err)
				}
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			if u := s.Leased(); (u.Served > 0) != c.leased || s.Connected() != c.connected {
				t.Errorf("%+v: %+v, connected %t", c.options, u, s.Connected())
			}
			s.Close()
			s.Close()
			if u := s.Leased(); u.Held != 0 || u.Charged != u.Served+u.Returned+u.Void || closed != 1 || s.Connected() {
				t.Errorf("%+v: closed %d times, %+v", c.options, closed, u)
			}
			if _, err := l.Allow(t.Context(), "other", limit); err != nil {
				t.Error(err)
			}
		}
	})
}

// What the layers answer by themselves costs no allocation through all of them.
func TestStoreAllocatesNothing(t *testing.T) {
	s := fleetOver(t, newNotifier(), fleet.Options{Instances: 1, Deadline: time.Minute})
	for !s.Connected() {
		runtime.Gosched()
	}
	l := stint.NewLimiter(s)
	refused, leased := stint.MustLimit("1 per 1h"), stint.MustLimit("1000000000 per 1s lease 50%")
	for range 100_000 {
		_, _ = l.Allow(t.Context(), "k", leased)
	}
	for range 2 {
		_, _ = l.Allow(t.Context(), "k", refused)
	}
	for _, limit := range []*stint.Limit{refused, leased} {
		if n := testing.AllocsPerRun(10_000, func() { _, _ = l.Allow(t.Context(), "k", limit) }); n > 0.01 {
			t.Errorf("%s: %v allocations", limit, n)
		}
	}
}
