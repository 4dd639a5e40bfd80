package store_test

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/store"
)

var (
	bucket = stint.MustLimit("api: 10 per 1m")
	window = stint.MustLimit("10 per 1h sliding_window")
	log    = stint.MustLimit("10 per 1h sliding_log")
	budget = stint.MustLimit("tokens: 10 per 1h fixed_window hold")
	flying = stint.MustLimit("3 in_flight")
	strict = newPenalty(stint.PenaltySpec{Name: "strict", WarnAfter: 1, BanAfter: 2, BanFor: time.Hour, ForgetAfter: 3 * time.Hour})
	start  = time.UnixMicro(1_700_000_000_000_000)
)

func newPenalty(s stint.PenaltySpec) *stint.Penalty {
	p, err := stint.NewPenalty(s)
	if err != nil {
		panic(err)
	}
	return p
}

func at(t *testing.T, when time.Time) context.Context {
	return context.WithValue(t.Context(), clock{}, when)
}

// methods are all that a Store does, about key.
var methods = map[string]func(ctx context.Context, s *store.Store, key string) error{
	"Take": func(ctx context.Context, s *store.Store, key string) error {
		_, err := s.Take(ctx, &stint.Request{Asks: asks(key)}, nil)
		return err
	},
	"Take, held": func(ctx context.Context, s *store.Store, key string) error {
		r := &stint.Request{Asks: []stint.Ask{{Key: key, Limit: budget}, {Key: key, Limit: flying}}, Hold: stint.HoldID{1}}
		_, err := s.Take(ctx, r, nil)
		return err
	},
	"TakeBatch": func(ctx context.Context, s *store.Store, key string) error {
		answers := make([]stint.Answer, 1)
		s.TakeBatch(ctx, []stint.Request{{Asks: asks(key)}}, answers)
		return answers[0].Err
	},
	"Refund": func(ctx context.Context, s *store.Store, key string) error {
		return s.Refund(ctx, &stint.Request{Asks: asks(key)[:3]})
	},
	"Violate": func(ctx context.Context, s *store.Store, key string) error {
		_, err := s.Violate(ctx, &stint.Request{Asks: []stint.Ask{{Key: key, Penalty: strict}}})
		return err
	},
	"Record": func(ctx context.Context, s *store.Store, key string) error {
		_, err := s.Record(ctx, key, strict)
		return err
	},
	"Inspect": func(ctx context.Context, s *store.Store, key string) error {
		_, err := s.Inspect(ctx, key, []*stint.Limit{bucket})
		return err
	},
	"Held": func(ctx context.Context, s *store.Store, key string) error {
		_, err := s.Held(ctx, key, []*stint.Limit{bucket, budget})
		return err
	},
	"Holds": func(ctx context.Context, s *store.Store, key string) error {
		calls := []stint.HoldCall{{Action: stint.HoldCharge, Key: key, Limit: budget, Cost: 1}}
		s.Holds(ctx, time.Time{}, calls)
		return calls[0].Err
	},
	"Reset": func(ctx context.Context, s *store.Store, key string) error {
		return s.Reset(ctx, &stint.Request{Asks: asks(key)})
	},
}

func asks(key string) []stint.Ask {
	return []stint.Ask{{Key: key, Limit: bucket, Cost: 2}, {Key: key, Limit: window}, {Key: key, Limit: log}, {Key: key, Limit: budget, Penalty: strict}}
}

