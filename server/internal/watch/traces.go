package watch

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/otellimit"
	"github.com/stintdev/stint/server/internal/decide"
	"github.com/stintdev/stint/server/internal/kind"
	"github.com/stintdev/stint/server/internal/traces"
	"github.com/stintdev/stint/server/rules"
)

// Tracing makes the spans of a Server: of requests, of decisions, of calls of the store and of
// upstreams. docs/traces.md lists them with their attributes; a test compares. A nil Tracing
// makes none, at the cost of a comparison.
type Tracing struct {
	provider trace.TracerProvider
	tracer   trace.Tracer
	exporter *traces.Exporter // nil: the provider is the program's
	all      bool             // traces of all callers are continued
	privacy  *Privacy
	// Route is the route of a request; empty: it has none.
	Route func(*http.Request) string
}

// shownKey is how spans show a key, a client or a path.
func (t *Tracing) shownKey(key string) string { return Shown(t.privacy.ShownKey(key)) }

// NewTracing makes spans with provider. If exporter is not nil, it sends them. all means that the traces of
// all callers are continued.
func NewTracing(provider trace.TracerProvider, exporter *traces.Exporter, all bool, privacy *Privacy) *Tracing {
	return &Tracing{
		provider: provider, exporter: exporter, all: all, privacy: privacy,
		tracer: provider.Tracer("github.com/stintdev/stint/server"),
	}
}

// Reload reads the file with headers for the collector.
func (t *Tracing) Reload(asked bool) (changed bool, err error) {
	if t == nil || t.exporter == nil {
		return false, nil
	}
	return t.exporter.Reload(asked)
}

// Close sends the spans that wait.
func (t *Tracing) Close() {
	if t != nil && t.exporter != nil {
		t.exporter.Close()
	}
}

// Store returns a Limiter whose calls of a shared store have spans.
func (t *Tracing) Store(l *stint.Limiter) *stint.Limiter {
	if _, ok := stint.As[*stint.Memory](l.Store); ok || t == nil {
		return l
	}
	traced := otellimit.Store(l.Store, otellimit.Options{TracerProvider: t.provider, MeterProvider: noopmetric.NewMeterProvider()})
	return &stint.Limiter{Store: traced, Instance: l.Instance, Observe: l.Observe, ObserveHold: l.ObserveHold}
}

// Start starts a child of the span of ctx. It returns nil if there is no such span, or if it is not recorded.
func (t *Tracing) Start(ctx context.Context, name string) (context.Context, trace.Span) {
	return t.start(ctx, name, trace.SpanKindInternal)
}

// start is Start for a kind of span.
func (t *Tracing) start(ctx context.Context, name string, kind trace.SpanKind) (context.Context, trace.Span) {
	if t == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, nil
	}
	return t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
}

// Violated ends a span from Start, of a response that counted as a violation.
func (t *Tracing) Violated(span trace.Span, w *decide.Watching, d *stint.Decision, err error) {
	if span == nil {
		return
	}
	span.SetAttributes(attribute.String("stint.rule", w.Rule.Name), attribute.String("stint.key", t.shownKey(w.Ask.Key)))
	if err != nil {
		span.SetStatus(codes.Error, "")
	} else {
		span.SetAttributes(attribute.String("stint.outcome", d.Outcome.String()), attribute.Int64("stint.violations", d.Violations))
	}
	span.End()
}

