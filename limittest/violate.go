package limittest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stintdev/stint"
)

// Violate implements stint.Violator.
func (m *Model) Violate(_ context.Context, r *stint.Request) (stint.Decision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := instant(r)
	if d, banned := m.running(r, now); banned {
		return d, nil
	}
	d := stint.Decision{Outcome: stint.Limited, Key: r.Asks[0].Key}
	punished := make(map[recordID]bool)
	for i := range r.Asks {
		a := &r.Asks[i]
		if punished[recordOf(a)] {
			continue
		}
		punished[recordOf(a)] = true
		s := m.violate(recordOf(a), a.Penalty.Spec(), now)
		for n := a.Cost; n > 1 && s.outcome != stint.Banned; n-- {
			s = m.violate(recordOf(a), a.Penalty.Spec(), now)
		}
		s.left = banLeft(m.records[recordOf(a)], now)
		if s.tell(&d, a) {
			d.Key = a.Key
		}
	}
	return d, nil
}

// checkViolations checks which key is named after violations of several keys, and the order of many
// callers.
func checkViolations(t testing.TB, e *env) {
	stores := e.fleet()
	for _, s := range stores {
		if _, ok := stint.As[stint.Violator](s); !ok {
			t.Skipf("%T is no stint.Violator", s)
		}
	}
	violateTogether(t, stores[0])
	violateAtOnce(t, stores)
}

// violateTogether commits violations of several keys in one call.
func violateTogether(t testing.TB, s stint.Store) {
	t.Helper()
	mild := mustPenalty(stint.PenaltySpec{Name: "mild", WarnAfter: 2, BanAfter: 4, BanFor: 10 * time.Second})
	a, b := stint.Ask{Key: "together: a", Penalty: mild}, stint.Ask{Key: "together: b", Penalty: mild}
	c, d := stint.Ask{Key: "together: c", Penalty: strict}, stint.Ask{Key: "together: d", Penalty: stricter}
	for i, step := range []struct {
		asks       []stint.Ask
		outcome    stint.Outcome
		by         stint.Ask
		violations int64
	}{
		{[]stint.Ask{b, b}, stint.Limited, b, 1}, // one record, one violation
		{[]stint.Ask{a, b}, stint.Warned, b, 2},
		{[]stint.Ask{a, b}, stint.Warned, a, 2}, // it is b's third
		{[]stint.Ask{a, b}, stint.Banned, b, 4},
		{[]stint.Ask{a, b}, stint.Banned, b, 0}, // b's ban runs: nothing is counted for a
		{[]stint.Ask{a}, stint.Banned, a, 4},
		{[]stint.Ask{c, d}, stint.Banned, d, stricter.Spec().BanAfter},
		{[]stint.Ask{a, c, d, b}, stint.Banned, d, 0},
		{[]stint.Ask{c}, stint.Banned, c, 0},
	} {
		want := stint.Decision{Outcome: step.outcome, Key: step.by.Key, Penalty: step.by.Penalty, Violations: step.violations}
		if step.outcome == stint.Banned {
			want.BanLeft = step.by.Penalty.Spec().BanFor
			want.RetryAfter = want.BanLeft
		}
		got, err := stint.Violate(context.Background(), s, &stint.Request{Asks: step.asks, At: time.UnixMicro(noon)})
		if err != nil || got != want {
			t.Fatalf("Violate, step %d of several keys:\n got %s, %v\nwant %s", i, show(&got), err, show(&want))
		}
	}
}

// violateAtOnce lets racers commit violations at one instant, and counts the answers of each kind.
func violateAtOnce(t testing.TB, stores []stint.Store) {
	t.Helper()
	p := mustPenalty(stint.PenaltySpec{Name: "race", WarnAfter: 10, BanAfter: 30, BanFor: time.Minute})
	r := stint.Request{Asks: []stint.Ask{{Key: "violations", Penalty: p}}, At: time.UnixMicro(noon)}
	const each = 10
	var mu sync.Mutex
	got := map[stint.Outcome]int{}
	told := map[int64]int{}
	var done sync.WaitGroup
	for i := range racers {
		done.Go(func() {
			for range each {
				mine := r
				d, err := stint.Violate(context.Background(), stores[i%len(stores)], &mine)
				if err != nil {
					t.Errorf("Violate: %v", err)
					return
				}
				want := stint.Decision{Outcome: d.Outcome, Key: "violations", Penalty: p, Violations: d.Violations}
				if d.Outcome == stint.Banned {
					want.BanLeft, want.RetryAfter = time.Minute, time.Minute
				}
				if d != want {
					t.Errorf("Violate: %s, want %s", show(&d), show(&want))
				}
				mu.Lock()
				got[d.Outcome]++
				told[d.Violations]++
				mu.Unlock()
			}
		})
	}
	done.Wait()
	for outcome, want := range map[stint.Outcome]int{stint.Limited: 9, stint.Warned: 20, stint.Banned: racers*each - 29} {
		if got[outcome] != want {
			t.Errorf("of %d violations at once, %d were answered %s; want %d", racers*each, got[outcome], outcome, want)
		}
	}
	for n := int64(1); n <= 30; n++ {
		if told[n] != 1 {
			t.Errorf("of %d violations at once, %d were told as number %d", racers*each, told[n], n)
		}
	}
}