// fill makes a row of each kind for key, at start.
func fill(t *testing.T, s *store.Store, key string) {
	t.Helper()
	ctx := at(t, start)
	for _, name := range []string{"Take", "Take, held", "Violate"} {
		if err := methods[name](ctx, s, key); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// What is stored stays readable for later versions: if the form changes, so does the version.
func TestForm(t *testing.T) {
	rows := newRows(t)
	fill(t, store.New(rows), "k")
	want := map[string]string{
		"c/k/t1m:api":    "0180b6dc05" + "8080f9c0c1c48203" + "0a" + "01" + "00",
		"c/k/w1h%2F10:":  "0101" + "8080f9c0c1c48203" + "01" + "00000000000000000000" + "00",
		"c/k/s1h:":       "0101" + "8080f9c0c1c48203" + "8080f9c0c1c48203" + "01" + "00",
		"c/k/f1h:tokens": "0101" + "8080f9c0c1c48203" + "01" + "010000000000000000000000" + "01" + "8087a0cfc1c48203" + "8087a70e" + "00",
		"c/k/i:":         "0100" + "01" + "010000000000000000000000" + "01" + "8087a0cfc1c48203" + "8087a70e" + "00",
		"p/k/strict":     "018080f9c0c1c4820301000080d8eb9d28",
	}
	for key, row := range rows.rows {
		if got := hex.EncodeToString(row.Value); got != want[key] {
			t.Errorf("%s: %s, want %s", key, got, want[key])
		}
		delete(want, key)
	}
	for key := range want {
		t.Errorf("%s is not there", key)
	}
}

// Each row may go when it counts for nothing, and no sooner than an answer says.
func TestRowsEnd(t *testing.T) {
	rows := newRows(t)
	fill(t, store.New(rows), "k")
	want := map[string]time.Duration{
		"c/k/t1m:api":    12 * time.Second,
		"c/k/w1h%2F10:":  time.Hour + 6*time.Minute - time.Duration(start.UnixNano())%(6*time.Minute),
		"c/k/s1h:":       time.Hour,
		"c/k/f1h:tokens": time.Hour - time.Duration(start.UnixNano())%time.Hour,
		"c/k/i:":         31 * time.Second, // a second more, for clocks that step back
		"p/k/strict":     3 * time.Hour,
	}
	for key, row := range rows.rows {
		if got := row.Expires.Sub(start); got != want[key] {
			t.Errorf("%s ends after %s, want %s", key, got, want[key])
		}
	}
	if len(rows.rows) != len(want) {
		t.Errorf("%d rows, want %d", len(rows.rows), len(want))
	}
}

// A database that deletes nothing has its rows deleted when they are next met.
func TestEndedRowsAreDeleted(t *testing.T) {
	rows := newRows(t)
	s := store.New(rows)
	fill(t, s, "k")
	for key, row := range rows.rows {
		row.Expires = start.AddDate(1, 0, 0)
		rows.rows[key] = row
	}
	peeks := asks("k")
	for i := range peeks {
		peeks[i].Cost, peeks[i].Peek = 0, true
	}
	peeks = append(peeks, stint.Ask{Key: "k", Limit: flying, Peek: true})
	if _, err := s.Take(at(t, start.Add(4*time.Hour)), &stint.Request{Asks: peeks}, nil); err != nil || len(rows.rows) > 0 {
		t.Errorf("%d rows are left after their time, %v", len(rows.rows), err)
	}
}

// What is refused, or asks for nothing, writes nothing.
func TestRefusalsWriteNothing(t *testing.T) {
	for _, l := range []*stint.Limit{bucket, window, log, budget, stint.MustLimit("10 per 1m leaky_bucket"), stint.MustLimit("10 per month")} {
		rows := newRows(t)
		s, ctx := store.New(rows), at(t, start)
		take := func(a stint.Ask, hold stint.HoldID, allowed bool) {
			t.Helper()
			a.Key, a.Limit = "k", l
			if d, err := s.Take(ctx, &stint.Request{Asks: []stint.Ask{a}, Hold: hold}, nil); d.Allowed != allowed || err != nil {
				t.Fatalf("%s: %+v, %v", l, d, err)
			}
		}
		take(stint.Ask{Cost: 9}, stint.HoldID{}, true)
		written := rows.written
		take(stint.Ask{Cost: 2}, stint.HoldID{}, false)
		take(stint.Ask{Cost: 2}, stint.HoldID{1}, false)
		take(stint.Ask{Peek: true}, stint.HoldID{}, true)
		if rows.written != written {
			t.Errorf("%s: refusals wrote %d rows", l, rows.written-written)
		}
	}
}

// After an Update that fails nothing has changed, and the error says whether that is certain.
func TestUpdateFails(t *testing.T) {
	for name, call := range methods {
		rows := newRows(t)
		s := store.New(rows)
		fill(t, s, "k")
		before := rows.snapshot()
		for _, fail := range []error{errAway, errors.Join(fleet.ErrNotCharged, errAway)} {
			rows.fail = fail
			err := call(at(t, start), s, "k")
			if !errors.Is(err, errAway) || errors.Is(err, fleet.ErrNotCharged) != errors.Is(fail, fleet.ErrNotCharged) {
				t.Errorf("%s: the error is %v, of %v", name, err, fail)
			}
		}
		if !maps.EqualFunc(rows.snapshot(), before, sameRow) {
			t.Errorf("%s changed rows and failed", name)
		}
		rows.fail = nil
		if err := call(at(t, start), s, "k"); err != nil {
			t.Errorf("%s, again: %v", name, err)
		}
		ended, end := context.WithCancel(at(t, start))
		end()
		updates := rows.updates
		if err := call(ended, s, "k"); !errors.Is(err, context.Canceled) || !errors.Is(err, fleet.ErrNotCharged) || rows.updates != updates {
			t.Errorf("%s with a context that has ended: %v", name, err)
		}
	}
}

func sameRow(a, b store.Row) bool {
	return string(a.Value) == string(b.Value) && a.Expires.Equal(b.Expires)
}

// A caller's decisions are those of the last change alone, and stay as they were after an error.
func TestConflictsLeaveNoTrace(t *testing.T) {
	rows := newRows(t)
	s := store.New(rows)
	refused := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: bucket, Cost: 11, Penalty: strict}}}
	out := make([]stint.Decision, 1)
	for range 2 { // the second bans
		if _, err := s.Take(at(t, start), &refused, out); err != nil {
			t.Fatal(err)
		}
	}
	rows.conflict = true // with what was before the ban
	out[0] = stint.Decision{Key: "(untouched)"}
	d, err := s.Take(at(t, start), &refused, out)
	if err != nil || d.Outcome != stint.Banned || d.Limit != nil || out[0] != (stint.Decision{Key: "(untouched)"}) {
		t.Errorf("%+v, %+v, %v", d, out[0], err)
	}
}

