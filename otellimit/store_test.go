package otellimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/otellimit"
	"github.com/stintdev/stint/redislimit"
)

// recorder keeps spans and metrics.
type recorder struct {
	*tracetest.InMemoryExporter
	tracer  trace.Tracer
	metrics *sdkmetric.ManualReader
	options otellimit.Options
}

func record(sampler sdk.Sampler) *recorder {
	r := &recorder{InMemoryExporter: tracetest.NewInMemoryExporter(), metrics: sdkmetric.NewManualReader()}
	provider := sdk.NewTracerProvider(sdk.WithSyncer(r), sdk.WithSampler(sampler))
	r.tracer = provider.Tracer("test")
	r.options = otellimit.Options{TracerProvider: provider, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.metrics))}
	return r
}

// during runs f within a span, and returns the spans that f made, each as a line.
func (r *recorder) during(f func(ctx context.Context)) []string {
	r.Reset()
	ctx, span := r.tracer.Start(context.Background(), "whole")
	f(ctx)
	span.End()
	var lines []string
	for _, s := range r.GetSpans() {
		if s.Name == "whole" {
			for _, e := range s.Events {
				line := e.Name
				for _, a := range e.Attributes {
					line += fmt.Sprintf(" %s=%s", strings.TrimPrefix(string(a.Key), "stint."), a.Value.String())
				}
				lines = append(lines, line)
			}
			continue
		}
		line := s.Name
		for _, a := range s.Attributes {
			line += fmt.Sprintf(" %s=%s", strings.TrimPrefix(string(a.Key), "stint."), a.Value.String())
		}
		if s.Status.Code == codes.Error {
			line += " FAILED"
		}
		if s.Parent.SpanID() != span.SpanContext().SpanID() {
			line += " elsewhere"
		}
		lines = append(lines, line)
	}
	return lines
}

// counts are the points of a metric, by their attributes.
func (r *recorder) counts(t testing.TB, name string) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.metrics.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, sm := range all.ScopeMetrics {
		for _, m := range sm.Metrics {
			if m.Name != name {
				continue
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					counts[encode(p.Attributes)] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					counts[encode(p.Attributes)] += int64(p.Count)
				}
			}
		}
	}
	return counts
}

// It decides as the Store within does, and hides none of its optional interfaces.
func TestStoreKit(t *testing.T) {
	for name, sampler := range map[string]sdk.Sampler{"sampled": sdk.AlwaysSample(), "not sampled": sdk.NeverSample()} {
		t.Run(name, func(t *testing.T) {
			limittest.Kit{New: func(*testing.T) stint.Store { return otellimit.Store(new(stint.Memory), record(sampler).options) }, Steps: 5000}.Run(t)
		})
	}
}

// broken is a Store that fails.
type broken struct{ error }

func (b broken) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, b.error
}

var (
	login = stint.MustLimit("login: 2 per 1h")
	all   = stint.MustLimit("all: 100 per 1h")
)

