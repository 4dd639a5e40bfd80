package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/gateway"
	"github.com/stintdev/stint/server/internal/traces"
	"github.com/stintdev/stint/server/internal/watch"
)

// newTracing returns nil if no spans are made. The error is for Open: the environment is
// wrong.
func newTracing(s *Server, c *Config) (*watch.Tracing, error) {
	settings := s.settings.Traces
	var exporter *traces.Exporter
	provider := c.TracerProvider
	if provider == nil {
		if settings == nil {
			return nil, nil
		}
		_, version, _ := strings.Cut(c.Program, " ")
		sends := s.gateway.Transports.To(settings.TLS)
		e, err := traces.Open(traces.Options{
			Settings:  settings,
			Transport: sends,
			TLS:       sends.TLSConfig,
			Instance:  s.id,
			Version:   version,
			Sent:      func(n int) { s.watch.Metrics.SpansSent.Add(float64(n)) },
			Dropped:   func(n int) { s.watch.Metrics.SpansDropped.Add(float64(n)) },
			Failed: func(n int, why error) {
				s.watch.Metrics.SpansFailed.Add(float64(n))
				s.watch.Sampled.Failure("the collector has not taken spans", errors.New(watch.Shown(why.Error())))
			},
		})
		if err != nil {
			return nil, err
		}
		provider, exporter = e.Provider(), e
	}
	t := watch.NewTracing(provider, exporter, settings != nil && settings.Continue == config.ContinueAll, s.watch.Privacy)
	t.Route = gateway.RouteOf
	return t, nil
}

// CallTracer starts a span of a call that this Server decides for another service, and returns the context to
// decide it with. method is the gRPC service and method. If caller has the headers of a span, the new span
// continues its trace. end ends the span: code is the gRPC code, such as "OK".
type CallTracer func(ctx context.Context, method string, caller http.Header) (_ context.Context, end func(code string))

// CallTracer returns nil if no spans are made.
func (s *Server) CallTracer() CallTracer { return s.watch.Tracing.Calls() }
