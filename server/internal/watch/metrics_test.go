package watch

import (
	"context"
	"log/slog"
	"math"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/rules"
)

func installed(t testing.TB) (*Watch, *Served) {
	t.Helper()
	set, err := rules.Parse("rules.yaml", []byte(`
rules:
  - {name: login, key: '"x"', limits: [1 per 1m fixed_window, 9 per 1h], penalty: {warn_after: 2, ban_after: 3, ban_for: 10m}}
  - {name: try, key: '"x"', limits: [1 per 1m fixed_window], mode: shadow}
`))
	if err != nil {
		t.Fatal(err)
	}
	w := New(Options{Log: slog.New(slog.DiscardHandler)})
	w.Install(set)
	return w, w.Current()
}

// Counting a request costs no allocation, whatever became of it.
func TestMetricsAllocations(t *testing.T) {
	c, set := installed(t)
	ctx := context.Background()
	login, try := set.Rules[0], set.Rules[1]
	answer := stint.Answer{Each: []stint.Decision{{By: stint.ByLocal}}}
	e := event{decide.Event{Request: &decide.Request{Verdict: decide.Verdict{Kind: kind.Limited, Rule: login}}}, set}
	if n := testing.AllocsPerRun(100, func() {
		start := c.Metrics.Now()
		c.Metrics.Called(c.Metrics.Now()-start, nil)
		set.RefusedInShadow(try)
		set.counters.fellBack([]*rules.Rule{login}, &answer)
		e.Start = start
		c.Metrics.decided(ctx, e)
	}); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

// What metrics add to a decision: all that is counted of a request that the store
// is asked about.
func BenchmarkMetrics(b *testing.B) {
	c, set := installed(b)
	ctx := context.Background()
	e := event{decide.Event{Request: &decide.Request{Verdict: decide.Verdict{Kind: kind.Allowed, Rule: set.Rules[0]}}}, set}
	request := func() {
		start := c.Metrics.Now()
		c.Metrics.Called(c.Metrics.Now()-start, nil)
		e.Start = start
		c.Metrics.decided(ctx, e)
	}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			request()
		}
	})
	b.Run("from many", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				request()
			}
		})
	})
	b.Run("clock", func(b *testing.B) { // of it, the four readings
		for b.Loop() {
			if c.Metrics.Now()+c.Metrics.Now()+c.Metrics.Now()+c.Metrics.Now() == math.MaxInt64 {
				b.Fatal("it stands")
			}
		}
	})
}
