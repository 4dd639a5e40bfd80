package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
)

func penalty(t testing.TB, s stint.PenaltySpec) *stint.Penalty {
	t.Helper()
	p, err := stint.NewPenalty(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func violate(t testing.TB, s stint.Violator, at time.Time, want stint.Outcome, asks ...stint.Ask) stint.Decision {
	t.Helper()
	d, err := s.Violate(context.Background(), &stint.Request{Asks: asks, At: at})
	if err != nil || d.Outcome != want {
		t.Fatalf("%q: %+v, %v, want %s", asks[0].Key, d, err, want)
	}
	return d
}

func bans(t testing.TB, s stint.Inspector) map[string]stint.Record {
	t.Helper()
	all := map[string]stint.Record{}
	err := s.Banned(context.Background(), func(r stint.Record) bool {
		if _, twice := all[r.Key+" "+r.Penalty]; twice {
			t.Errorf("%+v comes twice", r)
		}
		all[r.Key+" "+r.Penalty] = r
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What the script wrote is read by Go, and looked at as the next violation would:
// the instants tell how long ago it was.
func TestRecordIsWhatTheScriptWrote(t *testing.T) {
	s := open(t, redistest.Start(t).URL())
	p := penalty(t, stint.PenaltySpec{Name: "p", WarnAfter: 2, BanAfter: 3, BanFor: time.Hour, ForgetAfter: 5 * time.Hour, Growth: 3})
	for i, c := range []struct {
		hoursAgo         []int // one violation each
		violations, bans int64
		hoursLeft        time.Duration
	}{
		{nil, 0, 0, 0},
		{[]int{1}, 1, 0, 0},
		{[]int{4, 4}, 2, 0, 0},
		{[]int{6, 6}, 0, 0, 0},
		{[]int{0, 0, 0}, 0, 1, 1},
		{[]int{3, 3, 3}, 0, 1, 0},
		{[]int{3, 3, 3, 1}, 1, 1, 0},
		{[]int{5, 5, 5, 3, 3, 3}, 0, 2, 0},
		{[]int{4, 4, 4, 2, 2, 2}, 0, 2, 1},
		{[]int{9, 9, 9, 2}, 1, 0, 0},
		{[]int{7, 7, 7, 4}, 1, 0, 0}, // of the ban nothing counts any more, six hours after its end
		{[]int{-1, -1}, 2, 0, 0},     // a clock ahead
	} {
		key := fmt.Sprint("key", i)
		now := time.Now()
		for _, h := range c.hoursAgo {
			if _, err := s.Violate(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Penalty: p}}, At: now.Add(-time.Duration(h) * time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := s.Record(t.Context(), key, p)
		left := r.BanLeft
		r.BanLeft = 0
		want := stint.Record{Key: key, Penalty: "p", Violations: c.violations, Bans: c.bans}
		if err != nil || r != want || left > c.hoursLeft*time.Hour || left < c.hoursLeft*time.Hour-time.Minute {
			t.Errorf("%v hours ago: %+v, %s left, %v; want %+v, %dh", c.hoursAgo, r, left, err, want, c.hoursLeft)
		}
	}
}

// Only bans that run are told, whatever else lies in the namespace or beside it.
func TestBanned(t *testing.T) {
	server := redistest.Start(t)
	s, other := open(t, server.URL()+"?namespace=a"), open(t, server.URL()+"?namespace=a:b")
	strict := penalty(t, stint.PenaltySpec{Name: "strict", BanAfter: 1, BanFor: time.Hour})
	brief := penalty(t, stint.PenaltySpec{Name: "brief", BanAfter: 1, BanFor: time.Hour})
	mild := penalty(t, stint.PenaltySpec{Name: "}p:mild", BanAfter: 2, BanFor: time.Hour})
	long := strings.Repeat("x", 65)
	for _, key := range []string{"eve", "}p:{", "5:bob}p:strict", long} {
		violate(t, s, time.Time{}, stint.Banned, stint.Ask{Key: key, Penalty: strict})
		violate(t, s, time.Time{}, stint.Limited, stint.Ask{Key: key, Penalty: mild})
	}
	violate(t, s, time.Now().Add(-2*time.Hour), stint.Banned, stint.Ask{Key: "past", Penalty: brief})
	violate(t, other, time.Time{}, stint.Banned, stint.Ask{Key: "elsewhere", Penalty: strict})
	for _, l := range []string{"1 per 1h", "1 per 1h sliding_log"} {
		if _, err := stint.NewLimiter(s).Allow(t.Context(), "}p:strict", stint.MustLimit(l)); err != nil {
			t.Fatal(err)
		}
	}
	server.Do(t, "SET", "a:{3:foe}p:strict", "not a record")
	server.Do(t, "SADD", "a:{3:fob}p:strict", "not even a string")
	server.Do(t, "SET", "a:{9:foe}p:strict", "x")
	server.Do(t, "SET", "a:{doc:p}p:x", "x")
	all := bans(t, s)
	if len(all) != 4 {
		t.Errorf("banned are %+v", all)
	}
	hashed := 0
	for name, r := range all {
		if r.Penalty != "strict" || r.Bans != 1 || r.Violations != 0 || r.BanLeft > time.Hour || r.BanLeft < 59*time.Minute {
			t.Errorf("%s: %+v", name, r)
		}
		if r.Hashed {
			hashed++
			if !strings.HasPrefix(r.Key, "#") || len(r.Key) != 33 {
				t.Errorf("hash %q", r.Key)
			}
		} else if r.Key != "eve" && r.Key != "}p:{" && r.Key != "5:bob}p:strict" {
			t.Errorf("%q is banned", r.Key)
		}
	}
	if hashed != 1 {
		t.Errorf("%d hashes, want one", hashed)
	}
	for key, want := range map[string]string{"foe": "not Stint's", "fob": "another type"} {
		if _, err := s.Record(t.Context(), key, strict); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("record of %s: %v", key, err)
		}
		if _, err := s.Violate(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: key, Penalty: strict}}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("violation of %s: %v", key, err)
		}
	}
	if found, err := stint.NewLimiter(s).Pardon(t.Context(), long, strict); !found || err != nil {
		t.Error(found, err)
	}
	if n := len(bans(t, s)); n != 3 {
		t.Errorf("%d bans after the pardon of who was hashed, want 3", n)
	}
}

// The powers hold over a Client with no more than Do, and end with their context.
func TestRecordsOverAClient(t *testing.T) {
	server := redistest.Start(t)
	s := overPlain(t, server, "")
	p := penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 1, BanFor: time.Hour})
	violate(t, s, time.Time{}, stint.Banned, stint.Ask{Key: "eve", Penalty: p})
	if all := bans(t, s); len(all) != 1 || all["eve p"].Bans != 1 {
		t.Errorf("banned are %+v", all)
	}
	if r, err := s.Record(t.Context(), "eve", p); err != nil || r.Bans != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := s.Record(t.Context(), "nobody", p); err != nil || r != (stint.Record{Key: "nobody", Penalty: "p"}) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFrozenRecords(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, server.URL())
	p := penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 1, BanFor: time.Hour})
	server.Freeze(t)
	for name, call := range map[string]func(ctx context.Context) error{
		"violate": func(ctx context.Context) error {
			_, err := s.Violate(ctx, &stint.Request{Asks: []stint.Ask{{Key: "a", Penalty: p}}})
			return err
		},
		"record": func(ctx context.Context) error { _, err := s.Record(ctx, "a", p); return err },
		"banned": func(ctx context.Context) error { return s.Banned(ctx, func(stint.Record) bool { return true }) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := call(ctx)
		deadline, _ := ctx.Deadline()
		if late := time.Since(deadline); !errors.Is(err, context.DeadlineExceeded) || late > time.Second {
			t.Errorf("%s: %v, %s late", name, err, late)
		}
		cancel()
	}
}