// Decided ends a span from Start, of a call of decide. ctx has the request's span.
func (t *Tracing) Decided(ctx context.Context, span trace.Span, all []decide.Request) {
	if span == nil {
		return
	}
	defer span.End()
	if len(all) == 1 {
		e := &all[0]
		if e.Kind == kind.None { // a charge
			return
		}
		span.SetAttributes(t.attributes(e)...)
		whole := trace.SpanFromContext(ctx)
		whole.SetAttributes(attribute.String("stint.outcome", e.Kind.String()))
		if e.Rule != nil {
			whole.SetAttributes(attribute.String("stint.rule", e.Rule.Name))
		}
		if e.Kind == kind.Undecided || e.Kind == kind.Overloaded {
			span.SetStatus(codes.Error, "")
		}
		return
	}
	passed, shown := 0, 0
	for i := range all {
		e := &all[i]
		if e.Kind == kind.None { // a charge
			continue
		}
		if e.Err == nil && e.Allowed {
			passed++
			continue
		}
		if shown++; shown > mostEvents {
			continue
		}
		span.AddEvent("stint.decision", trace.WithAttributes(append(t.attributes(e), attribute.Int("stint.check", i))...))
	}
	span.SetAttributes(attribute.Int("stint.checks", len(all)), attribute.Int("stint.passed", passed))
}

// attributes describe a decision.
func (t *Tracing) attributes(e *decide.Request) []attribute.KeyValue {
	as := []attribute.KeyValue{attribute.String("stint.outcome", e.Kind.String())}
	add := func(a ...attribute.KeyValue) { as = append(as, a...) }
	if e.In != nil {
		if r := e.In.Request; r != nil {
			add(attribute.String("http.request.method", methodName(r.Method)), attribute.String("url.path", Shown(r.Path)))
		}
		if what := e.In.What(); what != "" {
			add(attribute.String("stint.operation", Shown(what)))
		}
		if client := e.In.Addr(); client.IsValid() {
			add(attribute.String("client.address", t.shownKey(client.String())))
		}
	}
	if e.Err != nil {
		return as
	}
	add(attribute.String("stint.decision.id", e.Identify()))
	if names := ruleNames(e.Rules); len(names) > 0 {
		add(attribute.StringSlice("stint.rules", names))
	}
	if e.Kind == kind.Blocked || e.Kind == kind.Safe {
		return as
	}
	if e.Rule != nil {
		add(attribute.String("stint.rule", e.Rule.Name))
	}
	if e.Key != "" {
		add(attribute.String("stint.key", t.shownKey(e.Key)), attribute.String("stint.by", e.By.String()))
	}
	if e.Limit != nil {
		add(attribute.String("stint.limit", e.Limit.Terms()), attribute.Int64("stint.remaining", e.Remaining))
	}
	if !e.Allowed {
		wait := e.RetryAfter.Seconds()
		if e.RetryAfter == stint.Never {
			wait = -1
		}
		add(attribute.Float64("stint.retry_after", wait))
	}
	if e.Violations > 0 {
		add(attribute.Int64("stint.violations", e.Violations))
	}
	return as
}

// mostEvents is how many refused checks of a list, the first ones, are in its span. A collector gets no more
// for a span: see package traces.
const mostEvents = 8

// mostRules is how many names of rules a span has.
const mostRules = 32

// ruleNames are the names of rules, each once.
func ruleNames(all []*rules.Rule) []string {
	var names []string
	for i, r := range all {
		if len(names) < mostRules && (i == 0 || r != all[i-1]) {
			names = append(names, r.Name)
		}
	}
	return names
}

// Calls returns what makes spans of calls for another service; see server.CallTracer. nil: no spans are made.
func (t *Tracing) Calls() func(ctx context.Context, method string, caller http.Header) (context.Context, func(code string)) {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, method string, caller http.Header) (context.Context, func(string)) {
		if c := callerOf(&http.Request{Header: caller}); c.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, c)
		}
		ctx, span := t.tracer.Start(ctx, "envoy", trace.WithSpanKind(trace.SpanKindServer))
		return ctx, func(code string) {
			span.SetAttributes(attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", Shown(method)), attribute.String("rpc.response.status_code", code))
			if code == "UNAVAILABLE" || code == "INTERNAL" || code == "DEADLINE_EXCEEDED" || code == "UNKNOWN" {
				span.SetStatus(codes.Error, "")
			}
			span.End()
		}
	}
}
