package otellimit_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/otellimit"
)

// A program counts what its limits decide. Without Options, otel's global providers are used.
func Example() {
	ctx := context.Background()
	reader := metric.NewManualReader() // in place of an exporter
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	observer, err := otellimit.New(otellimit.Options{MeterProvider: provider})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter := stint.Limiter{Observe: observer.Observe, ObserveHold: observer.ObserveHold}
	_, _ = limiter.Allow(ctx, "ann", stint.MustLimit("login: 5 per 1m"))

	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		fmt.Println(m.Name, m.Description)
	}
	// Output: stint.decisions Requests decided, by the limit that decided and the outcome.
}
