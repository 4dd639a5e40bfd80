package watch

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// carrier is the headers of a request for package propagation. Several lines of one name are
// one list, so that several traceparents are invalid, and several lines of tracestate go on.
type carrier struct{ http.Header }

func (c carrier) Get(name string) string { return strings.Join(c.Values(name), ",") }

func (c carrier) Keys() []string { return nil } // for baggage, which Stint does not read

// callerOf is the span that a request names as its caller; invalid: it names none.
func callerOf(r *http.Request) trace.SpanContext {
	if r.Header["Traceparent"] == nil {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier{r.Header}))
}

// Pass makes the span of ctx the caller that h names. If ctx has no span, h stays as it is.
func (t *Tracing) Pass(ctx context.Context, h http.Header) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	delete(h, "Traceparent")
	delete(h, "Tracestate")
	propagation.TraceContext{}.Inject(ctx, carrier{h})
}

// Requests makes a span for each request, named after next's listener or endpoint. If believed is nil or
// returns true, the span continues the trace that the request names; else it begins a trace, with a link.
func (t *Tracing) Requests(name string, believed func(*http.Request) bool, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := t.startRequest(name, believed, r)
		r = r.WithContext(ctx)
		if !span.IsRecording() {
			next.ServeHTTP(w, r)
			return
		}
		tw := &tracedWriter{ResponseWriter: w}
		returned := false
		defer func() {
			t.endRequest(span, r, tw, returned)
		}()
		next.ServeHTTP(tw, r)
		returned = true
	})
}

func (t *Tracing) startRequest(name string, believed func(*http.Request) bool, r *http.Request) (context.Context, trace.Span) {
	ctx := r.Context()
	if trace.SpanContextFromContext(ctx).IsValid() { // of the program around Server.Wrap
		return t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindInternal))
	}
	caller := callerOf(r)
	switch {
	case !caller.IsValid():
		return t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	case t.all || believed == nil || believed(r):
		return t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, caller), name, trace.WithSpanKind(trace.SpanKindServer))
	default:
		link := trace.Link{SpanContext: caller.WithTraceState(trace.TraceState{})}
		return t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithLinks(link))
	}
}

// endRequest ends the span of a request. returned: its handler did not panic.
func (t *Tracing) endRequest(span trace.Span, r *http.Request, w *tracedWriter, returned bool) {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	span.SetAttributes(
		attribute.String("http.request.method", methodName(r.Method)),
		attribute.String("url.path", Shown(path)),
		attribute.String("server.address", Shown(r.Host)),
		attribute.String("network.protocol.version", strings.TrimPrefix(r.Proto, "HTTP/")),
	)
	if t.Route != nil {
		if route := t.Route(r); route != "" {
			span.SetAttributes(attribute.String("http.route", route))
		}
	}
	status := w.status
	if returned && status == 0 { // net/http writes it now
		status = http.StatusOK
	}
	if status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if !returned || status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// StartUpstream starts the span of a request to the upstream at host, and returns nil if there is none.
func (t *Tracing) StartUpstream(ctx context.Context, host string, r *http.Request) (context.Context, trace.Span) {
	ctx, span := t.start(ctx, "upstream", trace.SpanKindClient)
	if span != nil {
		span.SetAttributes(
			attribute.String("http.request.method", methodName(r.Method)),
			attribute.String("server.address", host),
		)
	}
	return ctx, span
}

// Answered adds the status of an upstream's response to its span.
func (t *Tracing) Answered(r *http.Response) {
	if t == nil {
		return
	}
	span := trace.SpanFromContext(r.Request.Context())
	span.SetAttributes(attribute.Int("http.response.status_code", r.StatusCode))
	if r.StatusCode >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
}

// Failed records in the span of a request to an upstream that there was no response.
func (t *Tracing) Failed(ctx context.Context) {
	if t != nil {
		trace.SpanFromContext(ctx).SetStatus(codes.Error, "")
	}
}

// methodName is a method as an attribute. Clients can invent methods.
func methodName(method string) string {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY":
		return method
	}
	return "_OTHER"
}

// tracedWriter keeps the final status of a response. It has the optional methods that handlers
// of programs look for (Server.Wrap).
type tracedWriter struct {
	http.ResponseWriter
	status int // 0: none yet
}

// WriteHeader implements http.ResponseWriter.
func (w *tracedWriter) WriteHeader(status int) {
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher.
func (w *tracedWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Hijack implements http.Hijacker.
func (w *tracedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap is for http.ResponseController.
func (w *tracedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
