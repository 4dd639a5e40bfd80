package limittest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
)

func TestFaulty(t *testing.T) {
	errDown := errors.New("down")
	for _, tt := range []struct {
		name    string
		fault   Fault
		err     error
		charged int64
	}{
		{"no fault", Fault{}, nil, 1},
		{"before", Fault{Err: errDown}, errDown, 0},
		{"after", Fault{Err: errDown, Lost: true}, errDown, 1},
		{"after, without a word", Fault{Lost: true}, ErrFault, 1},
		{"hangs", Fault{Hang: true}, context.DeadlineExceeded, 0},
		{"hangs after", Fault{Hang: true, Lost: true}, context.DeadlineExceeded, 1},
		{"hangs and fails", Fault{Hang: true, Err: errDown}, errDown, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &Faulty{Store: new(stint.Memory), Fault: func(call int) Fault {
				if call == 1 {
					return tt.fault
				}
				return Fault{}
			}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			r := &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: ten, Cost: 1}}}
			d, err := f.Take(ctx, r, nil)
			if !errors.Is(err, tt.err) {
				t.Fatalf("Take: error %v, want %v", err, tt.err)
			}
			if d.Allowed != (tt.err == nil) {
				t.Errorf("Take: allowed %t beside error %v", d.Allowed, err)
			}
			stint.Internal(friend.Of{}).SetUnits(&r.Asks[0], 0)
			d, err = f.Take(t.Context(), r, nil)
			if got := 10 - d.Remaining; err != nil || got != tt.charged {
				t.Errorf("then %d were charged (error %v), want %d", got, err, tt.charged)
			}
			if f.Calls() != 2 {
				t.Errorf("Calls: %d, want 2", f.Calls())
			}
		})
	}
}

func TestFaultyCallsOfAllKinds(t *testing.T) {
	f := &Faulty{Store: new(stint.Memory), Fault: func(int) Fault { return Fault{Lost: true} }}
	rs := []stint.Request{{Asks: []stint.Ask{{Key: "k", Limit: ten, Cost: 4}}}, {Asks: []stint.Ask{{Key: "k", Limit: ten, Cost: 4}}}}
	left := func() int64 {
		r := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: ten, Peek: true}}}
		d, err := f.Store.Take(t.Context(), &r, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}
	answers := make([]stint.Answer, 2)
	f.TakeBatch(t.Context(), rs, answers)
	for i, a := range answers {
		if !errors.Is(a.Err, ErrFault) || a.Decision != (stint.Decision{}) {
			t.Errorf("TakeBatch, answer %d: %v", i, a)
		}
	}
	if n := left(); n != 2 {
		t.Errorf("after TakeBatch %d left, want 2", n)
	}
	if err := f.Refund(t.Context(), &rs[0]); !errors.Is(err, ErrFault) || left() != 6 {
		t.Errorf("Refund: %v, %d left, want 6", err, left())
	}
	if err := f.Reset(t.Context(), &rs[0]); !errors.Is(err, ErrFault) || left() != 10 {
		t.Errorf("Reset: %v, %d left, want 10", err, left())
	}
	p := mustPenalty(stint.PenaltySpec{Name: "faulty", BanAfter: 1, BanFor: time.Hour})
	if d, err := f.Violate(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Penalty: p}}}); !errors.Is(err, ErrFault) || d != (stint.Decision{}) {
		t.Errorf("Violate: %+v, %v", d, err)
	}
	if r, err := f.Record(t.Context(), "k", p); !errors.Is(err, ErrFault) || r != (stint.Record{}) {
		t.Errorf("Record: %+v, %v", r, err)
	}
	limit := stint.MustLimit("4 in_flight")
	calls := []stint.HoldCall{{Action: stint.HoldRenew, Key: "k", Limit: limit, Hold: stint.NewHoldID(), Units: 2, Again: true}}
	if f.Holds(t.Context(), time.Time{}, calls); !errors.Is(calls[0].Err, ErrFault) || calls[0].Held != 0 {
		t.Errorf("Holds: %+v", calls[0])
	}
	if held, err := f.Held(t.Context(), "k", []*stint.Limit{limit}); !errors.Is(err, ErrFault) || held != nil {
		t.Errorf("Held: %v, %v", held, err)
	}
	if held, err := f.Store.(stint.Holder).Held(t.Context(), "k", []*stint.Limit{limit}); err != nil || len(held) != 1 {
		t.Errorf("%v are held, %v, though the answer was lost", held, err)
	}
	bans := 0
	if err := f.Banned(t.Context(), func(stint.Record) bool { bans++; return true }); !errors.Is(err, ErrFault) || bans != 1 {
		t.Errorf("Banned: %v, %d bans, want the one that was imposed though the answer was lost", err, bans)
	}
	f.Store, f.Fault = new(bare), nil
	_, err1 := f.Violate(t.Context(), &rs[0])
	_, err2 := f.Record(t.Context(), "k", p)
	for _, err := range []error{err1, err2, f.Banned(t.Context(), nil)} {
		if !errors.Is(err, stint.ErrUnsupported) {
			t.Errorf("Violate, Record and Banned without the power: %v", err)
		}
	}
	if f.Holds(t.Context(), time.Time{}, calls); !errors.Is(calls[0].Err, stint.ErrUnsupported) {
		t.Errorf("Holds without a Holder: %v", calls[0].Err)
	}
	if _, err := f.Held(t.Context(), "k", []*stint.Limit{limit}); !errors.Is(err, stint.ErrUnsupported) {
		t.Errorf("Held without a Holder: %v", err)
	}
	if err := f.Refund(t.Context(), &rs[0]); !errors.Is(err, stint.ErrUnsupported) {
		t.Errorf("Refund without a Refunder: %v", err)
	}
	if err := f.Reset(t.Context(), &rs[0]); !errors.Is(err, stint.ErrUnsupported) {
		t.Errorf("Reset without a Resetter: %v", err)
	}
	f.TakeBatch(t.Context(), rs, answers)
	if !answers[0].Allowed || !answers[1].Allowed || answers[1].Remaining != 2 {
		t.Errorf("TakeBatch one by one: %v", answers)
	}
}

