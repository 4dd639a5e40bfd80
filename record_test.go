package stint_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
)

func penalty(t testing.TB, s stint.PenaltySpec) *stint.Penalty {
	t.Helper()
	p, err := stint.NewPenalty(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What the caller finds and what limits refuse go into one record, and the record
// shows what the next violation is added to, hour by hour.
func TestViolateStory(t *testing.T) {
	p := penalty(t, stint.PenaltySpec{Name: "login", WarnAfter: 2, BanAfter: 3, BanFor: 30 * time.Minute, ForgetAfter: 2 * time.Hour, Growth: 2})
	once := stint.MustLimit("1 per 1000d")
	synctest.Test(t, func(t *testing.T) {
		var l stint.Limiter
		for i, c := range []struct {
			wait    time.Duration
			verb    string
			outcome stint.Outcome
			banLeft time.Duration // of the decision
			want    stint.Record  // right after
		}{
			{0, "pardon nothing", 0, 0, stint.Record{}},
			{0, "take", stint.Allowed, 0, stint.Record{}},
			{0, "violate", stint.Limited, 0, stint.Record{Violations: 1}},
			{time.Hour, "take", stint.Warned, 0, stint.Record{Violations: 2}},
			{2*time.Hour - time.Microsecond, "look", 0, 0, stint.Record{Violations: 2}},
			{time.Microsecond, "look", 0, 0, stint.Record{}},
			{0, "pardon nothing", 0, 0, stint.Record{}}, // that still counts
			{0, "violate", stint.Limited, 0, stint.Record{Violations: 1}},
			{0, "violate", stint.Warned, 0, stint.Record{Violations: 2}},
			{0, "violate", stint.Banned, 30 * time.Minute, stint.Record{Bans: 1, BanLeft: 30 * time.Minute}},
			{10 * time.Minute, "violate", stint.Banned, 20 * time.Minute, stint.Record{Bans: 1, BanLeft: 20 * time.Minute}},
			{0, "take", stint.Banned, 20 * time.Minute, stint.Record{Bans: 1, BanLeft: 20 * time.Minute}},
			{20 * time.Minute, "violate", stint.Limited, 0, stint.Record{Violations: 1, Bans: 1}},
			{0, "violate", stint.Warned, 0, stint.Record{Violations: 2, Bans: 1}},
			{0, "violate", stint.Banned, time.Hour, stint.Record{Bans: 2, BanLeft: time.Hour}},
			{2 * time.Hour, "violate", stint.Limited, 0, stint.Record{Violations: 1, Bans: 2}},
			{time.Hour, "look", 0, 0, stint.Record{Violations: 1}},
			{0, "pardon", 0, 0, stint.Record{}},
			{0, "pardon nothing", 0, 0, stint.Record{}},
			{0, "violate", stint.Limited, 0, stint.Record{Violations: 1}},
			{0, "pardon", 0, 0, stint.Record{}}, // violations without a ban
			{0, "violate", stint.Limited, 0, stint.Record{Violations: 1}},
			{0, "violate", stint.Warned, 0, stint.Record{Violations: 2}},
			{0, "violate", stint.Banned, 30 * time.Minute, stint.Record{Bans: 1, BanLeft: 30 * time.Minute}},
			{30 * time.Minute, "pardon", 0, 0, stint.Record{}}, // what makes the next ban longer
		} {
			time.Sleep(c.wait)
			var d stint.Decision
			var err error
			switch c.verb {
			case "take":
				d, err = l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "eve", Limit: once, Cost: 1, Penalty: p}}}, nil)
			case "violate":
				d, err = l.Violate(t.Context(), "eve", p)
				want := stint.Decision{Outcome: c.outcome, Key: "eve", RetryAfter: c.banLeft, BanLeft: c.banLeft}
				want.Penalty, want.Violations = p, c.want.Violations
				if c.outcome == stint.Banned && c.banLeft == c.want.BanLeft && c.wait == 0 {
					want.Violations = 3 // by this one, and the record starts again
				}
				if d != want {
					t.Errorf("step %d: %+v, want %+v", i, d, want)
				}
			case "pardon", "pardon nothing":
				var found bool
				if found, err = l.Pardon(t.Context(), "eve", p); found != (c.verb == "pardon") {
					t.Errorf("step %d: %s found %v", i, c.verb, found)
				}
			}
			c.want.Key, c.want.Penalty = "eve", "login"
			r, err2 := l.Record(t.Context(), "eve", p)
			if d.Outcome != c.outcome || d.BanLeft != c.banLeft || r != c.want || err != nil || err2 != nil {
				t.Errorf("step %d, %s: %+v, then %+v, want %+v (%v, %v)", i, c.verb, d, r, c.want, err, err2)
			}
			banned := bans(t, &l)
			if running := c.want.BanLeft > 0; running != (len(banned) == 1) || running && banned[0] != c.want {
				t.Errorf("step %d: banned are %+v", i, banned)
			}
		}
	})
}

