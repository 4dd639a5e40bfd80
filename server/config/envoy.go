package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/stintdev/stint/internal/limittext"
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
	return &Envoy{Listen: "127.0.0.1:8081", HTTPListen: Off, DebugListen: Off, PrometheusListen: Off, QuotaShares: "demand"}
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

func readEnvoy(r *yamlnode.Reader, to **Envoy) func(*yamlnode.Node) {
	return func(n *yamlnode.Node) {
		e := DefaultEnvoy()
		fields := r.Mapping(n, yamlnode.Fields{
			"directory":         r.Text(&e.Directory),
			"merge_domains":     r.Bool(&e.MergeDomains),
			"listen":            yamlnode.Parsed(r, &e.Listen, ParseEnvoyListen),
			"http_listen":       yamlnode.Parsed(r, &e.HTTPListen, parseListenOrOff),
			"debug_listen":      yamlnode.Parsed(r, &e.DebugListen, parseListenOrOff),
			"prometheus_listen": yamlnode.Parsed(r, &e.PrometheusListen, parseListenOrOff),
			"statsd":            yamlnode.Parsed(r, &e.Statsd, parseStatsd),
			"dogstatsd":         yamlnode.Parsed(r, &e.DogStatsd, parseStatsd),
			"tls":               readTLS(r, &e.TLS),
			"client_name":       r.Text(&e.ClientName),
			"each":              r.Bool(&e.Each),
			"shadow":            r.Bool(&e.Shadow),
			"response_headers":  r.Bool(&e.ResponseHeaders),
			"dynamic_metadata":  r.Bool(&e.DynamicMetadata),
			"quota_shares":      yamlnode.Parsed(r, &e.QuotaShares, parseShares),
		})
		if fields == nil {
			return
		}
		*to = e
		if e.Statsd != "" && e.DogStatsd != "" {
			r.Report(fields["dogstatsd"], "dogstatsd: there is statsd already; want one of them")
		}
		if e.ClientName != "" && !e.TLS.AsksForCertificate() {
			r.Report(fields["client_name"], "client_name needs tls with client_ca: otherwise no caller shows a certificate")
		}
	}
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
