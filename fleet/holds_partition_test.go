package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// An instance that cannot reach the store for longer than T still runs what it runs, and the store
// gives its places to others: twice the limit runs at once, and no more. When it is back, its holds
// count again, fitting or not.
func TestPartitionLongerThanT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const live, c, last = 3, 30, 10 * time.Second
		l := stint.MustLimit("30 in_flight hold 10s")
		h := newHolding(t, live) // the one that is cut off
		direct := &fleet.Fallback{Store: h.store.Memory, Instances: live}
		defer direct.Close()
		there := stint.NewLimiter(direct)
		var absent, others []*stint.Reservation
		fill := func(l2 *stint.Limiter, to *[]*stint.Reservation) {
			for range 2 * c {
				r, _, err := l2.Reserve(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: l}}})
				if err != nil {
					t.Fatal(err)
				}
				if r != nil {
					*to = append(*to, r)
				}
			}
		}
		fill(h.Limiter, &absent)
		h.store.how.Store(hangs)
		most := 0
		for at := time.Duration(0); at < 4*last; at += last / 8 {
			fill(there, &others)
			fill(h.Limiter, &absent)
			n := len(absent) + len(others)
			if most = max(most, n); at < last/2 && n > c || n > 2*c {
				t.Fatalf("after %s %d run at the absent instance and %d at others", at, len(absent), len(others))
			}
			if at > 2*last && len(absent) > c/2 { // its own end, and it takes new ones
				if err := absent[0].Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
				absent = absent[1:]
			}
			time.Sleep(last / 8)
		}
		if most != 2*c {
			t.Errorf("at most %d ran at once, want %d", most, 2*c)
		}
		h.store.how.Store(works)
		time.Sleep(last)
		if n := heldIn(t, h.store.Memory, "k", l); n <= c || n > 2*c {
			t.Errorf("%d are held when the instance is back, and it runs %d beside %d", n, len(absent), len(others))
		}
		for _, r := range append(absent, others...) {
			if err := r.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(last)
		if n := heldIn(t, h.store.Memory, "k", l); n != 0 {
			t.Errorf("%d are held in the end", n)
		}
	})
}
