package otellimit

import (
	"context"
	"reflect"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint"
)

// Store returns a Store that passes Take and TakeBatch on to next. It makes a span of each
// call whose context has a span that is recorded, and measures all of them. Other operations
// go to next directly, through Unwrap.
//
// The metric has each call once, however often and at whatever layer Store was called with one
// MeterProvider. Around a store of package fleet, such as that of redislimit.Open, spans cover the
// time that callers wait, and the metric has the calls of its shared store for requests.
//
// The span "stint.store take" or "stint.store take_batch" has these attributes:
//
//   - stint.requests, how many requests the caller sent
//   - stint.asks and stint.keys, how many limits and how many different keys they ask about
//   - stint.merged_requests, how many requests went in the same call of the store, of all
//     callers, if next has a method TakeCounted as redislimit.Store has
//   - stint.outcome and stint.by of a single request; of several, stint.refused, how many were
//     refused
//   - error.type of a call that failed: timeout, canceled, full, malformed or error
//
// A *stint.Memory decides faster than a span is made, and behind this Store it decides more slowly:
// observe its decisions instead. If next is stint.Networked, so is the Store: its decisions without
// next have a span, too, with their stint.by.
func Store(next stint.Store, o Options) stint.Store {
	s := &store{next: next, tracer: o.tracer()}
	s.counted, _ = next.(counted)
	// If the instrument cannot be made, OpenTelemetry reports that and returns one that does
	// nothing.
	s.duration, _ = o.meter().Float64Histogram("stint.store.duration",
		metric.WithUnit("s"), metric.WithDescription("Time of a call of the store, including failed calls."),
		metric.WithExplicitBucketBoundaries(1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1))
	s.take, s.takeBatch = newOperation("take"), newOperation("take_batch")
	if s.meters = o.MeterProvider; !reflect.ValueOf(&s.meters).Elem().Comparable() {
		s.meters = new(byte) // equal to no other
	}
	if isMeasured(next, s.meters) {
		s.spansOnly = true
	} else if f, ok := stint.As[watchable](next); ok {
		s.spansOnly = true
		call := newOperation("call")
		f.WatchCalls(watcher{s.meters}, func(took time.Duration, err error) { s.record(context.Background(), &call, took, err) })
	}
	if n, ok := next.(stint.Networked); ok {
		return &networked{s, sync.OnceValue(func() stint.Store { return Store(n.WithFallback(), o) })}
	}
	return s
}

// watchable is a fleet.Fallback. A watcher watches it for a MeterProvider.
type (
	watchable interface {
		WatchCalls(by any, called func(took time.Duration, err error))
	}
	watcher struct{ of any }
)

// isMeasured reports whether calls of s are measured for a MeterProvider.
func isMeasured(s stint.Store, by any) bool {
	m, ok := stint.As[interface {
		measuredBy(any) bool
	}](s)
	return ok && m.measuredBy(by)
}

func (s *store) measuredBy(by any) bool {
	return s.meters == by || isMeasured(s.next, by)
}

// counted is a Store that returns how many requests went in the call that decided this one; 0: not
// known.
type counted interface {
	TakeCounted(ctx context.Context, r *stint.Request, out []stint.Decision) (d stint.Decision, requests int, err error)
}

type store struct {
	next            stint.Store
	counted         counted // nil: next is not one
	tracer          trace.Tracer
	duration        metric.Float64Histogram
	take, takeBatch operation
	meters          any  // the MeterProvider, to compare
	spansOnly       bool // the calls are measured elsewhere
}

// networked is a store whose next is Networked.
type networked struct {
	*store
	withFallback func() stint.Store
}

// WithFallback implements stint.Networked.
func (n *networked) WithFallback() stint.Store { return n.withFallback() }

// operation is an operation's name and its attributes in the metric.
type operation struct {
	span   string
	good   []metric.RecordOption
	failed map[string][]metric.RecordOption // by error.type
}