// Among a million other keys, the bans are found, and how long that takes is told.
func TestBannedAmongAMillion(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a million keys")
	}
	server := redistest.Start(t)
	for i := range 100 { // in parts, since a server does nothing else meanwhile, and seems dead
		server.Do(t, "EVAL", "for i = ARGV[1] * 10000 + 1, ARGV[1] * 10000 + 10000 do redis.call('SET', 'stint:{' .. (#tostring(i) + 5) .. ':user:' .. i .. '}t1h:api', '12 bytes long') end", "0", fmt.Sprint(i))
	}
	s := open(t, server.URL())
	p := penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 1, BanFor: time.Hour})
	for i := range 100 {
		violate(t, s, time.Time{}, stint.Banned, stint.Ask{Key: fmt.Sprint("eve", i), Penalty: p})
	}
	began := time.Now()
	all := bans(t, s)
	t.Logf("100 bans among 1,000,000 keys told in %s", time.Since(began))
	if len(all) != 100 {
		t.Errorf("%d bans told", len(all))
	}
	slow, err := server.Do(t, "SLOWLOG", "GET", "100").ToArray()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range slow {
		if fields, _ := entry.ToArray(); len(fields) > 3 {
			if args, _ := fields[3].AsStrSlice(); len(args) > 0 && (args[0] == "SCAN" || args[0] == "MGET") {
				t.Logf("the server took more than 10 ms over one %s", args[0])
			}
		}
	}
}
