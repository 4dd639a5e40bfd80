package replay

import "time"

// Week has the requests that a rule applies to by hour of the week in UTC: [0][0] is the first hour of Mondays.
type Week [7][24]Count

// Count is how many requests there were, and how many of them the rule refused.
type Count struct{ Requests, Refused int64 }

// week sums up the hours of all weeks.
func (t *ruleTally) week() (w Week) {
	for hour, h := range t.hours {
		at := time.UnixMicro(hour * hourLong).UTC()
		c := &w[(at.Weekday()+6)%7][at.Hour()]
		c.Requests += h.requests
		c.Refused += h.refused
	}
	return w
}