func TestStoreSpans(t *testing.T) {
	r := record(sdk.AlwaysSample())
	l := stint.NewLimiter(otellimit.Store(new(stint.Memory), r.options))
	got := r.during(func(ctx context.Context) {
		_, _ = l.Allow(ctx, "ann", login)
		_, _ = l.Take(ctx, &stint.Request{Asks: []stint.Ask{{Key: "ann", Limit: login}, {Key: "ann", Limit: all}, {Key: "bob", Limit: all}}}, nil)
		_, _ = l.Allow(ctx, "ann", login)
		answers := make([]stint.Answer, 2)
		l.TakeBatch(ctx, []stint.Request{{Asks: []stint.Ask{{Key: "ann", Limit: login}}}, {Asks: []stint.Ask{{Key: "eve", Limit: login}}}}, answers)
		for _, err := range []error{errors.New("login of ann: no"), fmt.Errorf("x: %w", context.DeadlineExceeded), context.Canceled, stint.ErrFull} {
			_, _ = stint.NewLimiter(otellimit.Store(broken{err}, r.options)).Allow(ctx, "ann", login)
		}
	})
	want := []string{
		"stint.store take requests=1 asks=1 keys=1 outcome=allowed by=store",
		"stint.store take requests=1 asks=3 keys=2 outcome=allowed by=store",
		"stint.store take requests=1 asks=1 keys=1 outcome=limited by=store",
		"stint.store take_batch requests=2 asks=2 keys=2 refused=1",
		"stint.store take requests=1 asks=1 keys=1 error.type=error FAILED",
		"stint.store take requests=1 asks=1 keys=1 error.type=timeout FAILED",
		"stint.store take requests=1 asks=1 keys=1 error.type=canceled FAILED",
		"stint.store take requests=1 asks=1 keys=1 error.type=full FAILED",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	_, _ = l.Allow(context.Background(), "ann", login) // without a span: measured, and no span
	if n := len(r.GetSpans()); n != len(want)+1 {
		t.Errorf("%d spans", n)
	}
	counts := r.counts(t, "stint.store.duration")
	for series, want := range map[string]int64{"stint.operation=take": 4, "stint.operation=take_batch": 1, "error.type=timeout,stint.operation=take": 1, "error.type=error,stint.operation=take": 1} {
		if counts[series] != want {
			t.Errorf("%s: %d calls of %v", series, counts[series], counts)
		}
	}
}

// Requests that share a call of Redis say how many they were, also behind the layers of a
// fleet.
func TestMergedRequests(t *testing.T) {
	redis := redistest.Start(t)
	proxy := redistest.StartProxy(t, redis.Addr)
	store, err := redislimit.Connect(t.Context(), proxy.URL(), redislimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	r := record(sdk.AlwaysSample())
	layered := fleet.New(otellimit.Store(store, r.options), fleet.Options{Deadline: 10 * time.Second, MaxDenials: -1, MaxLeases: -1})
	t.Cleanup(layered.Close)
	l := stint.NewLimiter(layered)
	if _, err := l.Allow(t.Context(), "warm", all); err != nil {
		t.Fatal(err)
	}
	proxy.Set(redistest.Toxic{Latency: 50 * time.Millisecond})
	const callers = 20
	got := r.during(func(ctx context.Context) {
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				if _, err := l.Allow(ctx, fmt.Sprint("user", i), all); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
	sizes := map[int]int{}
	for _, line := range got {
		var n int
		_, rest, _ := strings.Cut(line, "merged_requests=")
		_, _ = fmt.Sscan(rest, &n)
		sizes[n]++
	}
	total, most := 0, 0
	for size, spans := range sizes {
		if size == 0 || spans%size != 0 {
			t.Errorf("%d spans say that their call had %d requests", spans, size)
		}
		total, most = total+spans, max(most, size)
	}
	if total != callers || most < 2 {
		t.Errorf("%v: %d spans, at most %d requests in a call", sizes, total, most)
	}
}

// encode shows attributes in the order of their names.
func encode(set attribute.Set) string {
	var all []string
	for _, a := range set.ToSlice() {
		all = append(all, string(a.Key)+"="+a.Value.String())
	}
	return strings.Join(all, ",")
}

// faraway is a Store over a network, which keeps deadlines.
type faraway struct {
	broken
	fallback stint.Memory
}

func (f *faraway) WithFallback() stint.Store { return &f.fallback }
func (*faraway) KeepsDeadline() bool         { return true }

// A Store over a network stays one: packages that put a fallback before it still do, and find
// that it keeps deadlines.
func TestStoreOfNetwork(t *testing.T) {
	r := record(sdk.AlwaysSample())
	s := otellimit.Store(&faraway{broken: broken{errors.New("away")}}, r.options)
	n, ok := s.(stint.Networked)
	if !ok || n.WithFallback() != n.WithFallback() {
		t.Fatal("it is not Networked, or makes a new fallback each time")
	}
	if k, ok := s.(fleet.DeadlineKeeper); !ok || !k.KeepsDeadline() {
		t.Error("it keeps no deadlines")
	}
	got := r.during(func(ctx context.Context) {
		if _, err := stint.NewLimiter(n.WithFallback()).Allow(ctx, "ann", login); err != nil {
			t.Error(err)
		}
	})
	if len(got) != 1 || !strings.HasPrefix(got[0], "stint.store take ") {
		t.Errorf("spans %q", got)
	}
	if k, ok := otellimit.Store(new(stint.Memory), r.options).(fleet.DeadlineKeeper); ok && k.KeepsDeadline() {
		t.Error("a Memory is said to keep deadlines")
	}
}

// Layers of package fleet and the Store lie around each other in any order.
func TestStoreIsAWrapper(t *testing.T) {
	limittest.Wrapper(t, func(s stint.Store) stint.Store { return otellimit.Store(s, otellimit.Options{}) })
}
