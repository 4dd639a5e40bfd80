// Package traces sends spans to a collector, by OTLP over HTTP or gRPC. Only this package imports
// the SDK of OpenTelemetry.
package traces

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/stintdev/stint/server/config"
)

// Options are the options of an Exporter. All must be given.
type Options struct {
	Settings *config.Traces
	// Transport sends the spans over HTTP, and TLS is for new connections over gRPC.
	Transport http.RoundTripper
	TLS       func() (*tls.Config, error)
	// Instance names this instance, and Version the program's version.
	Instance, Version string
	// Sent, Failed and Dropped are called with numbers of spans that the collector took, that it did not
	// take, and that had no room in the queue. They must not block. Failed may be called with 0, if the
	// collector took all spans and has a warning.
	Sent, Dropped func(spans int)
	Failed        func(spans int, why error)
}

const (
	// sendTimeout bounds one attempt to send spans, and retryTimeout all attempts for the same
	// spans.
	sendTimeout  = 5 * time.Second
	retryTimeout = 30 * time.Second
	// sendEvery is how long a span waits for others to be sent with it.
	sendEvery = 2 * time.Second
	// batchSize is how many spans are sent together at most.
	batchSize = 512
	// closeTimeout bounds how long Close waits for the collector.
	closeTimeout = 2 * time.Second
	// longestResponse bounds how much of a collector's response is read, in bytes.
	longestResponse = 256 << 10
	// longestValue bounds the text of an attribute, and most their number in a span.
	longestValue, most = 256, 64
	// mostEvents bounds the events of a span, and its links. If a Server makes more, the first
	// ones are lost.
	mostEvents = 8
)

// Exporter records spans and sends them from a goroutine of its own. Code that makes
// spans never waits for the collector. Close ends it.
type Exporter struct {
	provider *sdk.TracerProvider
	client   *otlptrace.Exporter
	headers  *headers
}

// Open returns an Exporter. It returns an error if the environment is wrong. Headers are not
// sent before the first Reload.
func Open(o Options) (*Exporter, error) {
	endpoint, err := endpoint(o.Settings)
	if err != nil {
		return nil, err
	}
	about, err := describe(&o)
	if err != nil {
		return nil, err
	}
	h := newHeaders(o.Settings.HeadersFile, o.Transport)
	var sends otlptrace.Client
	if o.Settings.Protocol == config.GRPC {
		sends = newGRPCClient(endpoint, h, o.TLS)
	} else {
		sends = newHTTPClient(endpoint, h)
	}
	client := otlptrace.NewUnstarted(sends)
	if err := client.Start(context.Background()); err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit, limits.AttributeCountLimit = longestValue, most
	limits.EventCountLimit, limits.AttributePerEventCountLimit, limits.LinkCountLimit = mostEvents, most, mostEvents
	return &Exporter{client: client, headers: h, provider: sdk.NewTracerProvider(
		sdk.WithResource(about),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.Settings.Sample))),
		sdk.WithRawSpanLimits(limits),
		sdk.WithSpanProcessor(newQueue(client, &o)),
	)}, nil
}

func newHTTPClient(endpoint string, h *headers) otlptrace.Client {
	return otlptracehttp.NewClient(
		otlptracehttp.WithEndpointURL(endpoint),
		otlptracehttp.WithMaxResponseSize(longestResponse),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: 10 * time.Second, MaxElapsedTime: retryTimeout}),
		otlptracehttp.WithHTTPClient(&http.Client{
			Transport: h,
			Timeout:   sendTimeout,
			// A redirect could send the headers elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
	)
}

// endpoint is the URL of the collector. The environment variables have OpenTelemetry's meaning: the path of
// the one for traces is used as it is, the other is a base.
func endpoint(s *config.Traces) (string, error) {
	if s.Endpoint != "" {
		return s.Endpoint, nil
	}
	const own, base = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
	text, name := os.Getenv(own), own
	if text == "" {
		name = base
		if text = os.Getenv(base); s.Protocol != config.GRPC {
			text = strings.TrimSuffix(cmp.Or(text, "http://localhost:4318"), "/") + "/v1/traces"
		}
		text = cmp.Or(text, "http://localhost:4317")
	}
	url, err := config.ParseCollector(text)
	if err != nil {
		return "", fmt.Errorf("traces: $%s: %w", name, err)
	}
	return url, nil
}

// describe returns the resource of all spans: this instance. Later options override earlier ones.
func describe(o *Options) (*resource.Resource, error) {
	if _, err := resource.New(context.Background(), resource.WithFromEnv()); err != nil {
		return nil, fmt.Errorf("traces: $OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	given := []attribute.KeyValue{attribute.String("service.instance.id", o.Instance)}
	if o.Version != "" {
		given = append(given, attribute.String("service.version", o.Version))
	}
	if name := o.Settings.Service; name != "" {
		given = append(given, attribute.String("service.name", name))
	}
	r, err := resource.New(context.Background(),
		resource.WithAttributes(attribute.String("service.name", "stint")),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv(),
		resource.WithAttributes(given...))
	if err != nil && !errors.Is(err, resource.ErrPartialResource) { // such as a machine without a name
		return nil, fmt.Errorf("traces: %w", err)
	}
	return r, nil
}

// Provider makes the spans.
func (e *Exporter) Provider() trace.TracerProvider { return e.provider }

// Reload reads the file with headers, if it has changed or asked is true. If it is wrong, the former headers
// stay, and the error names the file and has nothing of its content. It must not run concurrently.
func (e *Exporter) Reload(asked bool) (changed bool, err error) { return e.headers.reload(asked) }

// Close sends the waiting spans, for up to 2 seconds. Spans that end later are dropped.
func (e *Exporter) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if e.provider.Shutdown(ctx) != nil {
		_ = e.client.Shutdown(ctx) // ctx is over, which ends the current attempt
	}
}
