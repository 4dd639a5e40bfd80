package otellimit_test

import (
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/otellimit"
)

// uncomparable is a MeterProvider that cannot be compared, such as a wrapper with options.
type uncomparable struct {
	noop.MeterProvider
	_ []metric.MeterOption
}

// A Store can be measured twice for any MeterProvider.
func TestStoreOfAnyMeterProvider(t *testing.T) {
	for _, p := range []metric.MeterProvider{nil, noop.NewMeterProvider(), &uncomparable{}, uncomparable{}} {
		o := otellimit.Options{MeterProvider: p}
		s := otellimit.Store(otellimit.Store(new(stint.Memory), o), o)
		if _, err := stint.NewLimiter(s).Allow(t.Context(), "k", stint.MustLimit("1 per 1h")); err != nil {
			t.Errorf("%T: %v", p, err)
		}
	}
}
