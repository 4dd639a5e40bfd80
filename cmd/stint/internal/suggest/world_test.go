package suggest

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A world is a log whose truth is known, because it is generated: which keys are clients, and which of
// their requests are ordinary.
//
// The truth, for a window and a share of keys: an ordinary request is one that a client makes as its
// kind does, by itself. No ordinary request is what attackers and crawlers send, nor what an incident
// makes clients send again. The peak of a client is the most of its ordinary requests in any span of the
// window's length, wherever that begins, to the microsecond. The truth is the smallest number that
// is not below the peaks of the share of the clients. No margin and no rounding are part of it.
//
// A Study sees neither which keys are clients nor which requests are ordinary.
type world struct {
	name     string
	start    time.Time // midnight, in UTC
	days     int
	ordinary [][]int64 // instants of each client's requests, ascending, in µs since the start
	other    []event   // by attackers and crawlers, and of an incident
	keys     int
}

// event is an instant in µs since the start, and the number of a key in the low 16 bits.
type event uint64

func eventOf(at int64, key int) event { return event(at)<<16 | event(key) }

const (
	second = 1_000_000
	day    = 24 * 60 * 60 * second
)

// generator makes worlds.
type generator struct {
	*rand.Rand
	night float64 // 0: there is none; 1: nobody is awake in the middle of it
}

// A kind is a kind of client. Its first call draws what its clients have in common, the second
// what a client is like, the third its requests of a day, as seconds of the day in any order.
type kind struct {
	name  string
	start func(g *generator) func() client
}

type client func(weekend bool) []float64

// trouble adds requests to a world that are not ordinary.
type trouble struct {
	name string
	add  func(g *generator, w *world)
}

// between is uniform in the logarithm.
func (g *generator) between(low, high float64) float64 {
	return low * math.Pow(high/low, g.Float64())
}

func (g *generator) lognormal(middle, sigma float64) float64 {
	return middle * math.Exp(sigma*g.NormFloat64())
}

func (g *generator) poisson(mean float64) int {
	if mean > 100 {
		return max(0, int(math.Round(mean+math.Sqrt(mean)*g.NormFloat64())))
	}
	n, least := 0, math.Exp(-mean)
	for p := g.Float64(); p > least; n++ {
		p *= g.Float64()
	}
	return n
}

// awake is a second of the day, more often of its middle than of the night.
func (g *generator) awake() float64 {
	for {
		t := g.Float64() * 86400
		if g.Float64()*(1+g.night) < 1+g.night*math.Cos(2*math.Pi*(t/86400-14.0/24)) {
			return t
		}
	}
}

// newWorld makes the world of a seed, with one to three of the kinds of clients, and with troubles.
func newWorld(seed uint64, kinds []kind, troubles ...trouble) *world {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1))}
	g.night = g.Float64()
	w := &world{start: time.Date(2026, 1, 1+g.IntN(300), 0, 0, 0, 0, time.UTC), days: 5 + g.IntN(10)}
	kinds = slices.Clone(kinds)
	g.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = kinds[:1+g.IntN(min(3, len(kinds)))]
	w.addClients(g, kinds, int(g.between(3000, 6000)))
	for _, t := range troubles {
		w.name += "+ " + t.name + " "
		t.add(g, w)
	}
	return w
}

// addClients adds clients of several kinds, each of which has at least 3% of them.
func (w *world) addClients(g *generator, kinds []kind, clients int) {
	shares := make([]float64, len(kinds))
	sum := 0.0
	for i := range kinds {
		shares[i] = g.between(0.05, 1)
		sum += shares[i]
	}
	begins := g.Float64() * 86400 // of the log, on its first day
	for i, k := range kinds {
		w.name += k.name + " "
		newClient := k.start(g)
		for range int(max(0.03, shares[i]/sum) * float64(clients)) {
			w.addClient(newClient(), begins)
		}
	}
	w.keys = len(w.ordinary)
}

// addClient adds the requests of a client. One who never came is no key of the log.
func (w *world) addClient(c client, begins float64) {
	var all []int64
	for d := range w.days {
		weekend := w.start.AddDate(0, 0, d).Weekday()%6 == 0
		for _, t := range c(weekend) {
			if t += float64(d) * 86400; t >= begins && t < float64(w.days)*86400 {
				all = append(all, int64(t*second))
			}
		}
	}
	if len(all) > 0 {
		slices.Sort(all)
		w.ordinary = append(w.ordinary, all)
	}
}

// requests is how many of the requests are ordinary.
func (w *world) requests() (n int) {
	for _, all := range w.ordinary {
		n += len(all)
	}
	return n
}

// begins and ends are the bounds of the log.
func (w *world) begins() int64 {
	first := int64(math.MaxInt64)
	for _, all := range w.ordinary {
		first = min(first, all[0])
	}
	return first
}

func (w *world) ends() int64 { return int64(w.days) * day }

// study shows a world to a Study.
func (w *world) study(s *Study) {
	events := slices.Clone(w.other)
	for k, all := range w.ordinary {
		for _, at := range all {
			events = append(events, eventOf(at, k))
		}
	}
	slices.Sort(events)
	names := make([]string, w.keys)
	for i := range names {
		names[i] = nameOf(i)
	}
	start := w.start.UnixMicro()
	for _, e := range events {
		s.Observe(names[e&0xffff], start+int64(e>>16), 1)
	}
}

// truth is the truth for all windows.
func (w *world) truth(share float64) (t [windows]float64) {
	for i, period := range periods {
		var peaks []float64
		for _, all := range w.ordinary {
			peaks = append(peaks, float64(peakOf(all, period.Microseconds())))
		}
		slices.Sort(peaks)
		t[i] = peaks[int(math.Ceil(share*float64(len(peaks))-1e-9))-1]
	}
	return t
}

// peakOf is the most instants in any span.
func peakOf(all []int64, span int64) (most int) {
	first := 0
	for i, at := range all {
		for at-all[first] >= span {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
