package stint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/limittext"
)

// CalendarUnit is the length of a Calendar's windows.
type CalendarUnit uint8

// The lengths of windows, in the Calendar's zone: a Day may have 23 or 25 hours, and a Week is seven
// such days.
const (
	Day   CalendarUnit = CalendarUnit(algo.Day)
	Week  CalendarUnit = CalendarUnit(algo.Week)
	Month CalendarUnit = CalendarUnit(algo.Month)
	Year  CalendarUnit = CalendarUnit(algo.Year)
)

// unitNames are the names of the units, each in its place.
var unitNames = [...]string{Day: "day", Week: "week", Month: "month", Year: "year"}

// String is "day", "week", "month" or "year"; of the zero CalendarUnit, "".
func (u CalendarUnit) String() string {
	if int(u) < len(unitNames) {
		return unitNames[u]
	}
	return "unit(" + strconv.Itoa(int(u)) + ")"
}

// ParseCalendarUnit is the inverse of CalendarUnit.String. It reads names in any case.
func (internals) ParseCalendarUnit(name string) (CalendarUnit, error) {
	if i := slices.IndexFunc(unitNames[:], func(n string) bool { return strings.EqualFold(n, name) }); i > 0 {
		return CalendarUnit(i), nil
	}
	return 0, fmt.Errorf("%q: must be day, week, month or year", limittext.Clip(name))
}

// Calendar makes the windows of a FixedWindow those of the calendar: days, weeks, months or years,
// in a time zone. A window begins at the first instant of its first local day and ends where the
// next begins, so a day has 23 or 25 hours where clocks are set. If midnight does not exist, the
// window begins at the first instant after it; if the day does not exist, with the next day. With
// the zero Calendar, windows have the length of Spec.Period.
//
// The Store's clock decides which window it is. All instances should have the same time zone data;
// if it differs, each uses its own, and a count starts again only when a window of either begins.
type Calendar struct {
	// Unit is the length of a window. 0: there is no calendar.
	Unit CalendarUnit
	// Zone is the name of the time zone in the IANA database, such as "Europe/Berlin". "": UTC.
	// Upper and lower case do not matter. It is read by time.LoadLocation, so a program that may run where no database is
	// installed should import time/tzdata. "Local" is refused, because it may differ between instances.
	Zone string
	// Starts is the day with which a window begins: of a Week, the name of a day such as
	// "sunday" ("": "monday"); of a Month, a day from "1" to "31" ("": "1"), a shorter month starts
	// with its last day; of a Year, month and day such as "04-06" ("": "01-01"), where "02-29" is
	// the last day of February. A Day has none. Names may be in any case and shortened to three
	// letters, as in "Sun" and "Apr-6".
	Starts string
}

// windows checks c, makes it canonical, with defaults left empty, and returns its windows.
func (c *Calendar) windows() (*algo.Calendar, error) {
	if c.Unit < Day || c.Unit > Year {
		return nil, fmt.Errorf("unknown unit of a calendar %d", c.Unit)
	}
	zone, err := loadZone(c.Zone)
	if err != nil {
		return nil, err
	}
	month, day, err := c.starts()
	if err != nil {
		return nil, err
	}
	if c.Zone = zone.String(); zone == time.UTC {
		c.Zone = ""
	}
	switch c.Unit {
	case Week:
		c.Starts = strings.ToLower(time.Weekday(day).String())
	case Month:
		c.Starts = strconv.Itoa(day)
	case Year:
		c.Starts = fmt.Sprintf("%02d-%02d", month, day)
	}
	if c.Starts == defaultStarts[c.Unit] {
		c.Starts = ""
	}
	return algo.CalendarOf(algo.Unit(c.Unit), zone, month, day), nil
}

func loadZone(name string) (*time.Location, error) {
	if name == "" || strings.EqualFold(name, "UTC") {
		return time.UTC, nil
	}
	if strings.EqualFold(name, "Local") || strings.EqualFold(name, "localtime") {
		return nil, fmt.Errorf("in %s: name the time zone, such as Europe/Berlin: instances may have different local times", name)
	}
	const known = "Europe/Berlin"
	for _, name := range limittext.ZoneNames(name) {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	if _, err := time.LoadLocation(known); err != nil {
		return nil, fmt.Errorf("in %q: there is no database of time zones: install tzdata, or import time/tzdata in the program", limittext.Clip(name))
	}
	return nil, fmt.Errorf("in %q: must be a time zone of the IANA database, such as %s", limittext.Clip(name), known)
}

var defaultStarts = [...]string{Day: "", Week: "monday", Month: "1", Year: "01-01"}

// starts parses c.Starts for algo.CalendarOf.
func (c *Calendar) starts() (month time.Month, day int, err error) {
	text := cmp.Or(c.Starts, defaultStarts[c.Unit])
	switch c.Unit {
	case Day:
		if text != "" {
			return 0, 0, fmt.Errorf("starts %q: a day starts at its first instant; only week, month and year have a day to start with", limittext.Clip(text))
		}
		return 0, 0, nil
	case Week:
		if d, ok := limittext.Weekday(text); ok {
			return 0, int(d), nil
		}
		return 0, 0, fmt.Errorf("starts %q: must be a day of the week, such as sunday", limittext.Clip(text))
	case Month:
		day, err := strconv.ParseUint(text, 10, 8)
		if err != nil || day < 1 || day > 31 {
			return 0, 0, fmt.Errorf("starts %q: must be a day of the month, from 1 to 31", limittext.Clip(text))
		}
		return 0, int(day), nil
	}
	month, day, ok := limittext.MonthDay(text)
	if !ok {
		return 0, 0, fmt.Errorf("starts %q: must be month and day, such as 04-06", limittext.Clip(text))
	}
	return month, day, nil
}

// id is the part of a limit's ID for c. Different calendars have different ids.
func (c *Calendar) id() string {
	month, day, _ := c.starts()
	id := "c" + c.Unit.String()[:1]
	switch c.Unit {
	case Year:
		id += fmt.Sprintf("%02d%02d", month, day)
	case Week, Month:
		id += strconv.Itoa(day)
	}
	return id + "/" + cmp.Or(c.Zone, "UTC")
}

// terms is the text form of c, after "per".
func (c *Calendar) terms() string {
	text := c.Unit.String()
	if c.Zone != "" {
		text += " in " + c.Zone
	}
	if c.Starts != "" {
		text += " starts " + c.Starts
	}
	return text
}

// planOfCalendar makes the plan of a limit of the calendar.
func planOfCalendar(s *Spec) (algo.Plan, error) {
	windows, err := s.Calendar.windows()
	switch per := s.Calendar.Unit; {
	case err != nil:
		return algo.Plan{}, err
	case s.Period != 0:
		return algo.Plan{}, fmt.Errorf("period %s: a limit per %s has no period", s.Period, per)
	case s.Algorithm != FixedWindow && s.Algorithm != TokenBucket:
		return algo.Plan{}, fmt.Errorf("%s per %s: only fixed_window can follow the calendar", s.Algorithm, per)
	}
	s.Algorithm = FixedWindow
	return algo.NewCalendarPlan(s.Amount, windows, s.Burst, int64(s.Buckets))
}
