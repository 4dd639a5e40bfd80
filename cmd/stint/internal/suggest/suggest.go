// Package suggest finds the numbers of a limit in the requests of a log.
//
// # The wished number
//
// The peak of a key in a window, such as 1m, is the most units that its requests cost in any
// window of that length. The wished number for the window is the smallest that is not below the
// peaks of the wished share of the keys, such as 99.9%. Its keys and hours are only those that the
// limit should leave untouched: no crawler, nobody who attacks, and no incident during which clients
// repeat their requests. These are set apart, and named.
//
// From the numbers of the six windows, the Suggestion takes the one or two limits that admit least
// beyond them. The margin is for what the log does not show, such as other days.
//
// # What it cannot know
//
// A log does not say who is a customer. Keys are set apart because they are few, far above the mean
// of the others, and separated from them by a gap. A few customers who use very much more than
// the others look the same, and those who attack but use no more than the busiest customers look
// like these. What a key would have used during an incident is not in the log, either: then the
// number is estimated from the other hours.
package suggest

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/cmd/stint/internal/sample"
	"github.com/stintdev/stint/internal/untouched"
)

// Options say what to suggest. The zero Options are usual.
type Options struct {
	// Untouched is the share of the keys that no limit should ever refuse, above 0 and below 1.
	// 0: 0.999.
	Untouched float64
	// Margin is how much a limit is above what those keys needed. 0: 0.2, that is 20%. Below 0:
	// none.
	Margin float64
	// Keys is how many keys a Study remembers at most, and so bounds its memory: to 600 bytes for
	// each. 0: 200,000. Of more keys it keeps a sample.
	Keys int
}

func (o Options) untouched() float64 {
	if o.Untouched <= 0 || o.Untouched >= 1 {
		return untouched.Wished
	}
	return o.Untouched
}

func (o Options) margin() float64 {
	switch {
	case o.Margin < 0:
		return 0
	case o.Margin == 0:
		return untouched.Margin
	}
	return o.Margin
}

// Study measures the peaks of keys while it observes their requests. It remembers at most
// Options.Keys; of more it keeps a sample that does not depend on what the keys do. Its
// memory does not grow with the requests. It is not safe for concurrent use.
type Study struct {
	options  Options
	keys     sample.Sample[entry]
	midnight int64 // in UTC, before the first request
	first    int64 // request, in µs since then
	last     int64
	requests int64
}

// New starts a study.
func New(o Options) *Study {
	return &Study{options: o, keys: sample.New[entry](cmp.Or(o.Keys, maxKeys))}
}

// mostCost bounds the cost of a request, so that sums do not overflow.
const mostCost = 1 << 40

// perDay is a day in µs.
const perDay = 24 * 60 * 60 * 1_000_000

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
	if s.requests == 0 {
		s.midnight = at - (at%perDay+perDay)%perDay
		s.first = at - s.midnight
	}
	at = max(at-s.midnight, s.last)
	s.last = at
	s.requests++
	hash := sample.Hash(name)
	if !s.keys.Keeps(hash) {
		return
	}
	e, known := s.keys.Of[hash]
	switch {
	case !known:
		s.keys.Put(hash, entry{at: at, cost: cost})
		return
	case e.k == nil:
		e.k = &key{name: strings.Clone(name[:min(len(name), mostName)])}
		e.k.start(e.at / tick)
		e.k.add(e.at, e.cost)
		s.keys.Of[hash] = e
	}
	if now := at / tick; now != e.k.tick {
		e.k.moveTo(now)
	}
	e.k.add(at, cost)
}

// ErrFewKeys and ErrLarge mean that no limit can be suggested.
var (
	ErrFewKeys = reasonOf(phrase.Of("too few keys: want at least 20"))
	ErrLarge   = reasonOf(phrase.Of("the costs are too large for a limit"))
)

// reason is an error that is told in both languages.
type reason struct{ phrase.Phrase }

func reasonOf(p phrase.Phrase) error { return &reason{p} }

func (r *reason) Error() string { return r.String() }

// Reason is what an error of Suggest says.
func Reason(err error) phrase.Phrase {
	if r := (*reason)(nil); errors.As(err, &r) {
		return r.Phrase
	}
	return phrase.Plain(err.Error())
}

// Suggest says which limits the requests so far suggest. It changes nothing, so that more
// requests may follow. The
// error is ErrFewKeys or ErrLarge.
func (s *Study) Suggest() (Suggestion, error) {
	if len(s.keys.Of) < untouched.FewestKeys {
		return Suggestion{}, ErrFewKeys
	}
	keys := s.states()
	share := untouched.Share(s.options.untouched(), len(keys))
	usual, _ := setApart(keys, hours{})
	during := incidentOf(usual, share, s.days())
	counting, apart := setApart(keys, during)
	f := findings{study: s, people: peaksOf(counting, during), apart: apart, during: during, counting: counting}
	if len(f.people) < untouched.FewestKeys {
		return Suggestion{}, ErrFewKeys
	}
	f.share = untouched.Share(s.options.untouched(), len(f.people))
	return f.suggestion()
}

// days is how many days the log touches.
func (s *Study) days() int { return int(s.last/perDay) + 1 }

// states are copies of all keys, as if their newest day had ended. Their order is the same in every
// run, so that the suggestion is, too.
func (s *Study) states() []*key {
	all := make([]*key, 0, len(s.keys.Of))
	for _, hash := range slices.Sorted(maps.Keys(s.keys.Of)) {
		k := s.keys.Of[hash].state()
		k.fold()
		all = append(all, &k)
	}
	return all
}

// keyPeaks are the highest peaks of a key outside an incident.
type keyPeaks [windows]float32

// peaksOf are those of all keys that came outside an incident.
func peaksOf(keys []*key, during hours) []keyPeaks {
	var all []keyPeaks
	for _, k := range keys {
		if p := k.peaks(during); slices.Min(p[:]) > 0 {
			all = append(all, p)
		}
	}
	return all
}

func (k *key) peaks(during hours) (p keyPeaks) {
	for w := range windows {
		p[w] = k.highest(w, during)
	}
	return p
}

// state is a copy of the key's state, also of a key that came once.
func (e entry) state() (k key) {
	if e.k != nil {
		return *e.k
	}
	k.start(e.at / tick)
	k.add(e.at, e.cost)
	return k
}
