package stint_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

func TestParseHeldLimits(t *testing.T) {
	for _, c := range []struct {
		text string
		want stint.Spec
		back string // what String gives; "": the same text
	}{
		{"200000 per 1m fixed_window hold", stint.Spec{Algorithm: stint.FixedWindow, Amount: 200000, Period: time.Minute, Hold: 30 * time.Second}, ""},
		{"200000 per 1m fixed_window hold 30s", stint.Spec{Algorithm: stint.FixedWindow, Amount: 200000, Period: time.Minute, Hold: 30 * time.Second}, "200000 per 1m fixed_window hold"},
		{"5 per 1m hold 45s retry 250ms debt 7", stint.Spec{Amount: 5, Period: time.Minute, Hold: 45 * time.Second, Retry: 250 * time.Millisecond, Debt: 7}, ""},
		{"5 per 1m debt 0 hold", stint.Spec{Amount: 5, Period: time.Minute, Hold: 30 * time.Second, Debt: stint.NoDebt}, "5 per 1m hold debt 0"},
		{"5 per 1m debt 3", stint.Spec{Amount: 5, Period: time.Minute, Debt: 3}, ""},
		{"4 in_flight", stint.Spec{Algorithm: stint.InFlight, Amount: 4}, ""},
		{"4 in_flight hold", stint.Spec{Algorithm: stint.InFlight, Amount: 4, Hold: 30 * time.Second}, "4 in_flight hold 30s"},
		{"gpu: 4 in_flight hold 1d retry 100000us", stint.Spec{Name: "gpu", Algorithm: stint.InFlight, Amount: 4, Hold: 24 * time.Hour, Retry: 100 * time.Millisecond}, "gpu: 4 in_flight hold 24h retry 100ms"},
	} {
		l, err := stint.ParseLimit(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if l.Spec() != c.want {
			t.Errorf("%q: %+v, want %+v", c.text, l.Spec(), c.want)
		}
		if c.back == "" {
			c.back = c.text
		}
		if l.String() != c.back {
			t.Errorf("%q prints %q, want %q", c.text, l, c.back)
		}
		if again, err := stint.ParseLimit(l.String()); err != nil || again.Spec() != l.Spec() {
			t.Errorf("%q is read back as %v, %v", l, again, err)
		}
		if want := c.want.Hold > 0 || c.want.Algorithm == stint.InFlight; l.IsHeld() != want {
			t.Errorf("%q: IsHeld %t", c.text, l.IsHeld())
		}
	}
}

func TestHeldLimitsRefuse(t *testing.T) {
	for text, want := range map[string]string{
		"5 per 1m leaky_bucket hold":     "a leaky_bucket cannot hold",
		"5 per 1m hold lease 5%":         "a limit that is held cannot be leased",
		"5 per 1m hold 999us":            "hold 999µs: must be from 1ms to 24h",
		"5 per 1m hold 25h":              "hold 25h0m0s: must be from 1ms to 24h",
		"5 per 1m hold 1000001ns":        "a whole number of microseconds",
		"5 per 1m hold 0s":               `hold "0s"`,
		"5 per 1m hold -1s":              `hold "-1s"`,
		"5 per 1m hold hold":             "only once",
		"5 per 1m retry 1s":              "only a limit that is held has one",
		"5 per 1m hold retry 25h":        "retry 25h0m0s: must be from 1µs to 24h",
		"5 per 1m hold retry 1ns":        "a whole number of microseconds",
		"5 per 1m hold retry":            `"retry": a number must follow`,
		"5 per 1m hold retry soon":       `retry "soon"`,
		"5 per 1m debt -1":               `debt "-1"`,
		"5 per 1m debt x":                `debt "x"`,
		"5 per 1m debt 4503599627370496": "debt 4503599627370496: must be a number of units below 2^52",
		"4 in_flight debt 1":             "in_flight is never charged, so it has no debt",
		"4 in_flight debt 0":             "in_flight is never charged, so it has no debt",
		"4 in_flight burst 5":            "only token_bucket and leaky_bucket have a burst",
		"4 in_flight buckets 5":          "only sliding_window has sub-windows",
		"4 in_flight lease 5%":           "a limit that is held cannot be leased",
		"4 per 1m in_flight":             "in_flight limits what is held at once, and has no period",
		"-1 in_flight":                   "amount -1: must be at least 1",
		"x in_flight":                    `amount "x"`,
		"4 in_flight hold=5s":            `write "hold 5s"`,
	} {
		if l, err := stint.ParseLimit(text); err == nil {
			t.Errorf("%q: %v, want an error with %q", text, l, want)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, s := range []stint.Spec{
		{Algorithm: stint.FixedWindow, Amount: 1, Period: time.Minute, Hold: -1},
		{Algorithm: stint.FixedWindow, Amount: 1, Period: time.Minute, Hold: time.Second, Retry: -1},
		{Algorithm: stint.FixedWindow, Amount: 1, Period: time.Minute, Debt: -2},
		{Algorithm: stint.InFlight, Amount: 1, Period: time.Minute},
	} {
		if l, err := stint.NewLimit(s); err == nil {
			t.Errorf("%+v: %v, want an error", s, l)
		}
	}
}

// What is held has no part in which limits share a count.
func TestHoldIsNotPartOfTheID(t *testing.T) {
	plain := stint.MustLimit("5 per 1m fixed_window")
	for _, text := range []string{"5 per 1m fixed_window hold", "7 per 1m fixed_window hold 1s retry 2s debt 3", "5 per 1m fixed_window debt 0"} {
		if l := stint.MustLimit(text); l.ID() != plain.ID() {
			t.Errorf("%q has the ID %q, want %q", text, l.ID(), plain.ID())
		}
	}
	if a, b := stint.MustLimit("4 in_flight"), stint.MustLimit("9 in_flight hold 5s"); a.ID() != b.ID() || a.ID() == plain.ID() {
		t.Errorf("IDs %q and %q", a.ID(), b.ID())
	}
}

func TestHoldID(t *testing.T) {
	id := stint.NewHoldID()
	if again, err := stint.ParseHoldID(id.String()); err != nil || again != id {
		t.Errorf("%s is read as %s, %v", id, again, err)
	}
	if age := time.Since(id.Made()); age < 0 || age > time.Minute {
		t.Errorf("made %s ago", age)
	}
	if id == stint.NewHoldID() {
		t.Error("two are equal")
	}
	for _, text := range []string{"", "0", strings.Repeat("0", 24), strings.Repeat("g", 24), id.String() + "00"} {
		if id, err := stint.ParseHoldID(text); !errors.Is(err, stint.ErrRequest) {
			t.Errorf("%q: %v, %v", text, id, err)
		}
	}
}

// HoldFor lasts as long as a hold may, of requests that hold.
func TestHoldForIsChecked(t *testing.T) {
	l := stint.MustLimit("4 in_flight")
	for _, c := range []struct {
		d    time.Duration
		hold stint.HoldID
		ok   bool
	}{
		{0, stint.HoldID{}, true},
		{time.Second, stint.HoldID{}, false},
		{time.Second, stint.NewHoldID(), true},
		{time.Microsecond, stint.NewHoldID(), false},
		{25 * time.Hour, stint.NewHoldID(), false},
		{time.Second + 1, stint.NewHoldID(), false},
		{-time.Second, stint.NewHoldID(), false},
	} {
		r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: l}}, Hold: c.hold, HoldFor: c.d}
		if _, err := new(stint.Limiter).Take(context.Background(), &r, nil); (err == nil) != c.ok || err != nil && !errors.Is(err, stint.ErrRequest) {
			t.Errorf("HoldFor %s: %v", c.d, err)
		}
	}
}
