package fleet_test

import (
	"testing"
	"testing/synctest"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// What an outage spent of a key that is reset before the store is back is owed no more.
func TestResetEndsDebt(t *testing.T) {
	request := func(key string, l *stint.Limit) *stint.Request {
		return &stint.Request{Asks: []stint.Ask{{Key: key, Limit: l}}}
	}
	for _, c := range []struct {
		what  string
		reset func(*testing.T, *outage, *stint.Limit)
		owed  int64
	}{
		{"nothing", func(*testing.T, *outage, *stint.Limit) {}, 6},
		{"Reset", func(t *testing.T, o *outage, l *stint.Limit) {
			if err := o.fall.Reset(t.Context(), request("k", l)); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"Forget", func(_ *testing.T, o *outage, l *stint.Limit) { o.fall.Forget(request("k", l)) }, 0},
		{"Forget of another key", func(_ *testing.T, o *outage, l *stint.Limit) { o.fall.Forget(request("other", l)) }, 6},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, l := newOutage(t, 1), stint.MustLimit("10 per 24h fixed_window")
				o.goes(t)
				for range 6 {
					o.ask(t, "k", l, 1)
				}
				c.reset(t, o, l)
				if d, err := o.Peek(t.Context(), "k", l); err != nil || d.Remaining != 10-c.owed {
					t.Errorf("%+v, %v at this instance", d, err)
				}
				o.comes(t)
				if n := used(t, stint.NewLimiter(o.store.Memory), "k", l); n != c.owed {
					t.Errorf("the store was charged %d", n)
				}
			})
		})
	}
}

// A server tells a Denials by hand what its store does not notify of.
func TestDenialsForget(t *testing.T) {
	for _, c := range []struct {
		what    string
		forget  func(*fleet.Denials)
		allowed bool
	}{
		{"nothing", func(*fleet.Denials) {}, false},
		{"the key", func(d *fleet.Denials) { d.Forget("k") }, true},
		{"all", (*fleet.Denials).ForgetAll, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, limit := newNotifier(), stint.MustLimit("1 per 1h")
			denials := remembering(t, s, 0)
			l := stint.NewLimiter(denials)
			for i := range 3 {
				if d, err := l.Allow(t.Context(), "k", limit); err != nil || d.Allowed != (i == 0) {
					t.Fatal(d, err)
				}
			}
			if n := s.Calls(); n != 2 {
				t.Fatalf("%d calls", n)
			}
			if err := stint.NewLimiter(s.Store).Reset(t.Context(), "k", limit); err != nil { // nobody is notified
				t.Fatal(err)
			}
			c.forget(denials)
			if d, err := l.Allow(t.Context(), "k", limit); err != nil || d.Allowed != c.allowed {
				t.Errorf("%+v, %v", d, err)
			}
			if !denials.Connected() {
				t.Error("it no longer listens")
			}
		})
	}
}
