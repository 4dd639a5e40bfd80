package rulestest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint"
)

// Every file that is drawn is valid, and every line of the grammar is drawn.
func TestDraw(t *testing.T) {
	seeds, drawn := uint64(3000), map[string]bool{}
	if testing.Short() {
		seeds = 600
	}
	algorithms := map[stint.Algorithm]bool{}
	for seed := range seeds {
		d := newDrawer(seed)
		d.drawn = drawn
		s := d.scenario()
		set, err := s.Set()
		if err != nil {
			t.Fatalf("seed %d: %v\n%s%s", seed, err, s.Rules, s.Envoy)
		}
		for _, r := range set.Rules {
			for _, l := range r.Limits {
				algorithms[l.Spec().Algorithm] = true
			}
		}
	}
	for word, lines := range grammar {
		for _, line := range lines {
			if !drawn[word+": "+line] {
				t.Errorf("%d seeds never draw %s: %s", seeds, word, line)
			}
		}
	}
	if len(algorithms) != 6 {
		t.Errorf("the limits are of the algorithms %v", algorithms)
	}
}

func TestDrawIsDeterministic(t *testing.T) {
	one, again, other := Draw(7), Draw(7), Draw(8)
	if one.String() != again.String() || one.String() == other.String() {
		t.Errorf("%s\n%s\n%s", one, again, other)
	}
}

// No step settles a hold that was not made before, or that was settled.
func TestSettlesWhatIsHeld(t *testing.T) {
	for seed := range uint64(100) {
		var running []string
		for _, step := range Draw(seed).Steps {
			switch i := slices.Index(running, step.Hold); {
			case step.Do == Hold && i < 0:
				running = append(running, step.Hold)
			case step.Do == Settle && i >= 0:
				running = slices.Delete(running, i, i+1)
			case strings.HasPrefix(step.Hold, "h"):
				t.Fatalf("seed %d: %s %s, while %v run", seed, step.Do, step.Hold, running)
			}
		}
	}
}
