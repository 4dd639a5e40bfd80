package fleet_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
)

// A client that waits for as long as it was told is allowed, also where a remembered
// ban is shorter than the wait for the limit; and the flood of one that does not wait
// costs hardly a call.
func TestDenialsOfShortBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNotifier()
		l := stint.NewLimiter(remembering(t, s, 0))
		p, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 3, BanFor: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		hour, minute := stint.MustLimit("5 per 1h fixed_window"), stint.MustLimit("50 per 1s")
		take := func(limits ...*stint.Limit) stint.Decision {
			r := &stint.Request{}
			for _, limit := range limits {
				r.Asks = append(r.Asks, stint.Ask{Key: "k", Limit: limit, Cost: 1, Penalty: p})
			}
			d, err := l.Take(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		var last stint.Decision
		for range 8 {
			last = take(hour, minute)
		}
		if last.Outcome != stint.Banned || last.BanLeft != 10*time.Second || last.RetryAfter <= last.BanLeft {
			t.Fatalf("%+v", last)
		}
		calls, hourIsOver := s.Calls(), time.Now().Add(last.RetryAfter)
		for range 1000 {
			time.Sleep(time.Millisecond)
			if last = take(hour, minute); last.Outcome != stint.Banned || !time.Now().Add(last.RetryAfter).Equal(hourIsOver) {
				t.Fatalf("%+v", last)
			}
			// Its limit would allow, so that it is free as soon as the ban is over.
			if other := take(minute); other.Outcome != stint.Banned || other.RetryAfter != other.BanLeft {
				t.Fatalf("%+v", other)
			}
		}
		if n := s.Calls() - calls; n != 0 {
			t.Errorf("%d calls of 2000", n)
		}
		// What is refunded lifts no ban, and shortens what is told.
		if err := stint.Refund(t.Context(), l.Store, &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: hour, Cost: 5}}}); err != nil {
			t.Fatal(err)
		}
		if last = take(hour, minute); last.Outcome != stint.Banned || last.RetryAfter != last.BanLeft {
			t.Fatalf("%+v", last)
		}
		time.Sleep(last.RetryAfter)
		for range 7 {
			last = take(hour, minute)
		}
		time.Sleep(last.RetryAfter)
		if last = take(hour, minute); !last.Allowed {
			t.Errorf("%+v", last)
		}
	})
}

// Under a flood, a penalty with a BanAfter of up to 100 has each outcome when it has it
// without Denials, however short its bans are, and whichever of two instances is asked.
func TestDenialsOfQuickBans(t *testing.T) {
	for _, banFor := range []time.Duration{50 * time.Millisecond, 999 * time.Millisecond, time.Second, 1150 * time.Millisecond} {
		for _, after := range []int64{3, 40, 100} {
			t.Run(fmt.Sprint(banFor, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					random := rand.New(rand.NewPCG(uint64(after), 1))
					p, err := stint.NewPenalty(stint.PenaltySpec{WarnAfter: 2, BanAfter: after, BanFor: banFor})
					if err != nil {
						t.Fatal(err)
					}
					limit := stint.MustLimit("1 per 24h sliding_log")
					s := newNotifier()
					two := []stint.Store{remembering(t, s, 0), remembering(t, s, 0)}
					bare := new(stint.Memory)
					for i := range 5000 {
						time.Sleep(time.Duration(random.Int64N(2000)) * time.Microsecond)
						if random.IntN(500) == 0 {
							time.Sleep(time.Duration(random.Int64N(2*banFor.Microseconds())) * time.Microsecond)
						}
						r := &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit, Cost: 1, Penalty: p}}}
						have, err := two[random.IntN(2)].Take(t.Context(), r, nil)
						if err != nil {
							t.Fatal(err)
						}
						want, _ := bare.Take(t.Context(), r, nil)
						if have.Outcome != want.Outcome || have.BanLeft != want.BanLeft {
							t.Fatalf("request %d: %s, %s left; without: %s, %s left", i, have.Outcome, have.BanLeft, want.Outcome, want.BanLeft)
						}
					}
				})
			})
		}
	}
}

