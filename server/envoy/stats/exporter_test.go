package stats

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/event"
	"github.com/prometheus/statsd_exporter/pkg/exporter"
	"github.com/prometheus/statsd_exporter/pkg/mapper"

	"github.com/stintdev/stint/server/config"
)

// gathered is what g has under names of envoyproxy/ratelimit, without Go's runtime.
func gathered(t testing.TB, g prometheus.Gatherer) map[string]string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "ratelimit") || strings.HasPrefix(f.GetName(), "ratelimit_go_") {
			continue
		}
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += fmt.Sprintf(" %s=%q", l.GetName(), l.GetValue())
			}
			all[name] = fmt.Sprintf("%s %g", f.GetType(), m.GetCounter().GetValue())
		}
	}
	return all
}

// The exporter that envoyproxy/ratelimit sends its counters to makes the same of them.
func TestExpositionIsThatOfTheExporter(t *testing.T) {
	s := newStats(t, config.EnvoyStats{PrometheusListen: ":9090"})
	ours := prometheus.NewRegistry()
	ours.MustRegister(collector{s})

	theirs := prometheus.NewRegistry()
	m := &mapper.MetricMapper{Registerer: theirs}
	if err := m.InitFromYAMLString(defaultMapping); err != nil {
		t.Fatal(err)
	}
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name}, labels)
	}
	count := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "count"}, []string{"type"})
	exp := exporter.NewExporter(theirs, m, slog.New(slog.DiscardHandler), counter("actions", "action"),
		prometheus.NewCounter(prometheus.CounterOpts{Name: "unmapped"}), counter("errors", "reason"), counter("events", "type"), counter("conflicts", "type", "name"), count)
	events := make(chan event.Events)
	ended := make(chan struct{})
	go func() {
		exp.Listen(events)
		close(ended)
	}()
	send := func(name string, n uint64) {
		if n > 0 {
			events <- event.Events{&event.CounterEvent{CMetricName: name, CValue: float64(n), CLabels: map[string]string{}}}
		}
	}

	random := rand.New(rand.NewPCG(5, 6))
	parts := []string{"a", "b_c", "192.0.2.7", "x y", "é", "--", "*", "a:b", "", "over_limit", "9"}
	for range 2000 {
		name := []string{"shop", "other.domain"}[random.IntN(2)]
		for range random.IntN(5) {
			name += "." + parts[random.IntN(len(parts))]
		}
		var h hits
		for i := range h {
			h[i] = random.Uint64N(3)
			send("ratelimit.service.rate_limit."+clean(name)+"."+ruleKinds[i], h[i])
		}
		s.rules.add(name, random.IntN(2) == 0, &h)
		if random.IntN(50) == 0 {
			gathered(t, ours)
		}
	}
	s.Failed(true)
	send("ratelimit.service.call.should_rate_limit.redis_error", 1)
	close(events)
	<-ended
	got, want := gathered(t, ours), gathered(t, theirs)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s: %q, want %q", name, got[name], want[name])
		}
	}
	if len(got) != len(want) || len(want) < 100 {
		t.Errorf("%d series, want %d", len(got), len(want))
	}
}
