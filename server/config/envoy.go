package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
)

// Envoy is the section envoy of the settings: Envoy's rate limit service, its rate limit quota service
// and its external authorization, by gRPC. DefaultEnvoy has what a file leaves out.
type Envoy struct {
	// Directory has the files of descriptors, of Envoy's form. Empty: there are none, so that
	// only external authorization has rules.
	Directory string
	// MergeDomains lets several of these files have one domain.
	MergeDomains bool
	// Listen is the address for gRPC, or unix: and the path of a socket.
	Listen string
	// HTTPListen is the address of /json and /healthcheck, DebugListen that of /rlconfig, /stats
	// and profiles, and PrometheusListen that of metrics with the names of envoyproxy/ratelimit. Off:
	// none.
	HTTPListen, DebugListen, PrometheusListen string
	// Statsd is the host:port of a statsd, which gets statistics over TCP, and DogStatsd that of an
	// agent of Datadog, over UDP. At most one is set. Empty: neither gets any.
	Statsd, DogStatsd string
	// TLS is for Listen; nil: there is none.
	TLS *TLSFiles
	// ClientName is a name that the certificates of callers must have. Empty: any.
	ClientName string
	// Each decides each descriptor of a call by itself. Otherwise a call takes all or nothing.
	Each bool
	// Shadow turns every refusal of a call into OK.
	Shadow bool
	// ResponseHeaders adds headers about the limit to responses, and DynamicMetadata a description
	// of the call.
	ResponseHeaders, DynamicMetadata bool
	// QuotaShares says how streams of the quota service share a limit: demand or equal.
	QuotaShares string
}

// DefaultEnvoy returns the section of a file that sets nothing in it.
func DefaultEnvoy() *Envoy {
	return schema.New(func(e *Envoy) schema.Rows { return e.rows(yamlnode.Values("the settings by default")) })
}

// Address is the network and the address of Listen.
func (e *Envoy) Address() (network, address string) {
	if path, ok := strings.CutPrefix(e.Listen, "unix:"); ok {
		return "unix", path
	}
	return "tcp", e.Listen
}

// ParseEnvoyListen reads an address for Envoy.Listen.
func ParseEnvoyListen(text string) (string, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path == "" {
			return "", errors.New("unix: the path of a socket is missing")
		}
		return text, nil
	}
	if _, err := parseListen(text); err != nil {
		return "", fmt.Errorf("%w, or unix:PATH", err)
	}
	return text, nil
}

func (e *Envoy) rows(r *yamlnode.Reader) schema.Rows {
	grpc := address.OrElse(schema.Scalar("unix: and the path of a socket", "^unix:."))
	hostPort := schema.Scalar("host:port", `^[^:]+:[0-9]+$|^\[[^\]]+\]:[0-9]+$`)
	return schema.Rows{
		{Name: "directory", Value: schema.Text(r, &e.Directory, "directory"), Example: "/etc/ratelimit/config", Flag: "envoy", Reread: true, See: "envoy.md#descriptors",
			Says: "Directory of files of descriptors, of Envoy's form, by which Envoy's rate limit service is answered. Without it, only external authorization has rules."},
		{Name: "merge_domains", Value: schema.Bool(r, &e.MergeDomains), Default: "false", See: "envoy.md#descriptors",
			Says: "Lets several of these files have one domain."},
		{Name: "listen", Value: schema.Parsed(r, &e.Listen, ParseEnvoyListen, grpc).Expanding(r), Default: "127.0.0.1:8081", Example: `"unix:/run/stint.sock"`, Flag: "envoy-listen",
			Says: "Address of Envoy's rate limit service, or unix: and the path of a socket."},
		{Name: "http_listen", Value: schema.Parsed(r, &e.HTTPListen, parseListenOrOff, addressOrOff).Expanding(r), Default: Off, Example: `":8088"`,
			Says: "Address of /json and /healthcheck; off: none."},
		{Name: "debug_listen", Value: schema.Parsed(r, &e.DebugListen, parseListenOrOff, addressOrOff).Expanding(r), Default: Off, Example: "127.0.0.1:6070",
			Says: "Address of /rlconfig, /stats and profiles; off: none."},
		{Name: "prometheus_listen", Value: schema.Parsed(r, &e.PrometheusListen, parseListenOrOff, addressOrOff).Expanding(r), Default: Off, Example: `":9102"`, See: "envoy-reference.md#statistics",
			Says: "Address of metrics with the names of envoyproxy/ratelimit; off: none."},
		{Name: "statsd", Value: schema.Parsed(r, &e.Statsd, parseStatsd, hostPort).Expanding(r), Example: "localhost:8125", See: "envoy-reference.md#statistics",
			Says: "Where a statsd gets the statistics over TCP. Without it, none does."},
		{Name: "dogstatsd", Value: schema.Parsed(r, &e.DogStatsd, parseStatsd, hostPort).Expanding(r), Example: "localhost:8125", See: "envoy-reference.md#statistics",
			Says: "Where an agent of Datadog gets the statistics over UDP. Without it, none does."},
		{Name: "tls", Value: readTLS(r, &e.TLS), Example: "{cert: /etc/stint/tls.crt, key: /etc/stint/tls.key}", See: "operations.md#tls",
			Says: "The certificate of listen. Without it, Envoy is answered in clear text."},
		{Name: "client_name", Value: schema.Text(r, &e.ClientName, "name"), Example: "envoy.internal",
			Says: "A name that the certificates of callers must have. Without it, any will do."},
		{Name: "each", Value: schema.Bool(r, &e.Each), Default: "false", Flag: "envoy-each", See: "envoy.md#how-a-call-is-decided",
			Says: "Decides each descriptor of a call by itself. Otherwise a call takes all or nothing."},
		{Name: "shadow", Value: schema.Bool(r, &e.Shadow), Default: "false",
			Says: "Turns every refusal of a call into OK."},
		{Name: "response_headers", Value: schema.Bool(r, &e.ResponseHeaders), Default: "false", See: "envoy-reference.md#calls-and-answers",
			Says: "Adds headers about the limit to responses."},
		{Name: "dynamic_metadata", Value: schema.Bool(r, &e.DynamicMetadata), Default: "false", See: "envoy-reference.md#calls-and-answers",
			Says: "Adds a description of the call to responses."},
		{Name: "quota_shares", Value: schema.Parsed(r, &e.QuotaShares, parseShares, schema.Words("demand", "equal")), Default: "demand", See: "envoy-quota.md",
			Says: "How streams of the quota service share a limit: by what each asks for, or equally."},
	}
}

func readEnvoy(r *yamlnode.Reader, to **Envoy) schema.Value {
	return schema.Optional(r, to, func(e *Envoy) schema.Rows { return e.rows(r) }, func(e *Envoy, _ *yamlnode.Node, fields map[string]*yamlnode.Node) {
		if e.Statsd != "" && e.DogStatsd != "" {
			r.Report(fields["dogstatsd"], "dogstatsd: there is statsd already; want one of them")
		}
		if e.ClientName != "" && !e.TLS.AsksForCertificate() {
			r.Report(fields["client_name"], "client_name needs tls with client_ca: otherwise no caller shows a certificate")
		}
	})
}

func parseStatsd(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || portErr != nil || n == 0 {
		return "", fmt.Errorf("address %q: want host:port", limittext.Clip(text))
	}
	return text, nil
}

func parseShares(text string) (string, error) {
	if text != "demand" && text != "equal" {
		return "", fmt.Errorf("quota_shares %.60q: want demand or equal", text)
	}
	return text, nil
}
