package fleet_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// takeList asks for a unit of each of so many keys, in a list.
func takeList(t *testing.T, f *fleet.Fallback, l *stint.Limit, keys int) []stint.Answer {
	t.Helper()
	rs, answers := make([]stint.Request, keys), make([]stint.Answer, keys)
	for i := range rs {
		rs[i].Asks = []stint.Ask{{Key: fmt.Sprint(i), Limit: l, Cost: 1}}
	}
	f.TakeBatch(t.Context(), rs, answers)
	for i := range answers {
		if answers[i].Err != nil || !answers[i].Allowed {
			t.Fatalf("%d: %+v", i, answers[i])
		}
	}
	return answers
}

// A long list may take longer than the deadline, of which each part has its own.
func TestFallbackBatchOfParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &busy{refusing: &refusing{Memory: new(stint.Memory)}, takes: 20 * time.Millisecond}
		f := &fleet.Fallback{Store: store, Breaker: fleet.Breaker{Failures: 1}}
		defer f.Close()
		began := time.Now()
		for i, a := range takeList(t, f, stint.MustLimit("9 per 1h"), 1000) {
			if a.By != stint.ByStore {
				t.Fatalf("%d by %s", i, a.By)
			}
		}
		if n, took := store.lists.Load(), time.Since(began); n != 16 || took != 16*store.takes {
			t.Errorf("%d calls in %s", n, took)
		}
		if f.State() != fleet.Closed {
			t.Error(f.State())
		}
	})
}

// When a part is not answered, nobody waits for the rest, which is not in doubt.
func TestFallbackBatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stalling)
		f := &fleet.Fallback{Store: store, Instances: 1}
		defer f.Close()
		l := stint.MustLimit("9 per 24h fixed_window")
		store.stall()
		began := time.Now()
		for i, a := range takeList(t, f, l, 1000) {
			if a.By != stint.ByLocal {
				t.Fatalf("%d by %s", i, a.By)
			}
		}
		if took := time.Since(began); took != fleet.DefaultDeadline {
			t.Errorf("it took %s", took)
		}
		store.goOn()
		takeList(t, f, l, 1000) // with what is owed
		for i := range 1000 {
			if n := used(t, stint.NewLimiter(&store.Memory), fmt.Sprint(i), l); n != 2 {
				t.Fatalf("the store holds %d of key %d", n, i)
			}
		}
	})
}
