package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// However a key's units were spent at the store, an outage knows what is left of them.
func TestOutageKnowsWhatIsLeft(t *testing.T) {
	for _, c := range []struct {
		what, limit string
		spend       func(*holding, *stint.Limit) // 6 of 10
	}{
		{"one by one", "10 per 24h fixed_window", func(h *holding, l *stint.Limit) {
			for range 6 {
				h.take("k", 1, stint.HoldID{}, l)
			}
		}},
		{"in a list", "10 per 24h fixed_window", func(h *holding, l *stint.Limit) {
			rs, answers := make([]stint.Request, 6), make([]stint.Answer, 6)
			for i := range rs {
				rs[i].Asks = []stint.Ask{{Key: "k", Limit: l, Cost: 1}}
			}
			h.fall.TakeBatch(h.t.Context(), rs, answers)
			for _, a := range answers {
				if a.Err != nil || a.By != stint.ByStore {
					h.t.Fatalf("%+v", a)
				}
			}
		}},
		{"held", "10 per 24h fixed_window hold 1h", func(h *holding, l *stint.Limit) {
			h.take("k", 6, stint.NewHoldID(), l)
		}},
		{"held and settled", "10 per 24h fixed_window hold 1h", func(h *holding, l *stint.Limit) {
			id := stint.NewHoldID()
			d := h.take("k", 9, id, l)
			if s := h.settle("k", l, &d, id, 9, 6); s.Err != nil || s.Charged != 6 {
				h.t.Fatalf("%+v", s)
			}
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, l := newHolding(t, 1), stint.MustLimit(c.limit)
				c.spend(h, l)
				h.open(refuses)
				for i := range 6 {
					if d, err := h.Allow(t.Context(), "k", l); err != nil || d.By != stint.ByLocal || d.Allowed != (i < 4) {
						t.Errorf("%d after 6 of 10: %+v, %v", i, d, err)
					}
				}
			})
		})
	}
}

// Calls about holds that fail open the part that they were for, and no other.
func TestHoldsOpenTheirPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, limit := new(cluster), stint.MustLimit("100 per 24h fixed_window hold 1h")
		f := &fleet.Fallback{Store: store, Instances: 1, Called: func(time.Duration, error) {}}
		defer f.Close()
		store.set("b")
		for i := range 5 {
			if f.State() != fleet.Closed {
				t.Fatalf("%s after %d calls", f.State(), i)
			}
			calls := []stint.HoldCall{{Action: stint.HoldSettle, Key: "b1", Limit: limit, Hold: stint.NewHoldID(), Units: 1, Cost: 1, By: stint.ByStore}}
			if f.Holds(t.Context(), time.Time{}, calls); calls[0].Err == nil {
				t.Fatalf("%+v", calls[0])
			}
		}
		time.Sleep(fleet.DefaultDeadline) // of a probe
		synctest.Wait()
		if f.State() != fleet.PartlyOpen {
			t.Fatal(f.State())
		}
		for key, by := range map[string]stint.Source{"a1": stint.ByStore, "b1": stint.ByLocal, "c1": stint.ByStore} {
			if d, err := stint.NewLimiter(f).Allow(t.Context(), key, limit); err != nil || d.By != by {
				t.Errorf("%s: %+v, %v", key, d, err)
			}
		}
	})
}
