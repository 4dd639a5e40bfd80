package store_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/store"
)

// fuzzed are what a row is about, by its key, under subject "k".
var fuzzed = []struct {
	row   string
	limit *stint.Limit
}{
	{"c/k/t1m:api", bucket},
	{"c/k/t1h:", stint.MustLimit("1000000007 per 1h burst 1500000")}, // in ticks of 1 ms
	{"c/k/l1m:", stint.MustLimit("10 per 1m leaky_bucket")},
	{"c/k/f1h:tokens", budget},
	{"c/k/cm1%2FUTC:", stint.MustLimit("10 per month")},
	{"c/k/s1h:", log},
	{"c/k/w1h%2F10:", window},
	{"c/k/i:", flying},
	{"p/k/strict", nil},
}

// Whatever a row holds, it is read or is an error that says so; what is read is decided by, and what is
// then written can be read.
func FuzzValue(f *testing.F) {
	rows := newRows(nil)
	ctx := f.Context()
	s := store.New(rows)
	for range 3 {
		for i, x := range fuzzed {
			if x.limit == nil {
				_, _ = s.Violate(ctx, &stint.Request{Asks: []stint.Ask{{Key: "k", Penalty: strict}}, At: start})
			} else {
				_, _ = s.Take(ctx, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: x.limit}}, At: start, Hold: stint.HoldID{byte(1 + len(rows.rows[x.row].Value))}}, nil)
			}
			row, there := rows.rows[x.row]
			if !there {
				f.Fatalf("there is no row %q, of %q", x.row, slices.Sorted(maps.Keys(rows.rows)))
			}
			f.Add(byte(i), row.Value, int64(0))
			f.Add(byte(i), row.Value, int64(-1_000_000_000))
		}
	}
	f.Fuzz(func(t *testing.T, which byte, value []byte, after int64) {
		x := fuzzed[int(which)%len(fuzzed)]
		rows := newRows(t)
		rows.rows[x.row] = store.Row{Key: x.row, Value: value, Expires: start.AddDate(100, 0, 0)}
		now := start.Add(time.Duration(after) % (20 * 365 * 24 * time.Hour))
		f := fuzzedRow{t, store.New(rows), x.limit, now}
		if broken := f.play(); broken {
			if row := rows.rows[x.row]; string(row.Value) != string(value) {
				t.Fatalf("what cannot be read, %x, has become %x", value, row.Value)
			}
			return
		}
		if f.play() {
			t.Fatalf("what was written, %x, cannot be read; it was %x", rows.rows[x.row].Value, value)
		}
	})
}

type fuzzedRow struct {
	*testing.T
	store *store.Store
	limit *stint.Limit
	now   time.Time
}

// play does all that can be done, and reports whether the row cannot be read.
func (f *fuzzedRow) play() (broken bool) {
	ctx := at(f.T, f.now)
	check := func(err error) {
		f.Helper()
		isBroken := errors.Is(err, fleet.ErrBroken)
		if err != nil && !isBroken {
			f.Fatal(err)
		}
		broken = broken || isBroken
	}
	if f.limit == nil {
		_, err := f.store.Record(ctx, "k", strict)
		check(err)
		check(f.store.Banned(ctx, func(stint.Record) bool { return true }))
		_, err = f.store.Violate(ctx, &stint.Request{Asks: []stint.Ask{{Key: "k", Penalty: strict}}})
		check(err)
		_, err = f.store.Take(ctx, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: stint.MustLimit("0 per 1m"), Penalty: strict}}}, nil)
		check(err)
		return broken
	}
	stored, err := f.store.Inspect(ctx, "k", []*stint.Limit{f.limit})
	check(err)
	if stored[0].Expires < 0 || stored[0].Idle < 0 {
		f.Fatalf("%+v", stored)
	}
	_, err = f.store.Held(ctx, "k", []*stint.Limit{f.limit})
	check(err)
	for i, cost := range []int64{1, 100, 2} {
		d, err := f.store.Take(ctx, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: f.limit, Cost: cost}}, Hold: stint.HoldID{byte(i)}}, nil)
		check(err)
		if d.Remaining < 0 || d.Remaining > f.limit.Capacity() || d.Held < 0 || d.RetryAfter < -1 || d.ResetAfter < 0 {
			f.Fatalf("%+v", d)
		}
	}
	check(f.store.Refund(ctx, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: f.limit}}}))
	actions := []stint.HoldAction{stint.HoldRenew, stint.HoldSettle, stint.HoldRelease}
	if !f.limit.IsHeld() {
		actions = nil
	}
	if f.limit != flying {
		actions = append(actions, stint.HoldCharge)
	}
	for _, a := range actions {
		calls := []stint.HoldCall{{Action: a, Key: "k", Limit: f.limit, Hold: stint.HoldID{1}, Units: 1, Cost: 3, Again: a == stint.HoldRenew}}
		f.store.Holds(ctx, time.Time{}, calls)
		check(calls[0].Err)
	}
	return broken
}