// A row that cannot be read is an error of the requests about it, and of no other.
func TestUnreadable(t *testing.T) {
	for key := range filled(t).rows {
		for _, value := range []string{"", "\x00", "\x02\x01\x01", "\x01\xff\xff", "a count of another program"} {
			for name, call := range methods {
				rows := filled(t)
				s := store.New(rows)
				rows.rows[key] = store.Row{Key: key, Value: []byte(value), Expires: start.AddDate(1, 0, 0)}
				err := call(at(t, start), s, "k")
				if err == nil { // it is not about this row
					continue
				}
				if !errors.Is(err, fleet.ErrBroken) || !errors.Is(err, fleet.ErrNotCharged) || !strings.Contains(err.Error(), key) {
					t.Errorf("%s of %q in row %q: %v", name, value, key, err)
				}
				if got := string(rows.rows[key].Value); got != value {
					t.Errorf("%s of %q in row %q writes %q", name, value, key, got)
				}
				if err := call(at(t, start), s, "other"); err != nil {
					t.Errorf("%s, of another key: %v", name, err)
				}
			}
			rows := filled(t)
			s := store.New(rows)
			rows.rows[key] = store.Row{Key: key, Value: []byte(value), Expires: start.AddDate(1, 0, 0)}
			if err := s.Reset(at(t, start), &stint.Request{Asks: append(asks("k"), stint.Ask{Key: "k", Limit: flying})}); err != nil {
				t.Errorf("Reset of %q in row %q: %v", value, key, err)
			}
			if _, there := rows.rows[key]; there {
				t.Errorf("Reset of %q in row %q: it is still there", value, key)
			}
		}
	}
}

func filled(t *testing.T) *mapRows {
	rows := newRows(t)
	fill(t, store.New(rows), "k")
	return rows
}

// In a batch, requests beside one that cannot be read are decided.
func TestUnreadableInABatch(t *testing.T) {
	rows := filled(t)
	rows.rows["c/k/t1m:api"] = store.Row{Value: []byte("?"), Expires: start.AddDate(1, 0, 0)}
	var rs []stint.Request
	var calls []stint.HoldCall
	for _, key := range []string{"j", "k", "l"} {
		rs = append(rs, stint.Request{Asks: []stint.Ask{{Key: key, Limit: bucket}}})
		calls = append(calls, stint.HoldCall{Action: stint.HoldCharge, Key: key, Limit: bucket, Cost: 1})
	}
	answers := make([]stint.Answer, len(rs))
	s := store.New(rows)
	s.TakeBatch(at(t, start), rs, answers)
	s.Holds(at(t, start), time.Time{}, calls)
	for i := range rs {
		broken := i == 1
		if errors.Is(answers[i].Err, fleet.ErrBroken) != broken || answers[i].Allowed == broken {
			t.Errorf("request %d: %+v", i, answers[i])
		}
		if errors.Is(calls[i].Err, fleet.ErrBroken) != broken || (calls[i].Charged == 1) == broken {
			t.Errorf("call %d: %+v", i, calls[i])
		}
	}
}

