package redislimit

import (
	"context"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/algo"
	"github.com/stintdev/stint/internal/redistest"
)

func openFor(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Connect(t.Context(), url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// The server's clock decides which window it is, however far it is from this instance's: requests are
// sent again with the windows around it, and all ways to ask do so.
func TestCalendarByTheServersClock(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	day := stint.MustLimit("3 per day in America/Havana")
	year := stint.MustLimit("5 per year")
	minute := stint.MustLimit("100 per 1m")
	for _, jump := range []time.Duration{0, 20 * time.Hour, -24 * time.Hour, 72 * time.Hour, -400 * 24 * time.Hour, 3000 * 24 * time.Hour, -48 * time.Hour} {
		clock.Jump(t, jump)
		s := openFor(t, server.URL())
		if err := s.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		limiter := stint.NewLimiter(s)
		end := func(l *stint.Limit) time.Time {
			return time.UnixMicro(kit.Plan(l).Calendar.Window(server.Now(t).UnixMicro()).End)
		}
		want := func(what string, d stint.Decision, err error, l *stint.Limit, allowed bool, remaining int64) {
			t.Helper()
			if err != nil || d.Limit != l || d.Allowed != allowed || d.Remaining != remaining {
				t.Errorf("after a jump by %s, %s: %+v %v, want %v with %d left", jump, what, d, err, allowed, remaining)
			}
			if off := end(l).Sub(server.Now(t).Add(d.ResetAfter)); off < -time.Minute || off > time.Minute {
				t.Errorf("after a jump by %s, %s: reset after %s, which is off by %s", jump, what, d.ResetAfter, off)
			}
			ttl, _ := server.Do(t, "PTTL", s.key("k", l.ID())).AsInt64()
			if left := time.Duration(ttl) * time.Millisecond; left < d.ResetAfter-time.Minute || left > d.ResetAfter+time.Minute {
				t.Errorf("after a jump by %s, %s: the key lives for %s, and is reset after %s", jump, what, left, d.ResetAfter)
			}
		}
		d, err := limiter.Allow(t.Context(), "k", day)
		want("one ask", d, err, day, true, 2)
		s.ahead.Store(0) // as if new
		r := &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: minute}, {Key: "k", Limit: day}, {Key: "k", Limit: year}}, Deadline: time.Minute}
		d, err = limiter.Take(t.Context(), r, nil)
		want("several asks", d, err, day, true, 1)
		s.ahead.Store(0)
		answers := make([]stint.Answer, 2)
		s.TakeBatch(t.Context(), []stint.Request{
			{Asks: []stint.Ask{{Key: "k", Limit: day}}}, {Asks: []stint.Ask{{Key: "k", Limit: minute}, {Key: "k", Limit: day}}},
		}, answers)
		want("a batch", answers[0].Decision, answers[0].Err, day, true, 0)
		want("a batch", answers[1].Decision, answers[1].Err, day, false, 0)
		s.ahead.Store(0)
		if err := s.Refund(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: minute}, {Key: "k", Limit: day, Cost: 2}, {Key: "k", Limit: year}}}); err != nil {
			t.Error(err)
		}
		d, err = limiter.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: day, Peek: true}}}, nil)
		want("after a refund", d, err, day, true, 2)
		d, err = limiter.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: year, Cost: 5}}}, nil)
		want("a year", d, err, year, true, 0)
		held := stint.MustLimit("budget: 10 per month in Asia/Beirut starts 31 hold")
		id := stint.NewHoldID()
		s.ahead.Store(0)
		d, err = limiter.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: held, Cost: 6}}, Hold: id}, nil)
		if err != nil || d.Held != 6 || d.Remaining != 4 {
			t.Errorf("after a jump by %s, held: %+v %v", jump, d, err)
		}
		s.ahead.Store(0)
		calls := []stint.HoldCall{
			{Key: "k", Limit: held, Hold: id, Units: 6, Cost: 3},
			{Action: stint.HoldCharge, Key: "k", Limit: held, Cost: 2},
			{Key: "k", Limit: held, Hold: id, Units: 6, Cost: 3}, // once more
		}
		s.Holds(t.Context(), time.Time{}, calls)
		for i, charged := range []int64{3, 2, 0} {
			c := &calls[i]
			if c.Err != nil || c.Charged != charged || c.Found != (i < 2) {
				t.Errorf("after a jump by %s, call %d: %+v", jump, i, c)
			}
		}
		d, err = limiter.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: held, Peek: true}}}, nil)
		want("what was settled and charged", d, err, held, true, 5)
		stored, err := s.Inspect(t.Context(), "k", []*stint.Limit{day})
		if err != nil || !stored[0].Held || stored[0].Idle > time.Minute {
			t.Errorf("after a jump by %s: %+v %v", jump, stored, err)
		}
	}
}

// A request of a running ban also says when a limit of the calendar would allow.
func TestCalendarBesideABan(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	s := openFor(t, server.URL())
	clock.Jump(t, 90*24*time.Hour)
	penalty, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 1, BanFor: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	month := stint.MustLimit("1 per month")
	for i, want := range []stint.Outcome{stint.Allowed, stint.Banned, stint.Banned} {
		s.ahead.Store(0)
		d, err := s.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: month, Penalty: penalty}}}, nil)
		if err != nil || d.Outcome != want || i > 0 && d.RetryAfter < time.Minute && time.Until(time.UnixMicro(kit.Plan(month).Calendar.Window(server.Now(t).UnixMicro()).End)) > time.Hour {
			t.Errorf("request %d: %+v %v", i, d, err)
		}
	}
}

// Two instances with other data about a zone, of which one begins its day an hour later: a count
// starts afresh once at the beginning of each's window, and never goes to and fro between them.
func TestCalendarsOfOtherData(t *testing.T) {
	t.Parallel()
	s := openFor(t, redistest.Start(t).URL())
	limit := stint.MustLimit("1000 per day")
	early := algo.CalendarOf(algo.Day, time.FixedZone("with other data, early", 3600), 0, 0)
	late := algo.CalendarOf(algo.Day, time.FixedZone("with other data, late", 0), 0, 0)
	take := func(c *algo.Calendar, at time.Time) (used int64) {
		t.Helper()
		p, err := algo.NewCalendarPlan(1000, c, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		b := batch{at: at}
		b.addKey(s, "k", limit.ID())
		b.blob = algo.AppendPlain(b.blob, s.around(&b, &p), 1)
		reply, err := s.run(context.Background(), &b)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, err := algo.ReadHead(reply)
		if err != nil {
			t.Fatal(err)
		}
		v, _, err := algo.ReadView(rest)
		if err != nil {
			t.Fatal(err)
		}
		return v.Used
	}
	midnight := time.Date(2026, 5, 5, 0, 0, 0, 0, time.UTC) // of the late one; the early one's is at 23:00
	for i, c := range []struct {
		who  *algo.Calendar
		at   time.Duration
		used int64 // before
	}{
		{early, -2 * time.Hour, 0}, {late, -2 * time.Hour, 0}, // whose day began an hour later
		{early, -time.Hour - 1000, 1}, {late, -time.Hour, 2}, // whose day has not ended
		{early, -time.Hour, 0}, {late, -30 * time.Minute, 1}, {early, -30 * time.Minute, 2}, {late, -1000, 3},
		{early, 0, 4}, {late, 0, 0}, {early, 0, 1}, {late, time.Hour, 2}, {early, time.Hour, 3},
	} {
		if used := take(c.who, midnight.Add(c.at)); used != c.used {
			t.Errorf("step %d: %d used before, want %d", i, used, c.used)
		}
	}
}
