package redislimit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/redislimit"
)

// A request that is refused takes no place in a queue where another slot has refused before, and what
// it took elsewhere is refunded. Only where two queues are asked, and the second refuses, a place in
// the first is lost.
func clusterQueues(t *testing.T, s *redislimit.Store) {
	at := time.UnixMicro(1e15)
	pace, rate := stint.MustLimit("1 per 1s leaky_bucket burst 3"), stint.MustLimit("5 per 1h")
	limits := map[string]*stint.Limit{"door": pace, "desk": pace, "user": rate, "other": rate}
	for _, c := range []struct {
		keys  string
		each  string // of each key, whether it allows and what remains
		delay time.Duration
		after string // what remains of each key then
	}{
		{"user door desk", "yes 4, yes 2, yes 2", 0, "4 2 2"},
		{"desk", "yes 1", time.Second, "1"},
		{"desk", "yes 0", 2 * time.Second, "0"},
		{"desk door", "no 0, yes 2", 0, "0 2"},
		{"user desk", "yes 4, no 0", 0, "4 0"},
		{"desk user", "no 0, yes 4", 0, "0 4"},
		{"other user desk", "yes 5, yes 4, no 0", 0, "5 4 0"},
		{"door desk", "yes 1, no 0", 0, "1 0"},
		{"user door desk", "yes 4, yes 0, no 0", 0, "4 0 0"},
		{"door user", "no 0, yes 4", 0, "0 4"},
	} {
		q := stint.Request{At: at}
		for key := range strings.FieldsSeq(c.keys) {
			q.Asks = append(q.Asks, stint.Ask{Key: "queues " + key, Limit: limits[key]})
		}
		each := make([]stint.Decision, len(q.Asks))
		d, err := s.Take(t.Context(), &q, each)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range each {
			word := map[bool]string{true: "yes", false: "no"}[each[i].Allowed]
			got = append(got, fmt.Sprint(word, " ", each[i].Remaining))
			if !d.Allowed && each[i].Delay != 0 {
				t.Errorf("%s: refused, and %s is to wait for %s", c.keys, each[i].Key, each[i].Delay)
			}
		}
		if each := strings.Join(got, ", "); each != c.each || d.Allowed == strings.Contains(c.each, "no") || d.Delay != c.delay {
			t.Errorf("%s: %s, delay %s, %+v; want %s, delay %s", c.keys, each, d.Delay, d, c.each, c.delay)
		}
		for i, want := range strings.Fields(c.after) {
			peek := stint.Request{At: at, Asks: []stint.Ask{{Key: q.Asks[i].Key, Limit: q.Asks[i].Limit, Peek: true}}}
			if d, err := s.Take(t.Context(), &peek, nil); err != nil || fmt.Sprint(d.Remaining) != want {
				t.Errorf("%s: %s has %d left, %v; want %s", c.keys, q.Asks[i].Key, d.Remaining, err, want)
			}
		}
	}
}

// A request that finds one slot busy holds nothing in the others, whichever it names first, and its
// answer says so.
func clusterBusy(t *testing.T, s *redislimit.Store) {
	room := stint.MustLimit("2 in_flight hold 10m retry 70ms")
	budget := stint.MustLimit("100 per 1h fixed_window hold 10m")
	free := stint.Ask{Key: "busy free", Limit: room}
	spent := stint.Ask{Key: "busy budget", Limit: budget, Cost: 30}
	full := stint.Ask{Key: "busy full", Limit: room}
	first, _, _ := holdUnder(t, s, full)
	holdUnder(t, s, full)
	limits := []*stint.Limit{room, budget}
	for _, asks := range [][]stint.Ask{{free, spent, full}, {full, spent, free}, {spent, full, free}} {
		_, d, each := holdUnder(t, s, asks...)
		if d.Allowed || !d.Busy || d.Key != full.Key || d.RetryAfter != 70*time.Millisecond {
			t.Errorf("%+v", d)
		}
		for i, e := range each {
			want := map[string]stint.Decision{free.Key: {Allowed: true, Remaining: 2}, spent.Key: {Allowed: true, Remaining: 100}, full.Key: {Held: 2}}[asks[i].Key]
			if e.Allowed != want.Allowed || e.Remaining != want.Remaining || e.Held != want.Held {
				t.Errorf("%s: %+v", asks[i].Key, e)
			}
			held, err := s.Held(t.Context(), asks[i].Key, limits)
			if err != nil || len(held) != int(want.Held) {
				t.Errorf("%s holds %+v, %v", asks[i].Key, held, err)
			}
		}
	}
	holdCall(t, s, stint.HoldCall{Key: full.Key, Limit: room, Hold: first, Units: 1})
	if _, d, each := holdUnder(t, s, free, spent, full); !d.Allowed || each[0].Held != 1 || each[1].Held != 30 || each[2].Held != 2 {
		t.Errorf("%+v, %+v", d, each)
	}
}

