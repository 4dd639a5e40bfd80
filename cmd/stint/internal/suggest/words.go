package suggest

import (
	"math"
	"strconv"
	"time"

	"github.com/stintdev/stint/cmd/stint/internal/phrase"
	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/untouched"
)

const clock = "2006-01-02 15:04"

// ends are how much of a day or a week may lie before the first request and after the last.
const ends = time.Hour

// why is one sentence about the limits.
func (f *findings) why(s *Suggestion) phrase.Phrase {
	var used []phrase.Phrase
	for _, l := range s.Limits {
		u := phrase.Of("%s in any %s", l.Needed, limittext.Duration(l.Period))
		if l.Burst > 0 {
			u = phrase.Of("%s and %s in a burst above that rate", u, l.NeededBurst)
		}
		used = append(used, u)
	}
	why := phrase.Of("%s of %s keys never used more than %s", percent(s.Share), f.study.keys.All(len(f.people)), phrase.Join(", or ", used...))
	if m := f.study.options.margin(); m > 0 {
		why = phrase.Of("%s, and the limit has a margin of %s, rounded up", why, percent(m))
	}
	var apart []phrase.Phrase
	if s.ApartKeys > 0 {
		apart = append(apart, phrase.Of("%s with %s of the units", phrase.Count(s.ApartKeys, "key"), percent(math.Round(s.ApartShare*1000)/1000)))
	}
	if !s.ApartTo.IsZero() {
		apart = append(apart, phrase.Of("what was from %s to %s UTC", s.ApartFrom.Format(clock), s.ApartTo.Format(clock)))
	}
	if len(apart) > 0 {
		why = phrase.Of("%s; set apart: %s", why, phrase.Join(", ", apart...))
	}
	return phrase.Of("%s.", why)
}

// notes are what the numbers cannot tell.
func (f *findings) notes(s *Suggestion) (notes []phrase.Phrase) {
	add := func(note phrase.Phrase) { notes = append(notes, note) }
	if wished := f.study.options.untouched(); s.Share < wished {
		add(phrase.Of("%s cannot tell %s, which needs %s: the numbers are for %s.", phrase.Count(len(f.people), "key"),
			percent(wished), keysFor(wished), percent(s.Share)))
	}
	if n := len(s.Windows); n < windows {
		add(phrase.Of("The log is too short for windows of %s and longer: they need one twice as long.", limittext.Duration(periods[n])))
	}
	if length := time.Duration(f.study.last-f.study.first) * time.Microsecond; length < 24*time.Hour-ends {
		add(phrase.Of("The log is shorter than a day, and may miss the busiest hours."))
	} else if length < 7*24*time.Hour-ends {
		add(phrase.Of("The log is shorter than a week, and may miss the busiest days."))
	}
	if s.Sampled {
		add(phrase.Of("Of about %s keys, a sample of %s was measured.", s.Keys, len(f.study.keys.Of)))
	}
	if s.ApartKeys == 0 {
		add(phrase.Of("No crawler and nobody who attacks was recognized."))
	} else {
		add(phrase.Of("If keys set apart are customers, give them a tier of their own."))
	}
	if !s.ApartTo.IsZero() {
		add(phrase.Of("From %s to %s UTC, many keys had peaks far above their usual ones. If such hours are wanted, they need a higher limit.", s.ApartFrom.Format(clock), s.ApartTo.Format(clock)))
	} else if f.study.days() < fewestDays {
		add(phrase.Of("The log has too few days to recognize one with an incident."))
	}
	if s.Raised {
		add(phrase.Of("Two limits touch more keys than one: they are higher than by the margin, so that together they leave %s untouched.", percent(s.Share)))
	}
	if s.Untouched < s.Share {
		add(phrase.Of("Taken together, the limits leave only %s of the keys untouched.", percent(s.Untouched)))
	}
	return notes
}

// keysFor is how many keys can tell a share.
func keysFor(share float64) int64 {
	n := int64(1)
	for untouched.Share(share, int(n)) != share {
		n *= 2
	}
	for step := n / 2; step > 0; step /= 2 {
		if untouched.Share(share, int(n-step)) == share {
			n -= step
		}
	}
	return n
}

func percent(share float64) string {
	return strconv.FormatFloat(float64(int64(share*1e6+0.5))/1e4, 'f', -1, 64) + "%"
}
