package suggest

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// spent is a request for the slow model.
type spent struct{ at, cost int64 }

// slowPeak is the most units in any span that is shorter than the length, by looking at all of them.
func slowPeak(all []spent, span int64) (most int64) {
	for i, last := range all {
		units := int64(0)
		for j := i; j >= 0 && last.at-all[j].at < span; j-- {
			units += all[j].cost
		}
		most = max(most, units)
	}
	return most
}

// TestPeaks compares peaks with the slow model: of few units they are exact, and of many they are
// between those of windows 5% shorter and those of the window.
func TestPeaks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		s := New(Options{})
		at := int64(1_790_000_000_000_000)
		var all []spent
		costs := []int64{1, 1, 1, 5, 3_000_000}[r.IntN(5)]
		pause := []float64{0.01, 1, 30, 600, 20_000}
		spell := r.IntN(len(pause))
		for range 1 + r.IntN(300) {
			if r.IntN(20) == 0 {
				spell = r.IntN(len(pause))
			}
			at += int64(r.ExpFloat64()*pause[spell]*1000) * 1000
			one := spent{at, 1 + r.Int64N(costs)}
			all = append(all, one)
			s.Observe("a", one.at, one.cost)
		}
		k := s.states()[0]
		for w, period := range periods {
			got := int64(k.highest(w, hours{}))
			least, most := slowPeak(all, period.Microseconds()*19/20), slowPeak(all, period.Microseconds())
			if most <= exact {
				least = most
			}
			slack := 1.0
			if most > 1<<16 {
				slack = 1.001 // units are coarser
			}
			if float64(got) > float64(most)*slack || float64(got) < float64(least)/slack {
				t.Fatalf("%v: peak %d, want from %d to %d", period, got, least, most)
			}
		}
	}
}

// TestPeaksOfDays has three days. At their hour 6, a key has peaks of 2, 9 and 4 in a second.
func TestPeaksOfDays(t *testing.T) {
	s := New(Options{})
	for d, n := range []int64{2, 9, 4} {
		s.Observe("a", int64(d)*perDay+6*3600*second, n)
	}
	k := s.states()[0]
	for _, c := range []struct {
		without hours
		want    float32
	}{
		{hours{}, 9}, {hours{30, 31}, 4}, {hours{24, 30}, 9}, {hours{30, 55}, 2}, {hours{0, 79}, 2},
	} {
		if got := k.highest(0, c.without); got != c.want {
			t.Errorf("without %v: %v, want %v", c.without, got, c.want)
		}
	}
	// In the windows of a day that end up to 24 hours later, the incident still is.
	if got := k.highest(windows-1, hours{30, 31}); got != 2 {
		t.Errorf("a day without hour 30: %v, want 2", got)
	}
	if got := k.highest(windows-1, hours{31, 40}); got != 9 {
		t.Errorf("a day without hours in which nothing was: %v, want 13", got)
	}
}

func TestKeyIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(key{}); size > 496 {
		t.Errorf("a key takes %d bytes", size)
	}
}

func BenchmarkObserve(b *testing.B) {
	names := make([]string, 10_000)
	for i := range names {
		names[i] = nameOf(i)
	}
	for _, c := range []struct {
		name  string
		pause int64 // between the requests of all keys
	}{{"busy", 10}, {"usual", 1000}, {"idle", 1_000_000}} {
		b.Run(c.name, func(b *testing.B) {
			s := New(Options{})
			at := int64(0)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at += c.pause
				s.Observe(names[i*7919%len(names)], at, 1)
			}
		})
	}
}
