package offenders_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/internal/offenders"
	"github.com/stintdev/stint/server/internal/reports"
	"github.com/stintdev/stint/server/rules"
)

// away is reports that fail on demand.
type away struct {
	reports.Memory
	is      atomic.Bool
	written atomic.Int64 // the most bytes of one part
	calls   atomic.Int64
}

var errAway = errors.New("the store is away")

func (a *away) Report(ctx context.Context, name, part string, text []byte, keep time.Duration) error {
	a.calls.Add(1)
	if a.is.Load() {
		return errAway
	}
	a.written.Store(max(a.written.Load(), int64(len(text))))
	return a.Memory.Report(ctx, name, part, text, keep)
}

func (a *away) Reported(ctx context.Context, name string) (map[string][]byte, error) {
	a.calls.Add(1)
	if a.is.Load() {
		return nil, errAway
	}
	return a.Memory.Reported(ctx, name)
}

// instance is a Counter that follows until it is stopped.
type instance struct {
	*offenders.Counter
	stop func()
}

func start(t *testing.T, r reports.Reports, id string) instance {
	ctx, cancel := context.WithCancel(t.Context())
	s := offenders.New(offenders.Options{Most: 100, Reports: r, ID: id, Now: time.Now, Failed: func(err error) {
		if !errors.Is(err, errAway) {
			t.Errorf("%s: %v", id, err)
		}
	}})
	s.Follow(ctx)
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			cancel()
			s.Close()
		}
	}
	t.Cleanup(stop)
	return instance{s, stop}
}

// refuse counts n refusals of a key under login.
func (i instance) refuse(key string, n int) {
	r := request(key, "/login", 1, parsed().Rules[0])
	for range n {
		i.Observe(r)
	}
}

// keys are the refused keys under login of a time, as words, and how many instances are counted.
func (i instance) keys(t *testing.T, back time.Duration) string {
	t.Helper()
	r, err := i.Top(t.Context(), offenders.Query{Of: offenders.Keys, By: offenders.Refusals, Since: time.Now().Add(-back)})
	if err != nil {
		t.Errorf("%v", err)
	}
	return strings.ReplaceAll(words(offenders.Keys, r.List), "login|", "")
}

// until sleeps until an instant of the day in which synctest begins, 2000-01-01.
func until(hour, minute, second int) {
	time.Sleep(time.Until(time.Date(2000, 1, 1, hour, minute, second, 0, time.UTC)))
	synctest.Wait()
}

// Instances see what all have refused: of the present span within the interval of reports, and
// of former spans and hours after they were merged, wherever instances start and stop.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r away
		a, b := start(t, &r, "a"), start(t, &r, "b")
		expect := func(i instance, back time.Duration, want string) {
			t.Helper()
			if got := i.keys(t, back); got != want {
				t.Errorf("%s, %v back: %q, want %q", time.Now().UTC().Format(time.TimeOnly), back, got, want)
			}
		}
		a.refuse("eve", 3)
		b.refuse("eve", 4)
		b.refuse("joe", 1)
		expect(a, 0, "eve=3") // its own at once
		until(0, 0, 11)
		expect(a, 0, "eve=7 joe=1")
		expect(b, 0, "eve=7 joe=1")

		b.refuse("joe", 1)
		b.stop() // reports what is new
		b = start(t, &r, "b2")
		b.refuse("joe", 1)
		until(0, 0, 30)
		expect(b, 0, "eve=7 joe=3")

		until(0, 9, 59)
		a.refuse("late", 1) // in the last second of the span
		until(0, 10, 1)
		expect(b, 0, "")
		expect(b, time.Minute, "eve=7 joe=3 late=1")
		until(0, 12, 0) // merged
		expect(b, 10*time.Minute, "eve=7 joe=3 late=1")
		a.refuse("eve", 10)
		until(0, 35, 0)
		a.stop() // perhaps the one that merges
		expect(b, 20*time.Minute, "eve=10")
		expect(b, time.Hour, "eve=17 joe=3 late=1")
		until(1, 30, 0)
		b.refuse("eve", 100)
		for _, hour := range []int{2, 3, 5, 7, 23} {
			until(hour, 45, 0)
			expect(b, time.Duration(hour+1)*time.Hour, "eve=117 joe=3 late=1")
			if hour >= 3 {
				expect(b, time.Duration(hour)*time.Hour-40*time.Minute, "eve=100") // whole hours
			}
		}
		hours, err := b.Hours(t.Context(), offenders.Keys, offenders.Refusals)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range hours {
			if len(h.Counts) > 0 {
				got = append(got, h.From.Format(time.TimeOnly)+" "+words(offenders.Keys, h.List))
			}
		}
		want := []string{"00:00:00 login|eve=17 login|joe=3 login|late=1", "01:00:00 login|eve=100"}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		b.stop()
		until(15*24, 0, 0)
		expect(start(t, &r, "c"), offenders.Keeps, "") // forgotten
	})
}

