// Package otellimit makes OpenTelemetry spans and metrics of decisions and of calls of a Store. It
// imports only the API of OpenTelemetry: the program chooses the SDK and the exporter.
//
//	observer, err := otellimit.New(otellimit.Options{})
//	...
//	limiter := stint.NewLimiter(otellimit.Store(store, otellimit.Options{}))
//	limiter.Observe = observer.Observe
//	limiter.ObserveHold = observer.ObserveHold
//
// Under the layers of package fleet, a span is a call that was made, not an answer that the layers
// remembered:
//
//	store := fleet.New(otellimit.Store(shared, otellimit.Options{}), fleet.Options{})
//
// There are three metrics:
//
//   - stint.decisions, a counter: requests decided, by stint.limit, stint.outcome and
//     stint.by
//   - stint.settlements, a counter: holds that ended, by stint.limit and stint.result
//   - stint.store.duration, a histogram of seconds: calls of the Store, by
//     stint.operation and error.type. The operation is take or take_batch, and call where
//     a Store around package fleet has it of the layers
//
// No metric has a key. Spans have keys only if Options.Key returns them.
package otellimit

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint"
)

// Options are the options of a Store and of an Observer. The zero Options are valid.
type Options struct {
	// TracerProvider makes the spans. nil: otel.GetTracerProvider.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics. nil: otel.GetMeterProvider.
	MeterProvider metric.MeterProvider
	// Key returns what a span shows of a key, such as a hash of it. It must not block.
	// nil: spans show no keys.
	Key func(key string) string
}

const scope = "github.com/stintdev/stint/otellimit"

func (o *Options) tracer() trace.Tracer {
	if o.TracerProvider == nil {
		return otel.GetTracerProvider().Tracer(scope)
	}
	return o.TracerProvider.Tracer(scope)
}

func (o *Options) meter() metric.Meter {
	if o.MeterProvider == nil {
		return otel.GetMeterProvider().Meter(scope)
	}
	return o.MeterProvider.Meter(scope)
}

// The attributes of spans and metrics.
const (
	limitKey      = attribute.Key("stint.limit")
	outcomeKey    = attribute.Key("stint.outcome")
	byKey         = attribute.Key("stint.by")
	keyKey        = attribute.Key("stint.key")
	remainingKey  = attribute.Key("stint.remaining")
	retryAfterKey = attribute.Key("stint.retry_after")
	violationsKey = attribute.Key("stint.violations")
	resultKey     = attribute.Key("stint.result")
	costKey       = attribute.Key("stint.cost")
	chargedKey    = attribute.Key("stint.charged")
	operationKey  = attribute.Key("stint.operation")
	requestsKey   = attribute.Key("stint.requests")
	asksKey       = attribute.Key("stint.asks")
	keysKey       = attribute.Key("stint.keys")
	refusedKey    = attribute.Key("stint.refused")
	mergedKey     = attribute.Key("stint.merged_requests")
	errorKey      = attribute.Key("error.type")
)

// errorType is the class of an error. Its text is left out, since it may contain a key.
func errorType(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, stint.ErrRequest):
		return "malformed"
	case errors.Is(err, stint.ErrFull):
		return "full"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return "error"
}

// text returns s as the value of an attribute: its first 256 bytes, in which bytes that are
// not UTF-8 are U+FFFD. Otherwise an exporter may drop all spans that it sends with this one.
func text(s string) string {
	const most = 256
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
