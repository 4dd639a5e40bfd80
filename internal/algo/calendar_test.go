package algo

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"
)

func zoneOf(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func instantOf(t testing.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

// The places where the clocks are set at midnight, or over it.
func TestWindowsOfTheCalendar(t *testing.T) {
	for _, c := range []struct {
		name, zone string
		unit       Unit
		month      time.Month
		day        int
		starts     []string // of windows that follow each other
	}{
		{"UTC", "UTC", Day, 0, 0, []string{"2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"}},
		{"the end of a leap year", "Europe/Berlin", Day, 0, 0, []string{"2040-12-29T23:00:00Z", "2040-12-30T23:00:00Z", "2040-12-31T23:00:00Z", "2041-01-01T23:00:00Z"}},
		{"23 hours", "Europe/Berlin", Day, 0, 0, []string{"2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-30T22:00:00Z"}},
		{"25 hours", "Europe/Berlin", Day, 0, 0, []string{"2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"}},
		{"half an hour less", "Australia/Lord_Howe", Day, 0, 0, []string{"2026-10-02T13:30:00Z", "2026-10-03T13:30:00Z", "2026-10-04T13:00:00Z"}},
		{"no midnight", "America/Havana", Day, 0, 0, []string{"2026-03-07T05:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"}},
		{"two midnights", "America/Havana", Day, 0, 0, []string{"2025-11-01T04:00:00Z", "2025-11-02T04:00:00Z", "2025-11-03T05:00:00Z"}},
		{"no midnight", "Asia/Beirut", Day, 0, 0, []string{"2026-03-27T22:00:00Z", "2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z"}},
		{"set back over midnight", "Asia/Beirut", Day, 0, 0, []string{"2025-10-24T21:00:00Z", "2025-10-25T22:00:00Z", "2025-10-26T22:00:00Z"}},
		// At 00:01 of November 1, 2009, clocks were set to 23:01: October 31 ended twice.
		{"set back to the day before", "America/St_Johns", Day, 0, 0, []string{"2009-10-31T02:30:00Z", "2009-11-01T02:30:00Z", "2009-11-02T03:30:00Z"}},
		{"the same, of a month", "America/St_Johns", Month, 0, 1, []string{"2009-10-01T02:30:00Z", "2009-11-01T02:30:00Z", "2009-12-01T03:30:00Z"}},
		// There was no December 30, 2011.
		{"no such day", "Pacific/Apia", Day, 0, 0, []string{"2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"}},
		{"starts on no such day", "Pacific/Apia", Month, 0, 30, []string{"2011-11-30T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-29T10:00:00Z"}},
		{"starts on no such day", "Pacific/Apia", Week, 0, int(time.Friday), []string{"2011-12-23T10:00:00Z", "2011-12-30T10:00:00Z", "2012-01-05T10:00:00Z"}},
		{"starts: 31", "UTC", Month, 0, 31, []string{"2025-12-31T00:00:00Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z", "2026-04-30T00:00:00Z"}},
		{"starts: 31, leap year", "UTC", Month, 0, 31, []string{"2028-01-31T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z"}},
		{"weeks", "UTC", Week, 0, int(time.Monday), []string{"1970-01-05T00:00:00Z", "1970-01-12T00:00:00Z"}},
		{"weeks from Sunday", "America/New_York", Week, 0, int(time.Sunday), []string{"2026-03-01T05:00:00Z", "2026-03-08T05:00:00Z", "2026-03-15T04:00:00Z"}},
		{"tax years", "Europe/London", Year, time.April, 6, []string{"2025-04-05T23:00:00Z", "2026-04-05T23:00:00Z", "2027-04-05T23:00:00Z"}},
		{"years from February 29", "UTC", Year, time.February, 29, []string{"2027-02-28T00:00:00Z", "2028-02-29T00:00:00Z", "2029-02-28T00:00:00Z"}},
		{"the first year", "UTC", Year, time.April, 6, []string{"1970-01-01T00:00:00Z", "1970-04-06T00:00:00Z"}},
	} {
		t.Run(fmt.Sprintf("%s in %s", c.name, c.zone), func(t *testing.T) {
			calendar := CalendarOf(c.unit, zoneOf(t, c.zone), c.month, c.day)
			for i := range len(c.starts) - 1 {
				want := Window{instantOf(t, c.starts[i]), instantOf(t, c.starts[i+1])}
				for _, now := range []int64{want.Start, want.Start + 1, want.Start/2 + want.End/2, want.End - 1} {
					if got := calendar.Window(now); got != want {
						t.Errorf("at %s: from %s to %s, want from %s", at(now), at(got.Start), at(got.End), c.starts[i])
					}
				}
			}
		})
	}
}

func at(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339Nano) }

var zones = []string{"UTC", "Europe/Berlin", "America/Havana", "Asia/Beirut", "America/St_Johns", "Pacific/Apia", "Pacific/Kwajalein",
	"Australia/Lord_Howe", "Africa/Monrovia", "America/New_York", "Asia/Tehran", "Africa/Casablanca", "Antarctica/Troll", "America/Scoresbysund", "America/Nuuk", "Asia/Gaza", "Asia/Kathmandu"}

// Windows agree with a walk through time that looks at every half minute of the clock.
func TestWindowsAgainstAWalk(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		zone := zoneOf(t, zones[rng.IntN(len(zones))])
		now := rng.Int64N(Exact/2) / 1000 * 1000
		if rng.IntN(2) == 0 { // near a change of the clock
			if _, next := time.UnixMicro(now).In(zone).ZoneBounds(); !next.IsZero() && next.UnixMicro() < Exact {
				now = max(0, next.UnixMicro()+(rng.Int64N(96)-48)*1800*1_000_000+rng.Int64N(3)-1)
			}
		}
		calendar := CalendarOf(Day, zone, 0, 0)
		got := calendar.Window(now)
		if got.Start > now || now >= got.End {
			t.Fatalf("%s: %s is not from %s to %s", zone, at(now), at(got.Start), at(got.End))
		}
		if before := got.Start > 0 && calendar.Window(got.Start-1).End != got.Start; before || calendar.Window(got.End).Start != got.End {
			t.Fatalf("%s: the windows beside that of %s do not meet it", zone, at(now))
		}
		const step = 30
		first, end := got.Start/1_000_000, got.End/1_000_000
		most := int64(-1 << 60) // the latest local day so far
		for second := first - 3*secondsInDay; second < end+3*secondsInDay; second += step {
			clock := time.Unix(second, 0).In(zone)
			day := time.Date(clock.Year(), clock.Month(), clock.Day(), 0, 0, 0, 0, time.UTC).Unix() / secondsInDay
			begins := day > most
			most = max(most, day)
			if second < first-2*secondsInDay || second < 0 {
				continue
			}
			w := calendar.Window(second * 1_000_000)
			if isStart := w.Start == second*1_000_000; isStart != begins && second > 0 {
				t.Fatalf("%s: %s begins a day: %v, want %v", zone, clock, isStart, begins)
			}
		}
	}
}

