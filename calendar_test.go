package stint_test

import (
	"context"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stintdev/stint"
)

func TestParseCalendar(t *testing.T) {
	month := func(zone, starts string) stint.Calendar {
		return stint.Calendar{Unit: stint.Month, Zone: zone, Starts: starts}
	}
	for _, c := range []struct {
		text string
		want stint.Calendar
		id   string
		back string // what String gives; "": the same text
	}{
		{"5 per day", stint.Calendar{Unit: stint.Day}, "cd/UTC:", ""},
		{"5 per week", stint.Calendar{Unit: stint.Week}, "cw1/UTC:", ""},
		{"5 per month", month("", ""), "cm1/UTC:", ""},
		{"5 per year", stint.Calendar{Unit: stint.Year}, "cy0101/UTC:", ""},
		{"5 per month fixed_window in UTC starts 1", month("", ""), "cm1/UTC:", "5 per month"},
		{"5 per month in Europe/Berlin starts 15", month("Europe/Berlin", "15"), "cm15/Europe/Berlin:", ""},
		{"5 per month starts 31 in Europe/Berlin", month("Europe/Berlin", "31"), "cm31/Europe/Berlin:", "5 per month in Europe/Berlin starts 31"},
		{"5 per week in America/New_York starts sunday", stint.Calendar{Unit: stint.Week, Zone: "America/New_York", Starts: "sunday"}, "cw0/America/New_York:", ""},
		{"5 per week starts monday", stint.Calendar{Unit: stint.Week}, "cw1/UTC:", "5 per week"},
		{"5 per year in Europe/London starts 04-06", stint.Calendar{Unit: stint.Year, Zone: "Europe/London", Starts: "04-06"}, "cy0406/Europe/London:", ""},
		{"5 per year starts 02-29", stint.Calendar{Unit: stint.Year, Starts: "02-29"}, "cy0229/UTC:", ""},
		{"api: 5 per month in Etc/GMT+5 lease 10%", month("Etc/GMT+5", ""), "cm1/Etc/GMT+5:api", ""},
	} {
		l, err := stint.ParseLimit(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if s := l.Spec(); s.Calendar != c.want || s.Algorithm != stint.FixedWindow || s.Period != 0 {
			t.Errorf("%q: %+v, want %+v", c.text, s, c.want)
		}
		if c.back == "" {
			c.back = c.text
		}
		if l.ID() != c.id || l.String() != c.back {
			t.Errorf("%q: ID %q, want %q, and text %q, want %q", c.text, l.ID(), c.id, l, c.back)
		}
		if again, err := stint.ParseLimit(l.String()); err != nil || again.Spec() != l.Spec() {
			t.Errorf("%q read again: %v %v", l, again, err)
		}
	}
	held, err := stint.ParseLimit("5000000 per month in Europe/Berlin hold")
	if err != nil || !held.IsHeld() || held.String() != "5000000 per month in Europe/Berlin hold" {
		t.Errorf("%v %v", held, err)
	}
}

func TestParseCalendarRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"5 per months":                                 `period "months": must be a duration such as 500ms, 10s, 1m30s, 24h or 7d, or day, week, month or year`,
		"5 per 1 month":                                `period "1"`,
		"5 per month token_bucket":                     "token_bucket per month: only fixed_window can follow the calendar",
		"5 per month sliding_log":                      "sliding_log per month: only fixed_window",
		"5 per month token_bucket burst 9":             "only fixed_window",
		"5 per month burst 9":                          "burst 9: only token_bucket and leaky_bucket have a burst",
		"5 per month buckets 9":                        "buckets 9: only sliding_window has sub-windows",
		"5 per month in":                               `"in": a time zone must follow`,
		"5 per month starts":                           `"starts": a day must follow`,
		"5 per month in UTC in UTC":                    `"in": only once`,
		"5 per month in Local":                         "in Local: name the time zone",
		"5 per month in Berlin":                        `in "Berlin": must be a time zone of the IANA database, such as Europe/Berlin`,
		"5 per month in ../zoneinfo/UTC":               "must be a time zone of the IANA database",
		"5 per month starts 0":                         "from 1 to 31",
		"5 per month starts 32":                        "from 1 to 31",
		"5 per month starts sunday":                    "from 1 to 31",
		"5 per day starts 5":                           "a day starts at its first instant",
		"5 per week starts 1":                          "must be a day of the week, such as sunday",
		"5 per week starts su":                         "must be a day of the week",
		"5 per week starts sundays":                    "must be a day of the week",
		"5 per year starts 13-6":                       "must be month and day, such as 04-06",
		"5 per year starts ma-6":                       "must be month and day, such as 04-06",
		"5 per year starts apr-may":                    "must be month and day, such as 04-06",
		"5 per year starts 6-7-8":                      "must be month and day, such as 04-06",
		"5 per 1w":                                     `period "1w": write 7d, or day, week, month or year`,
		"5 per 2Weeks":                                 `period "2Weeks": write 14d`,
		"5 per minute":                                 `period "minute": write 1m`,
		"5 per HOUR":                                   `period "HOUR": write 1h`,
		"5 per 30min":                                  `period "30min": write 30m`,
		"5 per 1M":                                     `period "1M": write 1m for minutes, or 30d for months of 30 days`,
		"5 per 10S":                                    `period "10S": write 10s`,
		"5 per 7D":                                     `period "7D": write 7d`,
		"5 per month in LOCAL":                         "in LOCAL: name the time zone",
		"5 per year starts 02-30":                      "must be month and day",
		"5 per year starts 15":                         "must be month and day",
		"5 per 1m in UTC":                              "in UTC: only a limit per day, week, month or year has a time zone",
		"5 per 24h fixed_window starts 5":              "starts 5: only a limit per week, month or year",
		"4 in_flight in UTC":                           "in UTC: only a limit per day",
		"-1 per month":                                 "amount -1: must be at least 1",
		"5 per month lease 5% hold":                    "a limit that is held cannot be leased",
		"5 per month in " + strings.Repeat("x", 1<<16): "must be a time zone",
	} {
		_, err := stint.ParseLimit(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: error %v, want %q", text, err, want)
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("%.60q: an error of %d bytes", text, len(err.Error()))
		}
	}
	for _, s := range []stint.Spec{
		{Amount: 1, Period: time.Hour, Calendar: stint.Calendar{Unit: stint.Month}},
		{Amount: 1, Calendar: stint.Calendar{Unit: stint.Year + 1}},
		{Amount: 1, Algorithm: stint.InFlight, Calendar: stint.Calendar{Unit: stint.Day}},
	} {
		if l, err := stint.NewLimit(s); err == nil {
			t.Errorf("%+v was taken as %s", s, l)
		}
	}
}