func bans(t testing.TB, l *stint.Limiter) (all []stint.Record) {
	t.Helper()
	for r, err := range l.Banned(context.Background()) {
		if err != nil {
			t.Error(err)
		}
		all = append(all, r)
	}
	return all
}

// While a ban of one runs, nothing is counted against another in the same request.
func TestViolateTogether(t *testing.T) {
	p := penalty(t, stint.PenaltySpec{BanAfter: 2, BanFor: time.Hour})
	strict := penalty(t, stint.PenaltySpec{Name: "strict", BanAfter: 1, BanFor: time.Minute})
	synctest.Test(t, func(t *testing.T) {
		var m stint.Memory
		violate := func(asks ...stint.Ask) stint.Decision {
			d, err := m.Violate(t.Context(), &stint.Request{Asks: asks})
			if err != nil {
				t.Error(err)
			}
			return d
		}
		a, b := stint.Ask{Key: "a", Penalty: p}, stint.Ask{Key: "b", Penalty: p}
		if d := violate(a, a); d != (stint.Decision{Outcome: stint.Limited, Key: "a", Penalty: p, Violations: 1}) {
			t.Errorf("asks that share a record commit one violation: %+v", d)
		}
		if d := violate(b, a); d.Outcome != stint.Banned || d.Key != "a" || d.BanLeft != time.Hour {
			t.Errorf("the one that was banned is named: %+v", d)
		}
		for range 3 {
			if d := violate(b, a); d.Outcome != stint.Banned || d.Key != "a" {
				t.Errorf("the ban that runs answers: %+v", d)
			}
		}
		if r, err := m.Record(t.Context(), "b", p); err != nil || r.Violations != 1 {
			t.Errorf("b committed one before: %+v, %v", r, err)
		}
		if d := violate(b, stint.Ask{Key: "c", Penalty: strict}); d.Penalty != p || d.Key != "b" || d.RetryAfter != time.Hour {
			t.Errorf("the longest ban: %+v", d)
		}
	})
}

// A full memory refuses all the same, and forgets no ban for a newcomer.
func TestViolateFull(t *testing.T) {
	p := penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour})
	synctest.Test(t, func(t *testing.T) {
		l := stint.NewLimiter(&stint.Memory{MaxKeys: 10})
		for i := range 20 {
			d, err := l.Violate(t.Context(), fmt.Sprint(i), p)
			want := stint.Banned
			if i >= 10 {
				want = stint.Limited
			}
			if err != nil || d.Outcome != want {
				t.Errorf("violation %d: %+v, %v, want %s", i, d, err, want)
			}
		}
		if n := len(bans(t, l)); n != 10 {
			t.Errorf("%d bans, want 10", n)
		}
	})
}