// The windows of longer units begin where their first day does.
func TestLongWindowsAreMadeOfDays(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		zone := zoneOf(t, zones[rng.IntN(len(zones))])
		days := CalendarOf(Day, zone, 0, 0)
		unit := Week + Unit(rng.IntN(3))
		c := CalendarOf(unit, zone, 0, rng.IntN(7))
		switch unit {
		case Month:
			c = CalendarOf(unit, zone, 0, 1+rng.IntN(31))
		case Year:
			c = CalendarOf(unit, zone, 1+time.Month(rng.IntN(12)), 1+rng.IntN(28))
		}
		now := rng.Int64N(Exact)
		w := c.Window(now)
		if w.Start > now || w.End <= now || w.length() > c.longest() {
			t.Fatalf("%s is not from %s to %s", at(now), at(w.Start), at(w.End))
		}
		if w.Start > 0 && days.Window(w.Start).Start != w.Start || days.Window(w.End).Start != w.End {
			t.Fatalf("%s: no day begins at %s, or at %s", zone, at(w.Start), at(w.End))
		}
		around := c.Around(now)
		if around[1] != w.Start || around[2] != w.End || around[0] > w.Start || w.Start > 0 && c.Window(w.Start-1).Start != around[0] || c.Window(w.End).End != around[3] {
			t.Fatalf("around %s: %v", at(now), around)
		}
		if clock := time.UnixMicro(w.End).In(zone); unit == Week && int(clock.Weekday()) != c.day && zone.String() != "Pacific/Apia" && zone.String() != "Pacific/Kwajalein" {
			t.Fatalf("%s: a week begins at %s", zone, clock)
		}
	}
}

func TestEqualCalendarsAreOne(t *testing.T) {
	a, b := CalendarOf(Month, zoneOf(t, "Asia/Beirut"), 0, 15), CalendarOf(Month, zoneOf(t, "Asia/Beirut"), 0, 15)
	if a != b || a == CalendarOf(Month, zoneOf(t, "Asia/Beirut"), 0, 14) {
		t.Error("the same calendar twice, or two that are one")
	}
}

// A count of the calendar tells a story as a fixed window does.
func TestCalendarStory(t *testing.T) {
	p, err := NewCalendarPlan(3, CalendarOf(Day, zoneOf(t, "Europe/Berlin"), 0, 0), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	const hour = 3600_000_000
	midnight := instantOf(t, "2026-03-28T23:00:00Z") // the day has 23 hours
	var s State
	for i, c := range []struct {
		at, cost         int64
		allowed          bool
		remaining, retry int64
		reset            int64
	}{
		{midnight - 1, 3, true, 0, 0, 1},
		{midnight - 1, 1, false, 0, 1, 1},
		{midnight, 2, true, 1, 0, 23 * hour},
		{midnight + hour, 2, false, 1, 22 * hour, 22 * hour},
		{midnight + hour, 4, false, 1, Never, 22 * hour},
		{midnight - hour, 1, true, 0, 0, 23 * hour}, // the clock stepped back: still the newer window
		{midnight + 23*hour - 1, 1, false, 0, 1, 1},
		{midnight + 23*hour, 1, true, 2, 0, 24 * hour},
		{midnight - 2*hour, 3, true, 0, 0, 2 * hour}, // by more than the length of a day: it was set
	} {
		v := p.Look(&s, c.at)
		d := p.Settle(&s, &v, c.cost, p.Fits(&v, c.cost))
		if want := (Verdict{Allowed: c.allowed, Remaining: c.remaining, Retry: c.retry, Reset: c.reset}); d != want {
			t.Errorf("step %d: %+v, want %+v", i, d, want)
		}
	}
}

func BenchmarkCalendarWindow(b *testing.B) {
	c := CalendarOf(Month, time.UTC, 0, 1)
	now := time.Date(2026, 5, 5, 0, 0, 0, 0, time.UTC).UnixMicro()
	b.Run("cached", func(b *testing.B) {
		for b.Loop() {
			c.Window(now)
		}
	})
	b.Run("computed", func(b *testing.B) {
		for b.Loop() {
			c.compute(now)
		}
	})
}