// While the store is away, an instance shows its own; what it counted is shared when the store
// is back, if that is soon.
func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r away
		a, b := start(t, &r, "a"), start(t, &r, "b")
		r.is.Store(true)
		a.refuse("eve", 5)
		until(0, 5, 0)
		got, err := a.Top(t.Context(), offenders.Query{By: offenders.Refusals, Since: time.Now().Add(-time.Hour)})
		if !errors.Is(err, errAway) || words(offenders.Keys, got.List) != "login|eve=5" || got.Instances != 1 {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := a.Hours(t.Context(), offenders.Keys, offenders.Refusals); !errors.Is(err, errAway) {
			t.Errorf("history: %v", err)
		}
		until(0, 11, 0)
		a.refuse("eve", 1)
		until(0, 21, 0)
		r.is.Store(false)
		until(0, 21, 15)
		if got := b.keys(t, 30*time.Minute); got != "eve=6" {
			t.Errorf("back: %q", got)
		}
		until(3, 0, 0)
		if got := b.keys(t, 3*time.Hour); got != "eve=6" {
			t.Errorf("merged: %q", got)
		}
	})
}

// Whatever clients send, a part is not longer than its bound, and the heaviest are in it.
func TestPartsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r away
		s := offenders.New(offenders.Options{Most: 1000, Reports: &r, ID: "a", Now: time.Now, Failed: func(err error) { t.Error(err) }})
		ctx, cancel := context.WithCancel(t.Context())
		s.Follow(ctx)
		rng := rand.New(rand.NewPCG(1, 2))
		eve := request("eve", "/eve", 1, parsed().Rules[0])
		for i := range 20_000 {
			random := make([]byte, 120)
			for i := range random {
				random[i] = byte(1 + rng.IntN(127))
			}
			s.Observe(request(string(random), "/"+string(random), 1, []*rules.Rule{nil, parsed().Rules[0]}[i%2]))
			if i%20 == 0 {
				s.Observe(eve)
			}
		}
		until(0, 0, 11)
		other := start(t, &r, "b")
		got, err := other.Top(t.Context(), offenders.Query{By: offenders.Refusals, Since: time.Now()})
		if err != nil || len(got.Counts) < 50 || got.Counts[0].Key != "login\x00eve" || got.Total != 11_000 || got.Floor > 11_000/50 {
			t.Errorf("%d, total %d, floor %d: %.200q, %v", len(got.Counts), got.Total, got.Floor, words(offenders.Keys, got.List), err)
		}
		until(3, 0, 0)
		cancel()
		s.Close()
		if n := r.written.Load(); n > 64<<10 || n < 32<<10 {
			t.Errorf("a part has %d bytes", n)
		}
	})
}

// An instance that has nothing to do hardly calls the store.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r away
		start(t, &r, "a")
		until(1, 0, 0)
		before := r.calls.Load()
		until(2, 0, 0)
		if n := r.calls.Load() - before; n > 30 {
			t.Errorf("%d calls in an hour", n)
		}
	})
}

// Reports that another program, or another version, has written do no harm.
func TestForeignParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r away
		failed := 0
		s := offenders.New(offenders.Options{Most: 10, Reports: &r, ID: "a", Now: time.Now, Failed: func(error) { failed++ }})
		ctx, cancel := context.WithCancel(t.Context())
		s.Follow(ctx)
		span := time.Now().Unix() / 600
		for i, text := range []string{"", "\x02", "\x01", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x01\x01\x05abc", strings.Repeat("\x01", 40)} {
			if err := r.Report(t.Context(), fmt.Sprintf("offenders-%d", span), fmt.Sprint(i), []byte(text), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		i := instance{s, nil}
		i.refuse("eve", 1)
		if got := i.keys(t, 0); got != "eve=1" || failed != 6 {
			t.Errorf("%q, %d failed", got, failed)
		}
		cancel()
		s.Close()
	})
}

// Without Follow, everything since the start counts, and nothing is shared.
func TestWithoutFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r away
		s := offenders.New(offenders.Options{Most: 10, Reports: &r, ID: "a", Now: time.Now, Failed: func(error) {}})
		i, began := instance{s, nil}, time.Now()
		i.refuse("eve", 1)
		time.Sleep(3 * time.Hour)
		got, err := s.Top(t.Context(), offenders.Query{By: offenders.Refusals, Since: time.Now()})
		if err != nil || words(offenders.Keys, got.List) != "login|eve=1" || !got.Since.Equal(began) || got.Instances != 1 {
			t.Errorf("%+v, %v", got, err)
		}
		s.Close()
		if r.calls.Load() != 0 {
			t.Error("reported")
		}
	})
}