// Those who walk over the bans may lift them as they go, and none is missed: not in
// many parts, nor where entries move.
func TestPardonWhileWalking(t *testing.T) {
	p := penalty(t, stint.PenaltySpec{Name: "p", BanAfter: 1, BanFor: time.Hour})
	limit := stint.MustLimit("5 per 1h")
	for _, maxKeys := range []int{20_000, 200_000} {
		l := stint.NewLimiter(&stint.Memory{MaxKeys: maxKeys})
		const n = 15_000
		for i := range n {
			if d, err := l.Violate(t.Context(), fmt.Sprint(i), p); err != nil || d.Outcome != stint.Banned {
				t.Fatalf("%+v, %v", d, err)
			}
			if i%5 == 0 {
				_, _ = l.Allow(t.Context(), fmt.Sprint(i), limit)
			}
		}
		seen := map[string]int{}
		for r, err := range l.Banned(t.Context()) {
			seen[r.Key]++
			if err != nil || r.Penalty != "p" || r.Hashed || r.Bans != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
			other := fmt.Sprint((len(seen) * 7919) % n) // entries move into the places of what goes
			err = l.Reset(t.Context(), other, limit)
			if len(seen)%2 == 0 {
				_, err2 := l.Pardon(t.Context(), r.Key, p)
				err = errors.Join(err, err2)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) != n {
			t.Errorf("room for %d: %d of %d bans seen", maxKeys, len(seen), n)
		}
		for key, times := range seen {
			if times > 1 {
				t.Fatalf("room for %d: %q came %d times", maxKeys, key, times)
			}
		}
		if left := bans(t, l); len(left) != n/2 {
			t.Errorf("%d bans left, want half of %d", len(left), n)
		}
	}
}

func TestViolateRefusesNonsense(t *testing.T) {
	p := penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour})
	var l stint.Limiter
	for name, c := range map[string]struct {
		key string
		p   *stint.Penalty
	}{
		"empty key": {"", p}, "long key": {strings.Repeat("k", stint.MaxKey+1), p}, "no penalty": {"k", nil}, "empty penalty": {"k", new(stint.Penalty)},
	} {
		_, err1 := l.Violate(t.Context(), c.key, c.p)
		_, err2 := l.Record(t.Context(), c.key, c.p)
		_, err3 := l.Pardon(t.Context(), c.key, c.p)
		for _, err := range []error{err1, err2, err3} {
			if !errors.Is(err, stint.ErrRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A store that only takes says so.
func TestNoRecords(t *testing.T) {
	p := penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour})
	l := stint.NewLimiter(struct{ stint.Store }{new(stint.Memory)})
	_, err1 := l.Violate(t.Context(), "k", p)
	_, err2 := l.Record(t.Context(), "k", p)
	_, err3 := l.Pardon(t.Context(), "k", p)
	var errs []error
	for r, err := range l.Banned(t.Context()) {
		if r != (stint.Record{}) {
			t.Errorf("%+v", r)
		}
		errs = append(errs, err)
	}
	if len(errs) != 1 {
		t.Fatalf("%d answers, want one error", len(errs))
	}
	for _, err := range append(errs, err1, err2, err3) {
		if !errors.Is(err, stint.ErrUnsupported) {
			t.Errorf("error %v", err)
		}
	}
}

// An error in the middle of a walk comes last, but not to those who have left.
func TestBannedFails(t *testing.T) {
	p := penalty(t, stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour})
	l := stint.NewLimiter(&limittest.Faulty{Store: new(stint.Memory), Fault: func(call int) limittest.Fault { return limittest.Fault{Lost: call > 2} }})
	for _, key := range []string{"a", "b"} {
		if _, err := l.Violate(t.Context(), key, p); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for r, err := range l.Banned(t.Context()) {
		keys = append(keys, r.Key)
		if errors.Is(err, limittest.ErrFault) != (len(keys) == 3) {
			t.Errorf("answer %d: %+v, %v", len(keys), r, err)
		}
	}
	if slices.Sort(keys); !slices.Equal(keys, []string{"", "a", "b"}) {
		t.Errorf("keys %q", keys)
	}
	for range l.Banned(t.Context()) {
		break
	}
}