func newOperation(name string) operation {
	of := func(more ...attribute.KeyValue) []metric.RecordOption {
		all := append([]attribute.KeyValue{operationKey.String(name)}, more...)
		return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(all...))}
	}
	o := operation{span: "stint.store " + name, good: of(), failed: map[string][]metric.RecordOption{}}
	for _, kind := range [...]string{"malformed", "full", "canceled", "timeout", "error"} {
		o.failed[kind] = of(errorKey.String(kind))
	}
	return o
}

// Unwrap returns the Store that decides.
func (s *store) Unwrap() stint.Store { return s.next }

// KeepsDeadline implements fleet.DeadlineKeeper.
func (s *store) KeepsDeadline() bool {
	k, ok := s.next.(interface{ KeepsDeadline() bool })
	return ok && k.KeepsDeadline()
}

// Take implements stint.Store.
func (s *store) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (d stint.Decision, err error) {
	ctx, span := s.start(ctx, &s.take)
	start, merged := time.Now(), 0
	if span != nil && s.counted != nil {
		d, merged, err = s.counted.TakeCounted(ctx, r, out)
	} else {
		d, err = s.next.Take(ctx, r, out)
	}
	s.measure(ctx, &s.take, start, err)
	if span == nil {
		return d, err
	}
	keys := distinct{}
	keys.add(r.Asks)
	span.SetAttributes(requestsKey.Int(1), asksKey.Int(len(r.Asks)), keysKey.Int(len(keys)))
	if merged > 0 {
		span.SetAttributes(mergedKey.Int(merged))
	}
	if err == nil {
		span.SetAttributes(outcomeKey.String(d.Outcome.String()), byKey.String(d.By.String()))
	}
	end(span, err)
	return d, err
}

// TakeBatch implements stint.BatchTaker.
func (s *store) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	ctx, span := s.start(ctx, &s.takeBatch)
	start := time.Now()
	stint.TakeBatch(ctx, s.next, rs, answers)
	refused := 0
	var err error // the first error
	for i := range rs {
		switch a := &answers[i]; {
		case a.Err != nil && err == nil:
			err = a.Err
		case a.Err == nil && !a.Allowed:
			refused++
		}
	}
	s.measure(ctx, &s.takeBatch, start, err)
	if span == nil {
		return
	}
	asks, keys := 0, distinct{}
	for i := range rs {
		asks += len(rs[i].Asks)
		keys.add(rs[i].Asks)
	}
	span.SetAttributes(requestsKey.Int(len(rs)), asksKey.Int(asks), keysKey.Int(len(keys)), refusedKey.Int(refused))
	end(span, err)
}

// start starts a span if ctx has one that is recorded. Otherwise calls in the background, and calls
// for requests that are not sampled, would become separate traces.
func (s *store) start(ctx context.Context, o *operation) (context.Context, trace.Span) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, nil
	}
	return s.tracer.Start(ctx, o.span, trace.WithSpanKind(trace.SpanKindClient))
}

func (s *store) measure(ctx context.Context, o *operation, start time.Time, err error) {
	if !s.spansOnly {
		s.record(ctx, o, time.Since(start), err)
	}
}

func (s *store) record(ctx context.Context, o *operation, took time.Duration, err error) {
	if !s.duration.Enabled(ctx) {
		return
	}
	as := o.good
	if err != nil {
		as = o.failed[errorType(err)]
	}
	s.duration.Record(ctx, took.Seconds(), as...)
}

func end(span trace.Span, err error) {
	if err != nil {
		kind := errorType(err)
		span.SetAttributes(errorKey.String(kind))
		span.SetStatus(codes.Error, kind)
	}
	span.End()
}

// distinct is a set of keys.
type distinct map[string]struct{}

func (d distinct) add(asks []stint.Ask) {
	for i := range asks {
		d[asks[i].Key] = struct{}{}
	}
}
