package suggest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/internal/limittext"
)

// Suggestion is what a Study suggests, and why.
type Suggestion struct {
	// Limits are one or two, that of the shorter period first.
	Limits []Limit
	// Share is the share of keys that the numbers are for: the wished one, or a lower one if the
	// log has too few keys for it.
	Share float64
	// Untouched is the share of keys that no limit would have refused, by their peaks. Like all
	// numbers here, it leaves out the keys and hours that are set apart.
	Untouched float64
	// Raised reports that the limits have more than the margin, so that together they leave
	// the share untouched.
	Raised bool
	// Keys and Requests are how many the log has. Keys is an estimate if Sampled.
	Keys, Requests int64
	Sampled        bool
	// Windows are those for which the log is long enough, from the shortest.
	Windows []Window
	// Apart are keys that were set apart, those with most requests first: at most 10 of
	// ApartKeys. They make the share ApartShare of what all requests cost.
	Apart      []Apart
	ApartKeys  int
	ApartShare float64
	// ApartFrom and ApartTo are the hours, in UTC, whose peaks were set apart because of an
	// incident. Zero Times: none.
	ApartFrom, ApartTo time.Time
	// Why is one sentence.
	Why phrase.Phrase
	// Notes say what the numbers cannot tell, a sentence each.
	Notes []phrase.Phrase
}

// Limit is a suggested limit.
type Limit struct {
	Amount    int64
	Period    time.Duration
	Algorithm stint.Algorithm // TokenBucket or SlidingWindow
	Burst     int64           // of a TokenBucket; 0: Amount
	// Needed and NeededBurst are Amount and Burst without margin and rounding: what the keys
	// used. NeededBurst is a bound: they may have needed less.
	Needed, NeededBurst int64
	window              int
}

// Limit is the limit itself.
func (l Limit) Limit() (*stint.Limit, error) {
	return stint.NewLimit(stint.Spec{Algorithm: l.Algorithm, Amount: l.Amount, Period: l.Period, Burst: l.Burst})
}

// String is the limit as a rules file has it, such as "120 per 1m".
func (l Limit) String() string {
	limit, err := l.Limit()
	if err != nil {
		return fmt.Sprintf("%d per %s %s", l.Amount, l.Period, l.Algorithm)
	}
	return limit.Terms()
}

// Texts are the limits as a rules file has them.
func (s Suggestion) Texts() (texts []string) {
	for _, l := range s.Limits {
		texts = append(texts, l.String())
	}
	return texts
}

// Window is what the keys that count used in one window.
type Window struct {
	Period time.Duration
	// Needed is the lowest amount that leaves Suggestion.Share of the keys untouched.
	Needed int64
	// Knee is the amount beyond which a higher one leaves few more keys untouched.
	Knee int64
	// Curve has at most 60 points, with ascending peaks.
	Curve []Point
}

// Apart is a key that is set apart: its peak in the window is so many times the mean of the others.
type Apart struct {
	Key    string
	Units  int64 // that its requests cost
	Peak   int64
	Period time.Duration
	Times  float64
}

// Why says why the key is set apart.
func (a Apart) Why() phrase.Phrase {
	return phrase.Of("%s in %s, %s times the mean of the others", a.Peak, limittext.Duration(a.Period), strconv.FormatFloat(a.Times, 'f', 0, 64))
}

// findings are what the Suggestion is made of.
type findings struct {
	study    *Study
	people   []keyPeaks
	counting []*key // those of people
	apart    []aside
	during   hours
	share    float64
}

func (f *findings) suggestion() (Suggestion, error) {
	s := Suggestion{
		Share: f.share, Sampled: f.study.keys.IsPart(),
		Keys: f.study.keys.All(len(f.study.keys.Of)), Requests: f.study.requests,
		ApartKeys: int(f.study.keys.All(len(f.apart))),
	}
	f.addApart(&s)
	margin := f.study.options.margin()
	var limits []Limit
	var amounts [windows]float64
	for w := range f.stands() {
		peaks := ascending(f.people, func(k *keyPeaks) float64 { return float64(k[w]) })
		needed := quantileOf(peaks, f.share, f.during.restOf(w, f.counting, f.study.days()))
		amounts[w] = needed * (1 + margin)
		window := Window{Period: periods[w], Needed: int64(needed), Knee: kneeOf(peaks), Curve: curveOf(peaks)}
		s.Windows = append(s.Windows, window)
		limits = append(limits, candidates(f.people, w, window, f.share, margin)...)
	}
	s.Limits = choose(limits, amounts, len(s.Windows))
	if len(s.Limits) == 0 {
		return Suggestion{}, ErrLarge
	}
	f.raise(&s)
	s.Why = f.why(&s)
	s.Notes = f.notes(&s)
	return s, nil
}

// stands is how many windows the log is long enough for: twice as long.
func (f *findings) stands() int {
	span := time.Duration(f.study.last-f.study.first) * time.Microsecond
	n := 1
	for n < windows && span >= 2*periods[n] {
		n++
	}
	return n
}

// raise raises the limits until together they leave the wished share of keys untouched. Each
// leaves it, but they may touch different keys. It gives up at twice the amounts.
func (f *findings) raise(s *Suggestion) {
	limits := slices.Clone(s.Limits)
	for range 15 {
		if s.Untouched = f.untouched(s.Limits); s.Untouched >= s.Share {
			return
		}
		for i, l := range s.Limits {
			s.Limits[i] = l.raised()
		}
		s.Raised = true
	}
	s.Limits, s.Raised, s.Untouched = limits, false, f.untouched(limits)
}

func (f *findings) untouched(limits []Limit) float64 {
	n := 0
	for i := range f.people {
		if !slices.ContainsFunc(limits, func(l Limit) bool { return !l.untouched(&f.people[i]) }) {
			n++
		}
	}
	return float64(n) / float64(len(f.people))
}

func (f *findings) addApart(s *Suggestion) {
	var all, apart float64
	for _, e := range f.study.keys.Of {
		all += float64(e.units())
	}
	for _, k := range f.apart {
		apart += float64(k.total)
		if len(s.Apart) < 10 {
			s.Apart = append(s.Apart, Apart{Key: k.name, Units: k.total, Peak: int64(k.peak), Period: periods[k.window], Times: k.times})
		}
	}
	s.ApartShare = apart / all
	if when := f.during; when.to > 0 {
		s.ApartFrom, s.ApartTo = f.study.timeOf(when.from), f.study.timeOf(when.to)
	}
}

// timeOf is when an hour of the log begins.
func (s *Study) timeOf(hour uint16) time.Time {
	return time.UnixMicro(s.midnight).UTC().Add(time.Duration(hour) * time.Hour)
}