// Violations and bans that were to be forgotten stay forgotten when ForgetAfter is raised,
// as where a store has let them expire.
func TestForgetAfterIsRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := func(forget time.Duration) *stint.Penalty {
			p, err := stint.NewPenalty(stint.PenaltySpec{WarnAfter: 2, BanAfter: 3, BanFor: time.Second, ForgetAfter: forget, Growth: 2})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		short, long := under(10*time.Second), under(time.Hour)
		var l stint.Limiter
		violate := func(key string, p *stint.Penalty) string {
			d, err := l.Violate(t.Context(), key, p)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(d.Outcome, " ", d.BanLeft)
		}
		same(t, violate("a", short), "limited 0s")
		same(t, violate("b", short), "limited 0s")
		for range 3 {
			violate("c", short)
		}
		time.Sleep(10*time.Second - time.Microsecond)
		same(t, violate("a", long), "warned 0s") // it still counted
		time.Sleep(time.Microsecond)
		same(t, violate("b", long), "limited 0s")
		time.Sleep(time.Minute)
		same(t, violate("a", long), "banned 1s") // by the hour, since its last
		violate("c", long)
		violate("c", long)
		same(t, violate("c", long), "banned 1s") // its first, for the other is forgotten
	})
}

// A ban that is remembered is not the whole answer to a request that faces another
// record, too.
func TestDenialsOfSeveralBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNotifier()
		d := remembering(t, s, 0)
		defer d.Close()
		limit := stint.MustLimit("1000 per 1s")
		short := penalty(t, stint.PenaltySpec{Name: "short", BanAfter: 1, BanFor: 10 * time.Second})
		long := penalty(t, stint.PenaltySpec{Name: "long", BanAfter: 1, BanFor: time.Minute})
		one := stint.Ask{Key: "k", Limit: limit, Cost: 1, Penalty: short}
		two := stint.Ask{Key: "u", Limit: limit, Cost: 1, Penalty: long}
		if _, err := d.Violate(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Penalty: short}}}); err != nil {
			t.Fatal(err)
		}
		// Another instance bans the other.
		if _, err := s.Violate(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "u", Penalty: long}}}); err != nil {
			t.Fatal(err)
		}
		if a, err := d.Take(t.Context(), &stint.Request{Asks: []stint.Ask{one}}, nil); a.RetryAfter != 10*time.Second || err != nil {
			t.Errorf("%+v, %v", a, err)
		}
		for range 3 {
			a, err := d.Take(t.Context(), &stint.Request{Asks: []stint.Ask{one, two}}, nil)
			if a.RetryAfter != time.Minute || a.Key != "u" || err != nil {
				t.Errorf("%+v, %v", a, err)
			}
		}
	})
}

// An ask without a limit refuses while a ban runs, and else leaves no trace: whatever
// layers are around the Store, and while it is away.
func TestBanAlone(t *testing.T) {
	p := penalty(t, stint.PenaltySpec{BanAfter: 2, BanFor: time.Hour})
	limit := stint.MustLimit("1 per 1h")
	for name, stack := range map[string]func(*testing.T, stint.Store) stint.Store{
		"none":     func(_ *testing.T, s stint.Store) stint.Store { return s },
		"fallback": func(_ *testing.T, s stint.Store) stint.Store { return &fleet.Fallback{Store: s} },
		"denials": func(t *testing.T, s stint.Store) stint.Store {
			hearing := newNotifier()
			hearing.Store = s
			return remembering(t, hearing, 0)
		},
		"leases": func(t *testing.T, s stint.Store) stint.Store {
			l := &fleet.Leases{Store: s}
			t.Cleanup(l.Close)
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := new(stint.Memory)
				l := stint.Limiter{Store: stack(t, memory)}
				alone := stint.Ask{Key: "k", Penalty: p}
				beside := stint.Ask{Key: "other", Limit: limit}
				take := func(asks ...stint.Ask) stint.Decision {
					t.Helper()
					d, err := l.Take(t.Context(), &stint.Request{Asks: asks}, nil)
					if err != nil {
						t.Fatal(err)
					}
					return d
				}
				for range 3 {
					if d := take(alone); d != (stint.Decision{Allowed: true, Outcome: stint.Allowed, Key: "k"}) {
						t.Fatalf("no ban runs: %+v", d)
					}
				}
				if n := memory.Len(); n > 0 {
					t.Fatalf("%d counts", n)
				}
				if d := take(alone, beside); !d.Allowed || d.Limit != limit || d.Key != "other" {
					t.Errorf("beside a limit: %+v", d)
				}
				// That refuses now, which is no violation of the other key.
				if d := take(alone, beside); d.Outcome != stint.Limited || d.Limit != limit || d.Violations != 0 {
					t.Errorf("beside a limit that refuses: %+v", d)
				}
				for range 2 {
					if _, err := l.Violate(t.Context(), "k", p); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 {
					if d := take(alone); d.Outcome != stint.Banned || d.Key != "k" || d.BanLeft != time.Hour {
						t.Errorf("banned: %+v", d)
					}
				}
				time.Sleep(time.Hour)
				if d := take(alone, beside); !d.Allowed {
					t.Errorf("after the ban: %+v", d)
				}
			})
		})
	}
}
