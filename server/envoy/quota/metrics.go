package quota

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint/server/internal/kind"
)

// metrics counts the service's work. Each unit that was taken ahead ends as used, returned or lost, and is
// ahead until then.
type metrics struct {
	reports, uncovered                              prometheus.Counter
	taken, used, returned, lost                     prometheus.Counter
	assignedUnits, allowedAll, deniedAll, abandoned prometheus.Counter
	noStream, noBucket, malformed, undecided        prometheus.Counter
	ahead                                           atomic.Int64
	all                                             []prometheus.Collector
}

func newMetrics(buckets *table) *metrics {
	m := new(metrics)
	vector := func(name, help, label string) func(value string) prometheus.Counter {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		m.all = append(m.all, v)
		return func(value string) prometheus.Counter { return v.WithLabelValues(value) }
	}
	gauge := func(name, help string, value func() float64) {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	assignments := vector("stint_quota_assignments_total", "Assignments of the quota service that were sent to proxies.", "kind")
	m.assignedUnits, m.allowedAll, m.deniedAll, m.abandoned = assignments("units"), assignments("allow_all"), assignments("deny_all"), assignments("abandon")
	units := vector("stint_quota_units_total", "Units of limits for assignments of the quota service.", "state")
	m.taken, m.used, m.returned, m.lost, m.uncovered = units("taken"), units("used"), units("returned"), units("lost"), units("uncovered")
	failures := vector("stint_quota_errors_total", "What the quota service refused or could not do.", "reason")
	m.noStream, m.noBucket, m.malformed, m.undecided = failures("stream"), failures("bucket"), failures("report"), failures(kind.Undecided.String())
	m.reports = prometheus.NewCounter(prometheus.CounterOpts{Name: "stint_quota_reports_total", Help: "Reports of proxies about a bucket."})
	m.all = append(m.all, m.reports)
	gauge("stint_quota_streams", "Streams of the quota service that are open.", func() float64 {
		streams, _ := buckets.size()
		return float64(streams)
	})
	gauge("stint_quota_buckets", "Buckets of these streams, once for each stream.", func() float64 {
		_, n := buckets.size()
		return float64(n)
	})
	gauge("stint_quota_units_ahead", "Units that were taken for assignments and are neither used, returned nor lost.", func() float64 {
		return float64(m.ahead.Load())
	})
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(to)
	}
}

// take counts n units that were taken ahead.
func (m *metrics) take(n int64) {
	m.taken.Add(float64(n))
	m.ahead.Add(n)
}

// end counts the end of n units that were ahead.
func (m *metrics) end(as prometheus.Counter, n int64) {
	as.Add(float64(n))
	m.ahead.Add(-n)
}
