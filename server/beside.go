package server

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Gatherer gathers the metrics of /metrics, for a listener that Run does not serve.
func (s *Server) Gatherer() prometheus.Gatherer { return s.metrics.registry }

// Instances returns how many instances share the store, as last counted; at least 1. It never waits.
func (s *Server) Instances() int {
	if !s.fleet.IsLayered() {
		return 1
	}
	return max(1, int(s.fleet.Live()))
}
