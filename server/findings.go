package server

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint/server/rules"
)

// Findings returns settings and rules that are valid but probably not meant: those found at the start, in the
// rules in force, and while these have been in force.
func (s *Server) Findings() []rules.Finding {
	controls := s.control.Findings()
	set := s.watch.Current()
	var beside []rules.Finding
	if s.found != nil {
		beside = s.found()
	}
	if f, near := s.store.HoldsFinding(); near {
		beside = append(slices.Clone(beside), f)
	}
	return slices.Concat(beside, s.settings.Findings(set.Set.Set), set.Findings, set.Found(), s.files.lists.Findings(), controls)
}

// findingsCollector collects the number of open findings of each code at each scrape.
type findingsCollector func() []rules.Finding

var findingsOpen = prometheus.NewDesc("stint_findings", "Open findings, by code.", []string{"code"}, nil)

// Describe is for prometheus.Collector.
func (findingsCollector) Describe(to chan<- *prometheus.Desc) { to <- findingsOpen }

// Collect is for prometheus.Collector.
func (current findingsCollector) Collect(to chan<- prometheus.Metric) {
	open := map[string]int{}
	for _, f := range current() {
		open[f.Code]++
	}
	for _, code := range rules.Codes() {
		to <- prometheus.MustNewConstMetric(findingsOpen, prometheus.GaugeValue, float64(open[code]), code)
	}
}