// A batch is divided, and all of it is decided in its order.
func TestLongBatch(t *testing.T) {
	rows := newRows(t)
	limit := stint.MustLimit("150 per 1h")
	rs := make([]stint.Request, 200)
	for i := range rs {
		rs[i] = stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}}}
	}
	answers := make([]stint.Answer, len(rs))
	store.New(rows).TakeBatch(at(t, start), rs, answers)
	for i := range answers {
		if answers[i].Err != nil || answers[i].Allowed != (i < 150) {
			t.Fatalf("request %d: %+v", i, answers[i])
		}
	}
	if rows.updates != 4 {
		t.Errorf("%d updates", rows.updates)
	}
}

// onlyUpdate hides Scan.
type onlyUpdate struct{ store.Rows }

func TestBannedNeedsAScanner(t *testing.T) {
	rows := filled(t)
	all := func(s *store.Store) (n int, err error) {
		err = s.Banned(at(t, start), func(stint.Record) bool { n++; return true })
		return n, err
	}
	if _, err := all(store.New(onlyUpdate{rows})); !errors.Is(err, stint.ErrUnsupported) {
		t.Errorf("the error is %v", err)
	}
	s := store.New(rows)
	rows.rows["p/not a record"] = store.Row{Key: "p/not a record", Value: []byte("?"), Expires: start.AddDate(1, 0, 0)}
	if n, err := all(s); n != 0 || err != nil {
		t.Errorf("after a violation: %d bans, %v", n, err)
	}
	if err := methods["Violate"](at(t, start), s, "k"); err != nil {
		t.Fatal(err)
	}
	if n, err := all(s); n != 1 || err != nil {
		t.Errorf("after two violations: %d bans, %v", n, err)
	}
}

// rowsFunc is Rows of a function.
type rowsFunc func(ctx context.Context, keys []string, change func(time.Time, [][]byte) ([]store.Row, error)) error

func (f rowsFunc) Update(ctx context.Context, keys []string, change func(time.Time, [][]byte) ([]store.Row, error)) error {
	return f(ctx, keys, change)
}

// Rows that break the contract are found out.
func TestWrongRows(t *testing.T) {
	for name, rows := range map[string]rowsFunc{
		"no change": func(context.Context, []string, func(time.Time, [][]byte) ([]store.Row, error)) error { return nil },
		"no values": func(_ context.Context, _ []string, change func(time.Time, [][]byte) ([]store.Row, error)) error {
			_, err := change(start, nil)
			return err
		},
		"error denied": func(_ context.Context, _ []string, change func(time.Time, [][]byte) ([]store.Row, error)) error {
			_, _ = change(start, nil)
			return nil
		},
	} {
		d, err := store.New(rows).Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: bucket}}}, nil)
		if err == nil || d.Allowed {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// Rows that have no clock have that of the process.
func TestNoClock(t *testing.T) {
	rows := newRows(t)
	rows.unclear = true
	began := time.Now()
	fill(t, store.New(rows), "k")
	for key, row := range rows.rows {
		if row.Expires.Before(began) {
			t.Errorf("%s ended at %s", key, row.Expires)
		}
	}
}

// A request's deadline ends the context of the Update.
func TestDeadline(t *testing.T) {
	rows := rowsFunc(func(ctx context.Context, _ []string, _ func(time.Time, [][]byte) ([]store.Row, error)) error {
		<-ctx.Done()
		return ctx.Err()
	})
	r := &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: bucket}}, Deadline: time.Millisecond}
	if _, err := store.New(rows).Take(t.Context(), r, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
}

