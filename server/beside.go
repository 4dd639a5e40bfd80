package server

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Gatherer gathers the metrics of /metrics, for a listener that Run does not serve.
func (s *Server) Gatherer() prometheus.Gatherer { return s.metrics.registry }

// RegisterMetrics adds the metrics of a service beside s to those of /metrics. It panics if one of
// them is there already.
func (s *Server) RegisterMetrics(c prometheus.Collector) { s.metrics.registry.MustRegister(c) }

// Instances returns how many instances share the store, as last counted; at least 1. It never waits.
func (s *Server) Instances() int {
	if !s.fleet.IsLayered() {
		return 1
	}
	return max(1, int(s.fleet.Live()))
}
