package server

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/friend"
	"github.com/stintdev/stint/server/rules"
)

// Findings returns settings and rules that are valid but probably not meant: those found at the start, in the
// rules in force, and while these have been in force.
func (s *Server) Findings() []rules.Finding {
	controls := s.control.Findings()
	set := s.set.Load()
	var beside []rules.Finding
	if s.found != nil {
		beside = s.found()
	}
	if f, near := s.holdsFinding(); near {
		beside = append(slices.Clone(beside), f)
	}
	return slices.Concat(beside, s.settings.Findings(set.Set.Set), set.Findings, set.Found(), controls)
}

// holdsFinding finds that this instance has little room left for its own holds. Holds in Redis take none of
// it.
func (s *Server) holdsFinding() (f rules.Finding, near bool) {
	m := s.local
	if !s.fleet.IsLayered() {
		if m, _ = stint.As[*stint.Memory](s.limiter.Store); m == nil {
			return f, false
		}
	}
	made, most := stint.Internal(friend.Of{}).RoomOfHolds(m)
	return rules.Finding{Code: rules.CodeManyHolds, Text: fmt.Sprintf("this instance has %d of at most %d holds in its own memory; beyond that, requests that hold get 503: "+
		"raise max_keys (this is a sixteenth of it), or shorten the holds of limits", made, most)}, made >= most-most/10
}

// noticeHolds logs that finding when it appears.
func (s *Server) noticeHolds() {
	f, near := s.holdsFinding()
	if was := s.manyHolds.Swap(near); near && !was {
		s.log.Warn(f.Text, "code", f.Code)
	}
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
