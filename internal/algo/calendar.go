package algo

import (
	"sync"
	"sync/atomic"
	"time"
)

// Unit is the length of a Calendar's windows.
type Unit uint8

const (
	Day Unit = 1 + iota
	Week
	Month
	Year
)

// Calendar is a sequence of windows. Each begins at the first instant of a local day in a time zone
// or, if that day does not exist, with the next that does. Equal Calendars are the same pointer, so
// that Plans can be compared. It may be used from many goroutines at once.
type Calendar struct {
	unit   Unit
	month  time.Month // for a year: its first month
	day    int        // for a month or year: its first day; for a week: the time.Weekday
	zone   *time.Location
	recent atomic.Pointer[Window] // the last computed window
}

// Window is from Start until before End, µs since 1970. Start is at least 0, as instants are.
type Window struct{ Start, End int64 }

func (w Window) length() int64 { return w.End - w.Start }

type calendarKey struct {
	unit  Unit
	zone  string
	month time.Month
	day   int
}

var calendars struct {
	sync.Mutex
	all map[calendarKey]*Calendar
}

// CalendarOf returns the calendar of a unit in a zone. day is, for Week, the time.Weekday with which
// a week starts; for Month and Year a day of the month, or the last one if the month is shorter;
// month is only for Year. Arguments that the unit does not need must be 0. Of zones with equal names,
// the first is kept.
func CalendarOf(unit Unit, zone *time.Location, month time.Month, day int) *Calendar {
	key := calendarKey{unit, zone.String(), month, day}
	calendars.Lock()
	defer calendars.Unlock()
	c := calendars.all[key]
	if c == nil {
		if calendars.all == nil {
			calendars.all = make(map[calendarKey]*Calendar)
		}
		c = &Calendar{unit: unit, zone: zone, month: month, day: day}
		calendars.all[key] = c
	}
	return c
}

// longest bounds the length of a window, µs. Two days are for clock changes: a place that moves
// across the date line may have a day twice.
func (c *Calendar) longest() int64 {
	days := [...]int64{Day: 1, Week: 7, Month: 31, Year: 366}[c.unit]
	return (days + 2) * secondsInDay * 1_000_000
}

// Window returns the window of an instant, µs since 1970.
func (c *Calendar) Window(now int64) Window {
	if w := c.recent.Load(); w != nil && now >= w.Start && now < w.End {
		return *w
	}
	w := c.compute(now)
	c.recent.Store(&w)
	return w
}

// Zone is the time zone of the local days.
func (c *Calendar) Zone() *time.Location { return c.zone }

// Around returns the starts of the window before an instant's, of its own and of the next, and the
// end of the next.
func (c *Calendar) Around(now int64) [4]int64 {
	w := c.Window(now)
	before := w.Start
	if w.Start > 0 {
		before = c.compute(w.Start - 1).Start
	}
	return [4]int64{before, w.Start, w.End, c.compute(w.End).End}
}

const secondsInDay = 24 * 60 * 60

func (c *Calendar) compute(now int64) Window {
	second := now / 1_000_000
	_, offset := time.Unix(second, 0).In(c.zone).Zone()
	n := c.number(floorDiv(second+int64(offset), secondsInDay))
	// A clock that is set back over midnight makes a local day end twice: the first beginning
	// counts.
	start := c.begin(c.first(n))
	for start > second {
		n--
		start = c.begin(c.first(n))
	}
	end := c.begin(c.first(n + 1))
	for end <= second {
		n++
		start, end = end, c.begin(c.first(n+1))
	}
	return Window{max(0, start*1_000_000), end * 1_000_000}
}

// number is the number of the window to which a local day belongs, if all days exist. Days are
// counted from 1970-01-01.
func (c *Calendar) number(day int64) int64 {
	date := time.Unix(day*secondsInDay, 0).UTC()
	var n int64
	switch c.unit {
	case Day:
		return day
	case Week:
		return floorDiv(day-c.firstWeek(), 7)
	case Month:
		n = int64(date.Year())*12 + int64(date.Month()) - 1
	default:
		n = int64(date.Year())
	}
	if c.first(n) > day {
		n--
	}
	return n
}

// first is the first local day of a window.
func (c *Calendar) first(n int64) int64 {
	switch c.unit {
	case Day:
		return n
	case Week:
		return n*7 + c.firstWeek()
	case Month:
		return dayOf(int(floorDiv(n, 12)), time.Month(n-floorDiv(n, 12)*12+1), c.day)
	default:
		return dayOf(int(n), c.month, c.day)
	}
}

// firstWeek is the first day from 1970-01-01 on, a Thursday, with which a week starts.
func (c *Calendar) firstWeek() int64 { return int64((c.day - int(time.Thursday) + 7) % 7) }

// dayOf counts the days from 1970-01-01 to a day of a month, or to the last one if there are fewer.
func dayOf(year int, month time.Month, day int) int64 {
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return floorDiv(time.Date(year, month, min(day, last), 0, 0, 0, 0, time.UTC).Unix(), secondsInDay)
}

// begin is the first second at which the local date is a day or a later one.
func (c *Calendar) begin(day int64) int64 {
	midnight := day * secondsInDay // in UTC
	// No zone is two days from UTC, so the day has not begun before this.
	t := time.Unix(midnight-2*secondsInDay, 0).In(c.zone)
	for {
		_, offset := t.Zone()
		at := max(midnight-int64(offset), t.Unix())
		_, to := t.ZoneBounds()
		if to.IsZero() {
			return at
		}
		if !to.After(t) { // on the last day of a leap year after 2037, ZoneBounds of Go 1.26 ends before t
			to = t.Add(secondsInDay * time.Second)
		}
		if at < to.Unix() {
			return at
		}
		t = to
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
