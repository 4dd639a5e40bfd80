package server

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// CallTracer starts a span of a call that this Server decides for another service, and returns the
// context to decide it with. method is the service and method of gRPC. caller may have the headers
// of the span that called; it is continued. end ends the span: code is that of gRPC, such as "OK".
type CallTracer func(ctx context.Context, method string, caller http.Header) (_ context.Context, end func(code string))

// CallTracer returns nil if no spans are made.
func (s *Server) CallTracer() CallTracer {
	t := s.tracing
	if t == nil {
		return nil
	}
	return func(ctx context.Context, method string, caller http.Header) (context.Context, func(string)) {
		if c := callerOf(&http.Request{Header: caller}); c.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, c)
		}
		ctx, span := t.tracer.Start(ctx, "envoy", trace.WithSpanKind(trace.SpanKindServer))
		return ctx, func(code string) {
			span.SetAttributes(attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", shown(method)), attribute.String("rpc.response.status_code", code))
			if code == "UNAVAILABLE" || code == "INTERNAL" || code == "DEADLINE_EXCEEDED" || code == "UNKNOWN" {
				span.SetStatus(codes.Error, "")
			}
			span.End()
		}
	}
}
