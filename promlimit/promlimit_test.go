package promlimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/promlimit"
)

// scraped are the series that are not 0, as in name{label,label}.
func scraped(t testing.TB, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			n := m.Counter.GetValue()
			if h := m.Histogram; h != nil {
				n = float64(h.GetSampleCount())
			}
			if n != 0 {
				all[strings.TrimPrefix(f.GetName(), "stint_limit_")+"{"+strings.Join(labels, ",")+"}"] = n
			}
		}
	}
	return all
}

func compare(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name := range want {
		if want[name] == 0 {
			delete(want, name)
		}
	}
	if maps.Equal(got, want) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if got[name] != want[name] {
			t.Errorf("%s is %v, want %v", name, got[name], want[name])
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
}

// flaky is a Store that fails each tenth call.
type flaky struct {
	stint.Memory
	n   int
	err error
}

func (f *flaky) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if f.n++; f.n%10 == 0 {
		return stint.Decision{}, f.err
	}
	return f.Memory.Take(ctx, r, out)
}

func (f *flaky) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		answers[i].Decision, answers[i].Err = f.Take(ctx, &rs[i], answers[i].Each)
	}
}

// The counts are what one gets by counting the answers of random requests.
func TestCounts(t *testing.T) {
	for _, failure := range []struct {
		err    error
		reason string
	}{
		{errors.New("away"), "error"}, {context.DeadlineExceeded, "timeout"}, {fmt.Errorf("no: %w", stint.ErrFull), "full"}, {context.Canceled, "canceled"},
	} {
		c := promlimit.New(promlimit.Options{})
		l := stint.Limiter{Store: c.Store(&flaky{err: failure.err}), Observe: c.Observe, Instance: stint.MustLimit("300 per 1h")}
		login, unnamed := stint.MustLimit("login: 6 per 1h"), stint.MustLimit("40 per 1h sliding_log")
		punished, err := stint.NewPenalty(stint.PenaltySpec{Name: "strict", WarnAfter: 3, BanAfter: 5, BanFor: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]float64{}
		count := func(r *stint.Request, d stint.Decision, err error) {
			if err != nil {
				want["undecided_total{"+failure.reason+"}"]++
				return
			}
			want[fmt.Sprintf("requests_total{%s,%s}", d.By, d.Outcome)]++
			if d.Penalty != nil {
				want[fmt.Sprintf("penalties_total{%s,strict}", d.Outcome)]++
			}
			names := map[*stint.Limit]string{login: "login", unnamed: unnamed.Terms(), l.Instance: l.Instance.Terms()}
			switch {
			case d.Allowed:
				for _, a := range r.Asks {
					if a.Limit != nil {
						want[fmt.Sprintf("decisions_total{%s,allowed}", names[a.Limit])]++
						want[fmt.Sprintf("units_total{%s}", names[a.Limit])] += float64(a.Units())
					}
				}
			case d.Limit != nil:
				want[fmt.Sprintf("decisions_total{%s,%s}", names[d.Limit], d.Outcome)]++
			}
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 600 {
			key := fmt.Sprint(random.IntN(20))
			r := stint.Request{Asks: []stint.Ask{{Key: key, Limit: login, Penalty: punished}, {Key: "all", Limit: unnamed, Cost: int64(random.IntN(3))}}[:1+random.IntN(2)]}
			switch random.IntN(5) {
			case 0:
				_, _ = l.Peek(t.Context(), key, login) // which does not count
			case 1:
				d, err := l.Violate(t.Context(), key, punished)
				count(&stint.Request{Asks: []stint.Ask{{Key: key, Penalty: punished}}}, d, err)
			case 2:
				rs, answers := []stint.Request{r, r}, make([]stint.Answer, 2)
				l.TakeBatch(t.Context(), rs, answers)
				for i := range rs {
					count(&rs[i], answers[i].Decision, answers[i].Err)
				}
			default:
				d, err := l.Take(t.Context(), &r, nil)
				count(&r, d, err)
			}
		}
		got := scraped(t, c)
		if got["store_seconds{}"] < 100 || got["store_errors_total{"+failure.reason+"}"] < 10 {
			t.Errorf("calls of the store: %v, failed %v", got["store_seconds{}"], got["store_errors_total{"+failure.reason+"}"])
		}
		delete(got, "store_seconds{}")
		delete(got, "store_errors_total{"+failure.reason+"}")
		compare(t, got, want)
	}
}

// Names beyond the bound share series, so that a program that makes limits by the thousand
// does not grow.
func TestNamesAreBounded(t *testing.T) {
	c := promlimit.New(promlimit.Options{Names: 3})
	l := stint.Limiter{Observe: c.Observe}
	var all sync.WaitGroup
	for i := range 50 {
		limit := stint.MustLimit(fmt.Sprintf("limit%d: 1 per 1h", i))
		for range 2 {
			all.Go(func() { _, _ = l.Allow(t.Context(), "k", limit) })
		}
	}
	all.Wait()
	named, sum := 0, 0.0
	got := scraped(t, c)
	for name, n := range got {
		if strings.HasPrefix(name, "decisions_total{") {
			sum += n
			if strings.HasSuffix(name, ",allowed}") && !strings.Contains(name, "other") {
				named++
			}
		}
	}
	if named != 3 || sum != 100 || got["decisions_total{other,allowed}"] != 47 {
		t.Errorf("%d limits of their own, %v counted: %v", named, sum, got)
	}
}

// Simulations are not counted, and neither is what is malformed.
func TestNotCounted(t *testing.T) {
	c := promlimit.New(promlimit.Options{})
	l := stint.Limiter{Observe: c.Observe}
	limit := stint.MustLimit("1 per 1h")
	_, _ = l.Take(t.Context(), &stint.Request{Asks: []stint.Ask{{Key: "k", Limit: limit}}, At: time.Unix(1, 0)}, nil)
	_, _ = l.Allow(t.Context(), "", limit)
	compare(t, scraped(t, c), nil)
}

// A Store that is measured is as good as the Store, optional interfaces and fallback included.
func TestStoreKit(t *testing.T) {
	c := promlimit.New(promlimit.Options{})
	limittest.Kit{New: func(*testing.T) stint.Store { return c.Store(new(stint.Memory)) }, Steps: 2000}.Run(t)
	if scraped(t, c)["store_seconds{}"] < 2000 {
		t.Error("the calls were not counted")
	}
}

type away struct {
	stint.Store
	fallback stint.Memory
}

func (*away) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, errors.New("away")
}

func (a *away) WithFallback() stint.Store { return &a.fallback }

func TestStoreIsNetworked(t *testing.T) {
	c := promlimit.New(promlimit.Options{})
	l := stint.Limiter{Store: c.Store(&away{Store: new(stint.Memory)}), Observe: c.Observe}
	f := stint.Guard[int, int]{Name: "f", Limiter: &l, Limit: stint.MustLimit("f: 1 per 1h"), Anonymous: stint.AnonymousShare}.Wrap(func(context.Context, int) (int, error) { return 0, nil })
	if _, err := f(t.Context(), 1); err != nil {
		t.Error(err)
	}
	compare(t, scraped(t, c), map[string]float64{"requests_total{store,allowed}": 1, "decisions_total{f,allowed}": 1, "units_total{f}": 1, "store_seconds{}": 1})
	if n := c.Store(&away{}).(stint.Networked); n.WithFallback() != n.WithFallback() {
		t.Error("two fallbacks")
	}
}

// Counting costs no allocation.
func TestAllocations(t *testing.T) {
	c := promlimit.New(promlimit.Options{})
	limit := stint.MustLimit("login: 1000000 per 1h")
	l := stint.Limiter{Store: c.Store(new(stint.Memory)), Observe: c.Observe}
	if n := testing.AllocsPerRun(1000, func() { _, _ = l.Allow(t.Context(), "k", limit) }); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	limit := stint.MustLimit("login: 1000000000 per 1h")
	c := promlimit.New(promlimit.Options{})
	for _, o := range []struct {
		name string
		l    *stint.Limiter
	}{
		{"none", new(stint.Limiter)},
		{"observer", &stint.Limiter{Observe: c.Observe}},
		{"observer and store", &stint.Limiter{Observe: c.Observe, Store: c.Store(new(stint.Memory))}},
	} {
		b.Run(o.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = o.l.Allow(b.Context(), "k", limit)
			}
		})
	}
}

