package live

import (
	"math/rand/v2"
	"testing"
	"time"
)

// An outage begins when the store is first seen to be away, ends when it has been there for ten seconds,
// and lasts meanwhile. A slow model looks back over all that was noted.
func TestOutage(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		var o Outage
		start := time.Now()
		type noted struct {
			at   time.Duration
			away bool
		}
		var all []noted
		at, away := time.Duration(0), false
		for range 300 {
			at += time.Duration(random.IntN(4000)) * time.Millisecond
			if random.IntN(5) == 0 {
				away = !away
			}
			all = append(all, noted{at, away})
			began, last := time.Duration(-1), time.Duration(0)
			for _, n := range all {
				if began >= 0 && n.at-last >= 10*time.Second && !n.away {
					began = -1
				}
				if n.away {
					if began < 0 {
						began = n.at
					}
					last = n.at
				}
			}
			want := time.Duration(0)
			if began >= 0 {
				want = max(at-began, time.Millisecond)
			}
			if got := o.Note(start.Add(at), away); got != want {
				t.Fatalf("%v: %s, want %s", all, got, want)
			}
		}
	}
}
