package envoy

import (
	"context"
	"testing"
	"time"
)

// A call is listed until its first message arrives, it ends, or it stalls and is among the oldest.
func TestArrivals(t *testing.T) {
	var all arrivals
	begin := func() (*arrival, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		ctx, err := all.begin(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		return ctx.(*arrival), cancel
	}
	listed := func() (calls []*arrival) {
		for c := all.first; c != nil; c = c.next {
			if c.next == nil && c != all.last || c.next != nil && c.next.prev != c {
				t.Fatal("the list is broken")
			}
			calls = append(calls, c)
		}
		return calls
	}
	var calls []*arrival
	for i := range 8 {
		c, end := begin()
		defer end()
		if calls = append(calls, c); i == 2 || i == 7 {
			end()
		}
	}
	derived, cancel := context.WithCancel(calls[0])
	defer cancel()
	arrived(derived)
	arrived(calls[0])
	arrived(t.Context())
	all.cut(time.Now(), 0)
	if got := listed(); len(got) != 5 || got[0] != calls[1] || got[4] != calls[6] {
		t.Errorf("%d are listed", len(got))
	}
	late := time.Now().Add(stalledAfter)
	all.cut(late, 2)
	for i, ended := range []bool{false, true, true, true, true, false, false, true} {
		if (calls[i].Err() != nil) != ended {
			t.Errorf("call %d has ended: %t, want %t", i, !ended, ended)
		}
	}
	all.cut(late, 2)
	if got := listed(); len(got) != 2 || got[0] != calls[5] {
		t.Errorf("%d are listed at the end", len(got))
	}
}
