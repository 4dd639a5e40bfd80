package suggest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/spelling"
)

const clock = "2006-01-02 15:04"

// why is one sentence about the limits.
func (f *findings) why(s *Suggestion) string {
	var used []string
	for _, l := range s.Limits {
		t := fmt.Sprintf("%s in any %s", spelling.Grouped(l.Needed), limittext.Duration(l.Period))
		if l.Burst > 0 {
			t += fmt.Sprintf(" and %s in a burst above that rate", spelling.Grouped(l.NeededBurst))
		}
		used = append(used, t)
	}
	text := fmt.Sprintf("%s of %s keys never used more than %s", percent(s.Share), spelling.Grouped(f.study.keys.All(len(f.people))), strings.Join(used, ", or "))
	if m := f.study.options.margin(); m > 0 {
		text += fmt.Sprintf(", and the limit has a margin of %s, rounded up", percent(m))
	}
	var apart []string
	if s.ApartKeys > 0 {
		apart = append(apart, fmt.Sprintf("%s with %s of the units", spelling.SeveralGrouped(s.ApartKeys, "key"), percent(math.Round(s.ApartShare*1000)/1000)))
	}
	if !s.ApartTo.IsZero() {
		apart = append(apart, fmt.Sprintf("what was from %s to %s UTC", s.ApartFrom.Format(clock), s.ApartTo.Format(clock)))
	}
	if len(apart) > 0 {
		text += "; set apart: " + strings.Join(apart, ", ")
	}
	return text + "."
}

// notes are what the numbers cannot tell.
func (f *findings) notes(s *Suggestion) (notes []string) {
	note := func(format string, a ...any) { notes = append(notes, fmt.Sprintf(format, a...)) }
	if wished := f.study.options.untouched(); s.Share < wished {
		note("%s cannot tell %s, which needs %s: the numbers are for %s.", spelling.SeveralGrouped(len(f.people), "key"),
			percent(wished), spelling.Grouped(keysFor(wished)), percent(s.Share))
	}
	if n := len(s.Windows); n < windows {
		note("The log is too short for windows of %s and longer: they need one twice as long.", limittext.Duration(periods[n]))
	}
	if length := time.Duration(f.study.last-f.study.first) * time.Microsecond; length < 24*time.Hour {
		note("The log is shorter than a day, and may miss the busiest hours.")
	} else if length < 7*24*time.Hour {
		note("The log is shorter than a week, and may miss the busiest days.")
	}
	if s.Sampled {
		note("Of about %s keys, a sample of %s was measured.", spelling.Grouped(s.Keys), spelling.Grouped(int64(len(f.study.keys.Of))))
	}
	if s.ApartKeys == 0 {
		note("No crawler and nobody who attacks was recognized.")
	} else {
		note("If keys set apart are customers, give them a tier of their own.")
	}
	if !s.ApartTo.IsZero() {
		note("From %s to %s UTC, many keys had peaks far above their usual ones. If such hours are wanted, they need a higher limit.", s.ApartFrom.Format(clock), s.ApartTo.Format(clock))
	} else if f.study.days() < fewestDays {
		note("The log has too few days to recognize one with an incident.")
	}
	if s.Raised {
		note("Two limits touch more keys than one: they are higher than by the margin, so that together they leave %s untouched.", percent(s.Share))
	}
	if s.Untouched < s.Share {
		note("Taken together, the limits leave only %s of the keys untouched.", percent(s.Untouched))
	}
	return notes
}

// keysFor is how many keys can tell a share.
func keysFor(share float64) int64 {
	n := int64(1)
	for supported(share, int(n)) != share {
		n *= 2
	}
	for step := n / 2; step > 0; step /= 2 {
		if supported(share, int(n-step)) == share {
			n -= step
		}
	}
	return n
}

func percent(share float64) string {
	return strconv.FormatFloat(float64(int64(share*1e6+0.5))/1e4, 'f', -1, 64) + "%"
}
