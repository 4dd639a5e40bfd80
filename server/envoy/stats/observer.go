package stats

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
)

const (
	histogramKind = "histogram"
	summaryKind   = "summary"
)

func hasTimes(kind string) bool { return kind == histogramKind || kind == summaryKind }

// observer returns the observer for the times of a statistic, in ms multiplied by scale. nil: Prometheus does
// not show them.
func (p *exposition) observer(name string) (o prometheus.Observer, scale float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.mapping(name, mapper.MetricTypeObserver)
	if m == nil {
		return nil, 0
	}
	kind := summaryKind // also by default, as in statsd_exporter
	if m.ObserverType == mapper.ObserverTypeHistogram {
		kind = histogramKind
	}
	s := p.seriesOf(m, kind)
	if s == nil {
		return nil, 0
	}
	if s.times == nil {
		labels := prometheus.Labels{}
		for _, l := range m.labels {
			labels[l.GetName()] = l.GetValue()
		}
		help := p.families[m.name].help
		if kind == histogramKind {
			s.times = prometheus.NewHistogram(p.histogram(m, help, labels))
		} else {
			s.times = prometheus.NewSummary(p.summary(m, help, labels))
		}
	}
	s.of++
	return s.times.(prometheus.Observer), m.scale
}

func (p *exposition) histogram(m *mapping, help string, labels prometheus.Labels) prometheus.HistogramOpts {
	d := &p.mapper.Defaults.HistogramOptions
	o := prometheus.HistogramOpts{
		Name: m.name, Help: help, ConstLabels: labels, Buckets: d.Buckets,
		NativeHistogramBucketFactor: d.NativeHistogramBucketFactor, NativeHistogramMaxBucketNumber: d.NativeHistogramMaxBuckets,
	}
	if own := m.HistogramOptions; own != nil {
		if len(own.Buckets) > 0 {
			o.Buckets = own.Buckets
		}
		if own.NativeHistogramBucketFactor > 0 {
			o.NativeHistogramBucketFactor = own.NativeHistogramBucketFactor
		}
		if own.NativeHistogramMaxBuckets > 0 {
			o.NativeHistogramMaxBucketNumber = own.NativeHistogramMaxBuckets
		}
	}
	return o
}

func (p *exposition) summary(m *mapping, help string, labels prometheus.Labels) prometheus.SummaryOpts {
	from := p.mapper.Defaults.SummaryOptions
	if own := m.SummaryOptions; own != nil {
		quantiles := from.Quantiles
		if from = *own; len(own.Quantiles) == 0 {
			from.Quantiles = quantiles
		}
	}
	objectives := map[float64]float64{}
	for _, q := range from.Quantiles {
		objectives[q.Quantile] = q.Error
	}
	return prometheus.SummaryOpts{
		Name: m.name, Help: help, ConstLabels: labels,
		Objectives: objectives, MaxAge: from.MaxAge, AgeBuckets: from.AgeBuckets, BufCap: from.BufCap,
	}
}
