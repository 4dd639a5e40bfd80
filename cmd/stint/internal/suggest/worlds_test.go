package suggest

import (
	"math"
	"testing"
)

func TestWorlds(t *testing.T) {
	troubles := [][]trouble{{none}, {attack}, {crawler}, {outage}}
	passed, all := 0, 100
	for seed := range all {
		w := newWorld(uint64(seed), tunedKinds, troubles[seed%len(troubles)]...)
		s := New(Options{})
		w.study(s)
		found, err := s.Suggest()
		if err != nil {
			t.Fatal(err)
		}
		truth := w.truth(found.Share)
		var off [windows]int
		ok := true
		for i, win := range found.Windows {
			off[i] = int(math.Round(100 * (float64(win.Needed)/truth[i] - 1)))
			if math.Abs(float64(win.Needed)/truth[i]-1) > 0.1 {
				ok = false
			}
		}
		if ok {
			passed++
		} else {
			t.Logf("seed %d %s keys %d days %d requests %d+%d: off %v truth %v apart %d days %v share %v", seed, w.name, len(w.ordinary), w.days, w.requests(), len(w.other), off, truth, found.ApartKeys, len(found.ApartDays), found.Share)
		}
		t.Log(seed, found.Texts())
	}
	t.Logf("%d of %d", passed, all)
}