// A program counts what its limits decide.
func Example() {
	metrics := promlimit.New(promlimit.Options{})
	prometheus.NewRegistry().MustRegister(metrics) // or prometheus.MustRegister
	limiter := stint.Limiter{Observe: metrics.Observe}
	login := stint.MustLimit("login: 1 per 1h")
	for range 2 {
		d, _ := limiter.Allow(context.Background(), "ann", login)
		fmt.Println(d.Outcome)
	}
	// Output:
	// allowed
	// limited
}

// Units that are held are charged when they are settled, and how each hold ended is counted.
func TestHolds(t *testing.T) {
	c := promlimit.New(promlimit.Options{})
	l := stint.Limiter{Observe: c.Observe, ObserveHold: c.ObserveHold}
	budget, flight := stint.MustLimit("budget: 100 per 1h fixed_window hold"), stint.MustLimit("flight: 3 in_flight")
	request := stint.Request{Asks: []stint.Ask{{Key: "k", Limit: budget, Cost: 20}, {Key: "k", Limit: flight}}}
	for i := range 2 {
		r, _, err := l.Reserve(t.Context(), &request)
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 { // an operator releases it under one limit
			calls := []stint.HoldCall{{Action: stint.HoldRelease, Key: "k", Limit: budget, Hold: r.ID(), Units: 20}}
			l.Holds(t.Context(), calls)
		}
		_ = r.Settle(t.Context(), 7)
	}
	if _, err := l.Charge(t.Context(), "k", budget, 5); err != nil {
		t.Fatal(err)
	}
	_, _ = l.Allow(t.Context(), "k", budget) // which is charged at once
	_, _ = l.Allow(t.Context(), "k", flight) // which holds nothing
	failed := stint.Limiter{Store: struct{ stint.Store }{new(stint.Memory)}, ObserveHold: c.ObserveHold}
	failed.Holds(t.Context(), []stint.HoldCall{{Key: "k", Limit: budget, Hold: stint.NewHoldID(), Units: 1}, {Key: "", Limit: budget}})
	compare(t, scraped(t, c), map[string]float64{
		"requests_total{store,allowed}":     4,
		"decisions_total{budget,allowed}":   3,
		"decisions_total{flight,allowed}":   3,
		"held_units_total{budget}":          40,
		"held_units_total{flight}":          2,
		"units_total{budget}":               7 + 5 + 1,
		"settlements_total{budget,settled}": 2, // one by the operator
		"settlements_total{budget,unknown}": 1,
		"settlements_total{budget,failed}":  1,
		"settlements_total{flight,settled}": 2,
	})
}

// Layers of package fleet and the Store lie around each other in any order.
func TestStoreIsAWrapper(t *testing.T) {
	limittest.Wrapper(t, promlimit.New(promlimit.Options{}).Store)
}
