// Package suggest finds the numbers of a limit in the requests of a log.
//
// # The wished number
//
// The peak of a key in a window, such as 1m, is the most units that its requests cost in any
// window of that length. The wished number for the window is the smallest that is not below the
// peaks of the wished share of the keys, such as 99.9%. Only keys and days count that are what
// the limit should leave untouched: not a crawler, not those that attack, and not the day on
// which an incident made all clients repeat their requests. They are set apart, and named.
//
// From the numbers of the six windows, Suggest takes the one or two limits that admit least
// beyond them: what is above is the margin.
package suggest

import (
	"errors"
	"strings"
)

// Options say what to suggest. The zero Options are usual.
type Options struct {
	// Untouched is the share of the keys that no limit should ever refuse, above 0 and below 1.
	// 0: 0.999.
	Untouched float64
	// Margin is how much a limit is above what those keys needed. 0: 0.2, that is 20%. Below 0:
	// none.
	Margin float64
}

func (o Options) untouched() float64 {
	if o.Untouched <= 0 || o.Untouched >= 1 {
		return 0.999
	}
	return o.Untouched
}

func (o Options) margin() float64 {
	switch {
	case o.Margin < 0:
		return 0
	case o.Margin == 0:
		return 0.2
	}
	return o.Margin
}

// Study measures the peaks of keys while it observes their requests. It remembers at most
// 200,000 keys; of more it keeps a sample that does not depend on what the keys do. Its
// memory does not grow with the requests, except for 8 kB a day. It is not safe for
// concurrent use.
type Study struct {
	options  Options
	keys     map[uint64]entry
	level    int // a key is remembered if its hash begins with as many zeros
	most     int
	days     map[int32]*dayPeaks
	first    int64 // tick
	last     int64 // tick
	requests int64
}

// New starts a study.
func New(o Options) *Study {
	return &Study{options: o, keys: map[uint64]entry{}, most: maxKeys, days: map[int32]*dayPeaks{}}
}

// mostCost bounds the cost of a request, so that sums do not overflow.
const mostCost = 1 << 40

// mostName is how many bytes of a key's name are kept.
const mostName = 128

// Observe counts a request: its key, its instant in microseconds since 1970, and its cost in
// units. Instants must not descend; an earlier one counts as the latest so far. A request that
// costs nothing is not counted.
func (s *Study) Observe(name string, at, cost int64) {
	if cost <= 0 {
		return
	}
	cost = min(cost, mostCost)
	now := max(at/tick, s.last, 0)
	if s.requests == 0 {
		s.first = now
	}
	s.last = now
	s.requests++
	hash := hashOf(name)
	if !s.samples(hash) {
		return
	}
	e, known := s.keys[hash]
	switch {
	case !known:
		s.keys[hash] = entry{at: now, cost: cost}
		if len(s.keys) > s.most {
			s.thin()
		}
		return
	case e.k == nil:
		e.k = &key{name: strings.Clone(name[:min(len(name), mostName)])}
		e.k.start(e.at)
		e.k.add(e.cost)
		s.keys[hash] = e
	}
	if now != e.k.tick {
		s.moveTo(e.k, now)
	}
	e.k.add(cost)
}

// moveTo advances a key, and ends its day if the new tick is on another.
func (s *Study) moveTo(k *key, now int64) {
	if day := dayOf(now); day != k.day {
		dayIn(s.days, k.day).count(k)
		k.fold()
		k.day = day
	}
	k.advance(now)
}

// ErrNothing means that no limit can be suggested, because the log has too few keys.
var ErrNothing = errors.New("too few keys: want at least 20")

const fewestKeys = 20

// Suggest says which limits the requests so far suggest. It changes nothing, so that more
// requests may follow. The error is ErrNothing.
func (s *Study) Suggest() (Suggestion, error) {
	if len(s.keys) < fewestKeys {
		return Suggestion{}, ErrNothing
	}
	days := s.daysApart()
	people, apart := setApart(s.peaks(days))
	f := findings{
		study: s, people: people, apart: apart, days: days,
		share: supported(s.options.untouched(), len(people)),
	}
	return f.suggestion(), nil
}

// keyPeaks is what a suggestion needs to know about a key.
type keyPeaks struct {
	name  string
	total int64
	peak  [windows]float32 // on the days that count; all 0 if the key came on no other day
}

// peaks are those of all keys that came on a day that counts.
func (s *Study) peaks(days apartDays) []keyPeaks {
	all := make([]keyPeaks, 0, len(s.keys))
	for _, e := range s.keys {
		k := e.state()
		k.fold()
		p := keyPeaks{name: k.name, total: k.total}
		for w := range windows {
			p.peak[w] = k.highest(w, days.of(w))
		}
		if p.peak[0] > 0 {
			all = append(all, p)
		}
	}
	return all
}

// state is a copy of the key's state, also of a key that came once.
func (e entry) state() (k key) {
	if e.k != nil {
		return *e.k
	}
	k.start(e.at)
	k.add(e.cost)
	return k
}