// A fleet.Store around it answers while the database is away.
func TestFleetAnswersWithoutTheDatabase(t *testing.T) {
	rows := newRows(t)
	f := fleet.New(store.New(rows), fleet.Options{})
	defer f.Close()
	take := func(by stint.Source) {
		t.Helper()
		d, err := f.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: bucket}}}, nil)
		if err != nil || !d.Allowed || d.By != by {
			t.Errorf("%+v, %v", d, err)
		}
	}
	take(stint.ByStore)
	rows.mu.Lock()
	rows.fail = errors.Join(fleet.ErrNotCharged, errAway)
	rows.mu.Unlock()
	take(stint.ByLocal)
}

// A request that counts nothing needs no row.
func TestNothingIsCounted(t *testing.T) {
	s := store.New(rowsFunc(func(_ context.Context, keys []string, _ func(time.Time, [][]byte) ([]store.Row, error)) error {
		t.Errorf("an update of %q", keys)
		return errAway
	}))
	d, err := s.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: stint.MustLimit("unlimited")}, {Key: "k", Limit: stint.MustLimit("0 per 1m")}}}, nil)
	if err != nil || d.Allowed || d.RetryAfter != stint.Never {
		t.Errorf("%+v, %v", d, err)
	}
}

// Rows of different subjects, limits and penalties are different, and their keys are short enough.
func TestKeys(t *testing.T) {
	subjects := []string{"a", "A", "a/t1m:", "/", "%2F", "#", "#a", "a ", " a", "ä", "\x00\xff", ".", "..", strings.Repeat("k", 64), strings.Repeat("k", 65), strings.Repeat("\x00", 64), strings.Repeat("\x00", 4096)}
	names := []string{"", "n", "N", "a/b", "%", strings.Repeat("名", 64)}
	rows := newRows(t)
	s := store.New(rows)
	want := 0
	for _, subject := range subjects {
		for _, name := range names {
			limits := []*stint.Limit{
				newLimit(t, stint.Spec{Name: name, Amount: 5, Period: 1234567891011 * time.Microsecond}),
				newLimit(t, stint.Spec{Name: name, Algorithm: stint.SlidingWindow, Amount: 5, Period: time.Hour, Buckets: 1000}),
				newLimit(t, stint.Spec{Name: name, Algorithm: stint.FixedWindow, Amount: 5, Calendar: stint.Calendar{Unit: stint.Year, Zone: "America/Argentina/ComodRivadavia", Starts: "04-06"}}),
			}
			p := newPenalty(stint.PenaltySpec{Name: name, BanAfter: 1, BanFor: time.Hour})
			r := &stint.Request{Asks: []stint.Ask{{Key: subject, Limit: limits[0]}, {Key: subject, Limit: limits[1]}, {Key: subject, Limit: limits[2]}}}
			if d, err := s.Take(at(t, start), r, nil); err != nil || d.Remaining != 4 {
				t.Errorf("%.20q, %q: %+v, %v", subject, name, d, err)
			}
			if d, err := s.Violate(at(t, start), &stint.Request{Asks: []stint.Ask{{Key: subject, Penalty: p}}}); err != nil || d.Violations != 1 {
				t.Errorf("%.20q, %q: %+v, %v", subject, name, d, err)
			}
			want += 4
		}
	}
	if len(rows.rows) != want {
		t.Errorf("%d rows, want %d", len(rows.rows), want)
	}
	banned := map[string]bool{}
	err := s.Banned(at(t, start), func(r stint.Record) bool {
		if !r.Hashed && !(slices.Contains(subjects, r.Key) && slices.Contains(names, r.Penalty)) {
			t.Errorf("a ban of %q under %q", r.Key, r.Penalty)
		}
		banned[r.Key+"\n"+r.Penalty] = true
		return true
	})
	if err != nil || len(banned) != want/4 {
		t.Errorf("%d bans, %v, want %d", len(banned), err, want/4)
	}
}

func newLimit(t *testing.T, s stint.Spec) *stint.Limit {
	t.Helper()
	l, err := stint.NewLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func BenchmarkTake(b *testing.B) {
	s := store.New(newRows(nil))
	r := &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: stint.MustLimit("1000000000 per 1h")}}}
	for b.Loop() {
		if _, err := s.Take(b.Context(), r, nil); err != nil {
			b.Fatal(err)
		}
	}
}