// While a ban runs, RetryAfter is the later of the longest ban and of the limits in all slots, and
// neither is a limit charged.
func clusterBanWaits(t *testing.T, s *redislimit.Store) {
	at := time.Unix(1_700_000_000/3600*3600, 0).Add(15 * time.Minute)
	short := penalty(t, stint.PenaltySpec{Name: "short", BanAfter: 1, BanFor: 10 * time.Minute})
	long := penalty(t, stint.PenaltySpec{Name: "long", BanAfter: 1, BanFor: 20 * time.Minute})
	hour, minute := stint.MustLimit("1 per 1h fixed_window"), stint.MustLimit("1 per 1m fixed_window")
	bad, worse := stint.Ask{Key: "waits bad", Penalty: short}, stint.Ask{Key: "waits worse", Penalty: long}
	violate(t, s, at, stint.Banned, bad)
	violate(t, s, at, stint.Banned, worse)
	full, brief, free := stint.Ask{Key: "waits full", Limit: hour}, stint.Ask{Key: "waits brief", Limit: minute}, stint.Ask{Key: "waits free", Limit: hour}
	for _, a := range []stint.Ask{full, brief} {
		if d, err := s.Take(t.Context(), &stint.Request{At: at, Asks: []stint.Ask{a}}, nil); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	limitedBad := stint.Ask{Key: bad.Key, Limit: hour, Penalty: short}
	for i, c := range []struct {
		asks  []stint.Ask
		key   string
		ban   time.Duration
		retry time.Duration
	}{
		{[]stint.Ask{bad, free}, bad.Key, 10 * time.Minute, 10 * time.Minute},
		{[]stint.Ask{free, bad}, bad.Key, 10 * time.Minute, 10 * time.Minute},
		{[]stint.Ask{bad, brief}, bad.Key, 10 * time.Minute, 10 * time.Minute},
		{[]stint.Ask{bad, full}, bad.Key, 10 * time.Minute, 45 * time.Minute},
		{[]stint.Ask{full, brief, bad}, bad.Key, 10 * time.Minute, 45 * time.Minute},
		{[]stint.Ask{bad, worse}, worse.Key, 20 * time.Minute, 20 * time.Minute},
		{[]stint.Ask{worse, bad, full}, worse.Key, 20 * time.Minute, 45 * time.Minute},
		{[]stint.Ask{limitedBad, free}, bad.Key, 10 * time.Minute, 10 * time.Minute},
		{[]stint.Ask{brief, limitedBad, full}, bad.Key, 10 * time.Minute, 45 * time.Minute},
	} {
		d, err := s.Take(t.Context(), &stint.Request{At: at, Asks: c.asks}, make([]stint.Decision, len(c.asks)))
		if err != nil || d.Allowed || d.Outcome != stint.Banned || d.Key != c.key || d.BanLeft != c.ban || d.RetryAfter != c.retry {
			t.Errorf("%d: %+v, %v; want %s banned for %s, back in %s", i, d, err, c.key, c.ban, c.retry)
		}
	}
	for _, a := range []stint.Ask{free, {Key: bad.Key, Limit: hour}} {
		if d, err := s.Take(t.Context(), &stint.Request{At: at, Asks: []stint.Ask{a}}, nil); err != nil || !d.Allowed {
			t.Errorf("%s was charged during a ban: %+v, %v", a.Key, d, err)
		}
	}
}