func TestFaultyHolds(t *testing.T) {
	l := budget("faulty", 10, 0)
	var fault Fault
	f := &Faulty{Store: new(stint.Memory), Fault: func(int) Fault { return fault }}
	if _, err := f.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: l, Cost: 4}}, Hold: numbered(1)}, nil); err != nil {
		t.Fatal(err)
	}
	call := func() stint.HoldCall {
		calls := []stint.HoldCall{{Key: "k", Limit: l, Hold: numbered(1), Units: 4, Cost: 3}}
		stint.Holds(t.Context(), f, time.Time{}, calls)
		return calls[0]
	}
	fault = Fault{Err: ErrFault}
	if c := call(); !errors.Is(c.Err, ErrFault) || c.Found {
		t.Errorf("one that never arrives: %s", showCall(&c))
	}
	fault = Fault{Lost: true}
	if held, err := f.Held(t.Context(), "k", []*stint.Limit{l}); !errors.Is(err, ErrFault) || held != nil {
		t.Errorf("Held: %v, %v", held, err)
	}
	if c := call(); !errors.Is(c.Err, ErrFault) || c.Found || c.Charged != 0 {
		t.Errorf("one whose answer is lost: %s", showCall(&c))
	}
	fault = Fault{}
	if c := call(); c.Err != nil || c.Found || c.Remaining != 7 {
		t.Errorf("again: %s, want it charged once", showCall(&c))
	}
	f.Store = new(bare)
	if c := call(); !errors.Is(c.Err, stint.ErrUnsupported) {
		t.Errorf("without a Holder: %s", showCall(&c))
	}
	if _, err := f.Held(t.Context(), "k", []*stint.Limit{l}); !errors.Is(err, stint.ErrUnsupported) {
		t.Errorf("Held without a Holder: %v", err)
	}
}

// With no fault, a Faulty is the store that it wraps.
func TestFaultyWithoutFaultsPasses(t *testing.T) {
	Kit{New: func(*testing.T) stint.Store { return &Faulty{Store: new(stint.Memory)} }, Steps: 5_000, Skip: []string{"Burst"}}.Run(t)
}
