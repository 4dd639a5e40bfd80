package otellimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/otellimit"
)

func TestObserver(t *testing.T) { synctest.Test(t, testObserver) } // the clock stands still

func testObserver(t *testing.T) {
	r := record(sdk.AlwaysSample())
	r.options.Key = func(key string) string { return "<" + key + ">" }
	observer, err := otellimit.New(r.options)
	if err != nil {
		t.Fatal(err)
	}
	l := &stint.Limiter{Observe: observer.Observe}
	unnamed := stint.MustLimit("1 per 1h")
	penalty, err := stint.NewPenalty(stint.PenaltySpec{Name: "p", BanAfter: 2, BanFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	got := r.during(func(ctx context.Context) {
		_, _ = l.Allow(ctx, "ann", login)
		_, _ = l.AllowN(ctx, "ann\xff"+strings.Repeat("x", 300), unnamed, 2)
		for range 3 {
			_, _ = l.Take(ctx, &stint.Request{Asks: []stint.Ask{{Key: "bob", Limit: unnamed, Penalty: penalty}}}, nil)
		}
		_, _ = l.Peek(ctx, "ann", login)
		_, _ = l.Allow(ctx, "", login) // malformed
		_, _ = l.Take(ctx, &stint.Request{Asks: []stint.Ask{{Key: "ann", Limit: login}}, At: time.Unix(1, 0)}, nil)
		_, _ = (&stint.Limiter{Store: broken{errors.New("ann is secret")}, Observe: observer.Observe}).Allow(ctx, "ann", login)
	})
	want := []string{
		"stint.decision outcome=allowed by=store limit=login remaining=1 key=<ann>",
		"stint.decision outcome=limited by=store limit=1 per 1h remaining=1 retry_after=-1 key=<ann\uFFFD" + strings.Repeat("x", 256-len("<ann\xff")),
		"stint.decision outcome=allowed by=store limit=1 per 1h remaining=0 key=<bob>",
		"stint.decision outcome=limited by=store limit=1 per 1h remaining=0 retry_after=3600 violations=1 key=<bob>",
		"stint.decision outcome=banned by=store limit=1 per 1h remaining=0 retry_after=3600 violations=2 key=<bob>",
		"stint.decision outcome=undecided error.type=error",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	counts := r.counts(t, "stint.decisions")
	for series, want := range map[string]int64{
		"stint.by=store,stint.limit=login,stint.outcome=allowed": 1, "stint.by=store,stint.limit=1 per 1h,stint.outcome=limited": 2, "stint.outcome=undecided": 1,
	} {
		if counts[series] != want {
			t.Errorf("%s: %d of %v", series, counts[series], counts)
		}
	}
}

// However many limits there are, the metric has a bounded number of series.
func TestManyLimits(t *testing.T) {
	r := record(sdk.NeverSample())
	observer, err := otellimit.New(r.options)
	if err != nil {
		t.Fatal(err)
	}
	l := &stint.Limiter{Observe: observer.Observe}
	const more = 50
	for i := range otellimit.MaxLimits + more {
		_, _ = l.Allow(t.Context(), "k", stint.MustLimit(fmt.Sprintf("l%d: 1 per 1h", i)))
	}
	counts := r.counts(t, "stint.decisions")
	if other := counts["stint.by=store,stint.limit=other,stint.outcome=allowed"]; len(counts) != otellimit.MaxLimits+1 || other != more {
		t.Errorf("%d series, %d others", len(counts), other)
	}
}

// A decision that no span records costs no allocation to observe.
func TestObserverAllocates(t *testing.T) {
	observer, err := otellimit.New(otellimit.Options{TracerProvider: sdk.NewTracerProvider(), MeterProvider: noop.NewMeterProvider()})
	if err != nil {
		t.Fatal(err)
	}
	r := &stint.Request{Asks: []stint.Ask{{Key: "ann", Limit: login}}}
	a := &stint.Answer{Decision: stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: login, Key: "ann"}}
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { observer.Observe(ctx, r, a) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	for name, sampler := range map[string]sdk.Sampler{"no span": nil, "span": sdk.AlwaysSample()} {
		b.Run(name, func(b *testing.B) {
			rec := record(sdk.AlwaysSample())
			observer, _ := otellimit.New(rec.options)
			ctx := context.Background()
			if sampler != nil {
				ctx, _ = sdk.NewTracerProvider(sdk.WithSampler(sampler)).Tracer("").Start(ctx, "x")
			}
			r := &stint.Request{Asks: []stint.Ask{{Key: "ann", Limit: login}}}
			a := &stint.Answer{Decision: stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: login, Key: "ann"}}
			b.ReportAllocs()
			for b.Loop() {
				observer.Observe(ctx, r, a)
			}
		})
	}
}

// Holds that end are counted, and are events of the span that ends them.
func TestObserveHold(t *testing.T) {
	r := record(sdk.AlwaysSample())
	observer, err := otellimit.New(r.options)
	if err != nil {
		t.Fatal(err)
	}
	l := &stint.Limiter{Observe: observer.Observe, ObserveHold: observer.ObserveHold}
	budget := stint.MustLimit("budget: 100 per 1h fixed_window hold")
	got := r.during(func(ctx context.Context) {
		call := stint.HoldCall{Key: "ann", Limit: budget, Hold: stint.NewHoldID(), Units: 20, Cost: 7}
		_, _ = l.Take(ctx, &stint.Request{Asks: []stint.Ask{{Key: "ann", Limit: budget, Cost: 20}}, Hold: call.Hold}, nil)
		l.Holds(ctx, []stint.HoldCall{call, call})
		_, _ = l.Charge(ctx, "ann", budget, 3)
		(&stint.Limiter{Store: broken{errors.New("ann is secret")}, ObserveHold: observer.ObserveHold}).Holds(ctx, []stint.HoldCall{call})
	})
	want := []string{
		"stint.decision outcome=allowed by=store limit=budget remaining=80",
		"stint.settlement limit=budget result=settled cost=7 charged=7",
		"stint.settlement limit=budget result=unknown cost=7 charged=0",
		"stint.settlement limit=budget result=charged cost=3 charged=3",
		"stint.settlement limit=budget result=failed cost=7 charged=0 error.type=error",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	counts := r.counts(t, "stint.settlements")
	for _, result := range []string{"settled", "unknown", "failed"} {
		if counts["stint.limit=budget,stint.result="+result] != 1 || len(counts) != 3 {
			t.Errorf("%s: %v", result, counts)
		}
	}
}
