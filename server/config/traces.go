package config

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
)

// Traces says where spans are sent, by OTLP, and for which requests. The
// environment fills in empty fields; see docs/traces.md.
type Traces struct {
	// Endpoint is the URL of a collector, such as http://localhost:4318. Without a path, /v1/traces is added;
	// over gRPC, the path has no meaning. Empty: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, else
	// OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318, or over gRPC http://localhost:4317.
	Endpoint string
	// Protocol is HTTP or GRPC.
	Protocol string
	// Sample is the recorded share of the traces that begin here, from 0 to 1. A continued trace is recorded
	// if its caller records it.
	Sample float64
	// Continue says whose traces the gateway continues.
	Continue Continue
	// HeadersFile is a file with headers for the collector, such as its key: a line "Name:
	// value" for each. It is read again when it changes. Empty: OTEL_EXPORTER_OTLP_HEADERS.
	HeadersFile string
	// TLS is for an Endpoint of https. nil: the certificate of the collector is checked
	// against the system's authorities, and none is shown.
	TLS *UpstreamTLS
	// Service is the name of this service in traces. Empty: OTEL_SERVICE_NAME, else "stint".
	Service string
}

// Continue says which requests continue the trace that their headers name. The others begin
// one, which has a link to the named one.
type Continue uint8

const (
	// ContinueTrusted continues traces of trusted_proxies. Other callers could choose
	// which requests are recorded, and add spans to traces of others.
	ContinueTrusted Continue = iota
	// ContinueAll continues all traces.
	ContinueAll
)

// String returns the name in the configuration file.
func (c Continue) String() string {
	if c == ContinueAll {
		return "all"
	}
	return "trusted"
}

// The protocols of Traces.
const (
	HTTP = "http"
	GRPC = "grpc"
)

// MaxSpans is how many spans wait to be sent. Further ones are dropped.
const MaxSpans = 2048

// spanBytes is the size of a span of a list of checks, with the longest texts in all its attributes and
// events. A usual span takes a tenth (TestCollectorHangs).
const spanBytes = 16 << 10

func (t *Traces) rows(r *yamlnode.Reader) schema.Rows {
	return schema.Rows{
		{Name: "endpoint", Value: schema.Parsed(r, &t.Endpoint, ParseCollector, webURL).Expanding(r), Computed: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, else OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318, or 4317 over gRPC", Example: "http://localhost:4318",
			Says: "URL of a collector. The path is /v1/traces if it has none."},
		{Name: "protocol", Value: schema.Parsed(r, &t.Protocol, parseProtocol, schema.Words(HTTP, GRPC)), Default: HTTP,
			Says: "How spans are sent: OTLP over HTTP, or over gRPC."},
		// Low, so that traces cost little.
		{Name: "sample", Value: schema.Parsed(r, &t.Sample, parseSample, ratio), Default: "0.01", Example: "0.1", See: "traces.md#what-traces-cost",
			Says: "Share of new traces that is recorded. A continued trace is recorded if its caller records it."},
		{Name: "continue", Value: schema.Parsed(r, &t.Continue, parseContinue, schema.Words("trusted", "all")), Default: "trusted", See: "traces.md#whose-trace-a-request-continues",
			Says: "Whose traces the gateway continues: those of trusted_proxies, or all."},
		{Name: "headers_file", Value: schema.Text(r, &t.HeadersFile, "file"), Computed: "OTEL_EXPORTER_OTLP_HEADERS", Example: "/etc/stint/collector", Reread: true,
			Says: "File with headers for the collector, such as its key, one \"Name: value\" a line."},
		{Name: "tls", Value: readUpstreamTLS(r, &t.TLS), Example: "{ca: /etc/stint/collector.pem}",
			Says: "Certificates for an https endpoint."},
		{Name: "service", Value: schema.Text(r, &t.Service, "name"), Computed: "OTEL_SERVICE_NAME, else stint", Example: "stint-eu",
			Says: "This service's name in traces."},
	}
}

// readTraces is the section traces of the settings.
func readTraces(r *yamlnode.Reader, to **Traces) schema.Value {
	return schema.Optional(r, to, func(t *Traces) schema.Rows { return t.rows(r) }, func(t *Traces, _ *yamlnode.Node, fields map[string]*yamlnode.Node) {
		if u, err := url.Parse(t.Endpoint); t.TLS != nil && err == nil && u.Scheme != "https" {
			r.Report(fields["tls"], "tls is for an endpoint of https")
		}
	})
}

// ParseCollector reads the URL of a collector, and adds the path of the protocol if it has
// none.
func ParseCollector(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" { // text may contain a secret
		return "", errors.New("want the URL of a collector, such as http://localhost:4318")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

func parseProtocol(text string) (string, error) {
	if text != HTTP && text != GRPC {
		return "", fmt.Errorf("protocol %.60q: want http or grpc", text)
	}
	return text, nil
}

func parseSample(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 0 && f <= 1) { // not a number, either
		return 0, fmt.Errorf("sample %.60q: want a share from 0 to 1, such as 0.01", text)
	}
	return f, nil
}

func parseContinue(text string) (Continue, error) {
	switch text {
	case "trusted":
		return ContinueTrusted, nil
	case "all":
		return ContinueAll, nil
	}
	return 0, fmt.Errorf("continue %.60q: want trusted or all", text)
}

// HeadersInTheClear reports whether headers from HeadersFile, which may be secret, are sent to
// another machine unencrypted.
func (t *Traces) HeadersInTheClear() bool { return headersInTheClear(t.Endpoint, t.HeadersFile) }
