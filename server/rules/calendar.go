package rules

import (
	"strings"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/yamlnode"
)

// asWritten reads a text that stint.NewLimit checks.
func asWritten(text string) (string, error) { return text, nil }

const day = 24 * time.Hour

// calendarUnit is the unit of the calendar that is about as long as a period; 0: none is.
func calendarUnit(period time.Duration) stint.CalendarUnit {
	switch {
	case period == day:
		return stint.Day
	case period == 7*day:
		return stint.Week
	case period >= 28*day && period <= 31*day:
		return stint.Month
	case period == 365*day || period == 366*day:
		return stint.Year
	}
	return 0
}

// findNotCalendar looks for fixed windows of whole days where calendar windows were probably meant. It
// ignores periods in hours.
func (p *parser) findNotCalendar(r *Rule, limits *yamlnode.Node) {
	for i, l := range r.Limits {
		s := l.Spec()
		unit := calendarUnit(s.Period)
		if s.Algorithm != stint.FixedWindow || unit == 0 || !inDays(limits.Content[i]) {
			continue
		}
		p.found(codeNotCalendar, p.Place(limits.Content[i]),
			"rule %q: the windows of %s are %d hours long, counted from 1970-01-01 00:00 UTC, so they do not follow the calendar; write per %s (and in ZONE, such as in Europe/Berlin, for midnight there), or %dh if you mean hours",
			r.Name, l.Terms(), int(s.Period.Hours()), unit, int(s.Period.Hours()))
	}
}

// inDays tells whether the period of a limit is written in days, such as 1d.
func inDays(limit *yamlnode.Node) bool {
	text := limit.Value
	for i := 0; i+1 < len(limit.Content); i += 2 {
		if limit.Content[i].Value == "period" {
			text = "per " + limit.Content[i+1].Value
		}
	}
	_, period, _ := strings.Cut(text, "per ")
	period, _, _ = strings.Cut(strings.TrimSpace(period), " ")
	return strings.HasSuffix(period, "d")
}
