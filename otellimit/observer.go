package otellimit

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint"
)

// MaxLimits is how many names of limits the metric stint.decisions has. Further limits have the
// name "other". Otherwise a program that names limits after its users would make a series for each.
const MaxLimits = 1000

// Observer observes the decisions of Limiters. New makes it. It may be used from many
// goroutines at once.
type Observer struct {
	key       func(string) string // nil: spans show no keys
	decisions metric.Int64Counter
	ended     metric.Int64Counter

	known atomic.Pointer[known]
	mu    sync.Mutex // to replace known
}

// series are the attributes of a count. The zero limit stands for none.
type series struct {
	limit   string
	outcome stint.Outcome
	by      stint.Source
	result  string // of a hold; "": it is a decision
}

// New returns an Observer. It returns an error if the MeterProvider does.
func New(o Options) (*Observer, error) {
	decisions, err := o.meter().Int64Counter("stint.decisions", metric.WithUnit("{request}"),
		metric.WithDescription("Requests decided, by the limit that decided and the outcome."))
	if err != nil {
		return nil, fmt.Errorf("otellimit: %w", err)
	}
	ended, err := o.meter().Int64Counter("stint.settlements", metric.WithUnit("{hold}"),
		metric.WithDescription("Holds that ended, by limit and result."))
	if err != nil {
		return nil, fmt.Errorf("otellimit: %w", err)
	}
	observer := &Observer{key: o.Key, decisions: decisions, ended: ended}
	observer.known.Store(&known{map[series][]metric.AddOption{}, map[string]struct{}{}})
	return observer, nil
}

// Observe counts the answer to a request, and adds it as the event "stint.decision" to the
// span of ctx, if that is recorded. It is meant for Limiter.Observe. It does not keep r and a.
//
// The event has stint.outcome, stint.by, and, if they apply, stint.limit, stint.remaining,
// stint.retry_after (in seconds; -1: no wait would help), stint.violations and stint.key. Requests
// with an instant, which are simulations, and those that only peek are not observed.
func (o *Observer) Observe(ctx context.Context, r *stint.Request, a *stint.Answer) {
	if !r.At.IsZero() || peeks(r) {
		return
	}
	s := series{outcome: a.Outcome, by: a.By}
	if a.Err != nil {
		s = series{}
	} else if a.Limit != nil {
		s.limit = nameOf(a.Limit)
	}
	o.decisions.Add(ctx, 1, o.options(s)...)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("stint.decision", trace.WithAttributes(o.attributes(s, a)...))
	}
}

// ObserveHold counts a hold that ended, and adds it as the event "stint.settlement" to the span of
// ctx, if that is recorded. It is meant for Limiter.ObserveHold. It does not keep c.
//
// The event has stint.limit, stint.cost, stint.charged and stint.result: "settled"; "unknown", if
// the Store had no such hold any more; "failed", if it did not answer; or "charged", if there was
// no hold. The metric does not count charges without a hold.
func (o *Observer) ObserveHold(ctx context.Context, c *stint.HoldCall) {
	if c.Limit == nil {
		return
	}
	s := series{limit: nameOf(c.Limit), result: "settled"}
	switch {
	case c.Err != nil:
		s.result = "failed"
	case c.Action == stint.HoldCharge:
		s.result = "charged"
	case !c.Found:
		s.result = "unknown"
	}
	if c.Action != stint.HoldCharge {
		o.ended.Add(ctx, 1, o.options(s)...)
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		as := append(s.attributes(), costKey.Int64(c.Cost), chargedKey.Int64(c.Charged))
		if c.Err != nil {
			as = append(as, errorKey.String(errorType(c.Err)))
		}
		if o.key != nil {
			as = append(as, keyKey.String(text(o.key(c.Key))))
		}
		span.AddEvent("stint.settlement", trace.WithAttributes(as...))
	}
}

// nameOf is the name of a limit, or its terms if it has none.
func nameOf(l *stint.Limit) string {
	if name := l.Spec().Name; name != "" {
		return name
	}
	return l.Terms()
}

// peeks reports whether r has only peeks.
func peeks(r *stint.Request) bool {
	for i := range r.Asks {
		if !r.Asks[i].Peek {
			return false
		}
	}
	return true
}

// known are the series so far, with their options. They are made once, because making them
// takes many times as long as to count. It does not change.
type known struct {
	options map[series][]metric.AddOption
	limits  map[string]struct{}
}

// find returns the options of a series, under the name in the metric; nil: it is new.
func (k *known) find(s *series) []metric.AddOption {
	if as, ok := k.options[*s]; ok {
		return as
	}
	if _, ok := k.limits[s.limit]; !ok && len(k.limits) >= MaxLimits {
		s.limit = "other"
	}
	return k.options[*s]
}

func (o *Observer) options(s series) []metric.AddOption {
	if as := o.known.Load().find(&s); as != nil {
		return as
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.known.Load()
	if as := before.find(&s); as != nil {
		return as
	}
	after := &known{maps.Clone(before.options), maps.Clone(before.limits)}
	after.limits[s.limit] = struct{}{}
	as := []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(s.attributes()...))}
	after.options[s] = as
	o.known.Store(after)
	return as
}

func (s series) attributes() []attribute.KeyValue {
	if s.result != "" {
		return []attribute.KeyValue{limitKey.String(text(s.limit)), resultKey.String(s.result)}
	}
	as := []attribute.KeyValue{outcomeKey.String(s.outcome.String())}
	if s.outcome != 0 {
		as = append(as, byKey.String(s.by.String()))
	}
	if s.limit != "" {
		as = append(as, limitKey.String(text(s.limit)))
	}
	return as
}

func (o *Observer) attributes(s series, a *stint.Answer) []attribute.KeyValue {
	as := s.attributes()
	if a.Err != nil {
		return append(as, errorKey.String(errorType(a.Err)))
	}
	if a.Limit != nil {
		as = append(as, remainingKey.Int64(a.Remaining))
	}
	if !a.Allowed {
		as = append(as, retryAfterKey.Float64(seconds(a.RetryAfter)))
	}
	if a.Violations > 0 {
		as = append(as, violationsKey.Int64(a.Violations))
	}
	if o.key != nil && a.Key != "" {
		as = append(as, keyKey.String(text(o.key(a.Key))))
	}
	return as
}

// seconds is a wait as the value of an attribute; -1: no wait would help.
func seconds(wait time.Duration) float64 {
	if wait == stint.Never {
		return -1
	}
	return wait.Seconds()
}
