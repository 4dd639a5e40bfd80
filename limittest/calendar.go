package limittest

import (
	"sync"
	"time"
	_ "time/tzdata" // a machine may lack a time zone database

	"github.com/stintdev/stint"
)

// calendar implements the words of stint.Calendar: it looks at the clocks of a zone.
type calendar struct {
	stint.Calendar
	zone   *time.Location
	starts time.Time // the day of a year or a month with which a window begins
}

func calendarOf(c stint.Calendar) calendar {
	all := calendar{Calendar: c, starts: time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)}
	var err error
	if all.zone, err = time.LoadLocation(c.Zone); err != nil {
		panic(err) // there is a Limit with it
	}
	switch {
	case c.Starts == "":
	case c.Unit == stint.Month:
		all.starts, err = time.Parse("2", c.Starts)
	case c.Unit == stint.Year:
		all.starts, err = time.Parse(time.DateOnly, "2000-"+c.Starts)
	}
	if err != nil {
		panic(err)
	}
	return all
}

// length is about how long a window is, µs.
func (c *calendar) length() int64 {
	days := map[stint.CalendarUnit]int64{stint.Day: 1, stint.Week: 7, stint.Month: 30, stint.Year: 365}
	return days[c.Unit] * 24 * 3600 * second
}

// starting reports whether a window begins with a date.
func (c *calendar) starting(date time.Time) bool {
	last := date.AddDate(0, 0, 1).Day() == 1 // of its month
	switch c.Unit {
	case stint.Week:
		if c.Starts == "" {
			return date.Weekday() == time.Monday
		}
		for d := time.Sunday; d <= time.Saturday; d++ {
			if date.Weekday() == d && time.Date(2023, 1, 1+int(d), 0, 0, 0, 0, time.UTC).Format("Monday") == upper(c.Starts) {
				return true
			}
		}
		return false
	case stint.Month:
		return date.Day() == c.starts.Day() || last && date.Day() < c.starts.Day()
	case stint.Year:
		return date.Month() == c.starts.Month() && (date.Day() == c.starts.Day() || last && date.Day() < c.starts.Day())
	}
	return true
}

func upper(day string) string { return string(day[0]-'a'+'A') + day[1:] }

// window returns the window of an instant, µs.
func (c *calendar) window(at int64) (start, end int64) {
	const day = 24 * time.Hour
	later := micros(c.length()) + 5*day // the next window has begun by then
	for date := time.UnixMicro(at).UTC().Truncate(day).Add(later); ; date = date.Add(-day) {
		if !c.starting(date) {
			continue
		}
		if start = c.begins(date); start <= at {
			return max(0, start), end
		}
		end = start
	}
}

// begun are the instants, µs, at which dates began in zones.
var begun sync.Map

type dateIn struct {
	zone string
	date int64
}

// begins is the first instant at which a clock of the zone shows a date or a later one. It checks
// each half minute.
func (c *calendar) begins(date time.Time) int64 {
	key := dateIn{c.zone.String(), date.Unix()}
	if at, ok := begun.Load(key); ok {
		return at.(int64)
	}
	const look, far = 30, 16 * 3600 // no zone is farther from UTC
	for at := date.Unix() - far; ; at += look {
		clock := time.Unix(at, 0).In(c.zone)
		if shown := time.Date(clock.Year(), clock.Month(), clock.Day(), 0, 0, 0, 0, time.UTC); !shown.Before(date) {
			begun.Store(key, at*second)
			return at * second
		}
	}
}

// calendar draws a Calendar with windows of at most longest µs.
func (s *script) calendar(longest int64) stint.Calendar {
	for {
		c := stint.Calendar{Unit: pick(s, stint.Day, stint.Day, stint.Week, stint.Month, stint.Year)}
		c.Zone = pick(s, "", "Europe/Berlin", "America/Havana", "Asia/Beirut", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe")
		switch c.Unit {
		case stint.Week:
			c.Starts = pick(s, "", "sunday", "friday")
		case stint.Month:
			c.Starts = pick(s, "", "15", "30", "31")
		case stint.Year:
			c.Starts = pick(s, "", "04-06", "02-29")
		}
		if all := calendarOf(c); c.Unit == stint.Day || all.length() <= longest {
			return c
		}
	}
}

// periodOf is the period of a limit, or about how long its windows are.
func periodOf(l *stint.Limit) time.Duration { return micros(termsOf(l).period) }