// A budget of a month, in memory: it is whole again at the first instant of the local day, and one
// in another zone or with another start counts by itself.
func TestMemoryCountsInCalendarWindows(t *testing.T) {
	l := stint.MustLimit("10 per month in Europe/Berlin starts 31")
	var m stint.Memory
	at := func(text string) time.Time {
		then, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return then
	}
	for i, c := range []struct {
		at          string
		limit       *stint.Limit
		cost        int64
		allowed     bool
		remaining   int64
		retry, left time.Duration
	}{
		{"2026-02-27T22:59:59Z", l, 10, true, 0, 0, time.Second},
		{"2026-02-27T22:59:59Z", l, 1, false, 0, time.Second, time.Second},
		{"2026-02-27T22:59:59Z", stint.MustLimit("10 per month in Europe/Berlin"), 1, true, 9, 0, 24*time.Hour + time.Second},
		{"2026-02-27T22:59:59Z", stint.MustLimit("10 per month in Europe/Paris starts 31"), 1, true, 9, 0, time.Second},
		{"2026-02-27T22:59:59Z", stint.MustLimit("20 per month in Europe/Berlin starts 31"), 1, true, 9, 0, time.Second}, // another amount: the same count
		{"2026-02-27T23:00:00Z", l, 1, true, 9, 0, 31*24*time.Hour - time.Hour},                                          // until March 31, in summer time
		{"2026-03-30T21:59:59Z", l, 10, false, 9, time.Second, time.Second},
		{"2026-03-30T22:00:00Z", l, 10, true, 0, 0, 30 * 24 * time.Hour},
	} {
		d, err := m.Take(context.Background(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: c.limit, Cost: c.cost}}, At: at(c.at)}, nil)
		if err != nil || d.Allowed != c.allowed || d.Remaining != c.remaining || d.RetryAfter != c.retry || d.ResetAfter != c.left {
			t.Errorf("step %d: %+v %v", i, d, err)
		}
	}
}

// What a person writes in another way is the same limit, in its only form.
func TestSpellingsOfLimits(t *testing.T) {
	for want, spellings := range map[string][]string{
		"5 per 10s sliding_log":             {"5 PER 10s SLIDING_LOG", "5 per 10s Sliding-Log", "005 per 10s sliding_log", "+5 per 10s sliding_log"},
		"5 per 1m sliding_window buckets 6": {"5 per 60s Sliding_Window Buckets 6"},
		"4 in_flight hold 10s":              {"4 IN_FLIGHT Hold 10s", "4 in-flight hold 10s"},
		"5 per week":                        {"5 per Week", "5 per WEEK starts Monday", "5 per week starts mon", "5 per week In utc Starts MON", "5 per week in UTC starts monday"},
		"5 per week starts sunday":          {"5 per week starts Sunday", "5 per week starts SUN", "5 per week starts Sund"},
		"5 per week starts thursday":        {"5 per week starts thu", "5 per week starts Thurs"},
		"5 per month starts 7":              {"5 per MONTH starts 07"},
		"5 per year starts 04-06":           {"5 per Year starts 4-6", "5 per year starts apr-6", "5 per year starts April-06", "5 per year starts 6-APR"},
		"5 per year":                        {"5 per year starts 1-1", "5 per year starts jan-1"},
		"5 per year starts 02-29":           {"5 per year starts feb-29", "5 per year starts 2-29"},
		"5 per day in Europe/Berlin":        {"5 per day in europe/berlin", "5 per day IN EUROPE/BERLIN"},
		"5 per day in America/New_York":     {"5 per Day in america/new_york"},
		"5 per day in Etc/GMT+5":            {"5 per day in etc/gmt+5"},
	} {
		for _, text := range append(spellings, want) {
			if l, err := stint.ParseLimit(text); err != nil || l.Terms() != want || l.ID() != stint.MustLimit(want).ID() {
				t.Errorf("%s: %v, %v, want %s", text, l, err, want)
			}
		}
	}
	for text, want := range map[string]string{
		"1_000 per 1m": `amount "1_000": write 1000`, "1,000 per 1m": `amount "1,000": write 1000`,
		"1e3 per 1m": `amount "1e3": must be a whole number`, "5 per 1m sliding": "unknown algorithm",
		"-1 per 1m": "amount -1: must be at least 1", "-1 in_flight": "amount -1: must be at least 1",
	} {
		if _, err := stint.ParseLimit(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
