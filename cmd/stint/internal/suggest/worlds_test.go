package suggest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

var worlds, first = 50, 0

func init() {
	if v, err := strconv.Atoi(os.Getenv("WORLDS")); err == nil {
		worlds = v
	}
	if v, err := strconv.Atoi(os.Getenv("FIRST")); err == nil {
		first = v
	}
}

// isNear reports whether a number is within 10% of the truth.
func isNear(number int64, truth float64) bool {
	return 10*max(float64(number)-truth, truth-float64(number)) <= truth
}

func TestWorlds(t *testing.T) {
	t.Run("tuned", func(t *testing.T) {
		testWorlds(t, 0, tunedKinds, [][]trouble{{none}, {attack}, {crawler}, {outage}})
	})
	t.Run("held out", func(t *testing.T) {
		testWorlds(t, 1000, heldOutKinds, [][]trouble{{none}, {attack}, {crawler}, {outage}, {attack, crawler}, {crawler, outage}, {attack, outage}, {none}})
	})
}

func testWorlds(t *testing.T, seed int, kinds []kind, troubles [][]trouble) {
	passed, allPassed := 0, 0
	by := map[string][2]int{}
	for i := range worlds {
		seed := seed + first + i
		w := newWorld(uint64(seed), kinds, troubles[i%len(troubles)]...)
		s := New(Options{})
		w.study(s)
		found, err := s.Suggest()
		if err != nil {
			t.Fatal(err)
		}
		truth := w.truth(found.Share)
		ok, all := true, true
		off := ""
		for i, win := range found.Windows {
			off += fmt.Sprintf("%d/%.0f ", win.Needed, truth[i])
			all = all && isNear(win.Needed, truth[i])
			for _, l := range found.Limits {
				if l.Period == win.Period {
					ok = ok && isNear(l.Needed, truth[i])
				}
			}
		}
		name := w.name[strings.Index(w.name, "+"):]
		n := by[name]
		n[1]++
		if ok {
			n[0]++
			passed++
		}
		by[name] = n
		if all {
			allPassed++
		} else {
			t.Logf("seed %d %v %s keys %d days %d requests %d+%d: %s apart %d days %v share %v %v", seed, ok, w.name, len(w.ordinary), w.days, w.requests(), len(w.other), off, found.ApartKeys, found.ApartTo.Sub(found.ApartFrom).Hours(), found.Share, found.Texts())
		}
	}
	t.Logf("%d and %d of %d %v", passed, allPassed, worlds, by)
}
