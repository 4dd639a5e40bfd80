package server

import (
	"io"
	"net/http"
)

// Probes answers GET /healthz, /readyz and /metrics as Check does, to everybody: it is
// for an address that others reach than those who may use the check API. Nothing there
// spends or changes anything; the metrics tell the names of rules, and how much passes.
func (s *Server) Probes() http.Handler {
	mux := http.NewServeMux()
	s.addProbes(mux, func(h http.Handler) http.Handler { return h })
	return mux
}

// addProbes adds them to mux, with a guard before what tells more than whether it runs.
func (s *Server) addProbes(mux *http.ServeMux, guard func(http.Handler) http.Handler) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", guard(s.metrics.handler(s.errorLog)))
}
