package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/stintdev/stint/internal/limittext"
	"github.com/stintdev/stint/internal/schema"
	"github.com/stintdev/stint/internal/yamlnode"
)

// Envoy is the section envoy of the settings: Envoy's rate limit service, its rate limit quota service
// and its external authorization, by gRPC. DefaultEnvoy has the defaults; the zero Envoy has no listeners.
type Envoy struct {
	EnvoySource
	// Listen is the address for gRPC, or unix: and the path of a socket. Empty: there is none.
	Listen string
	// MaxConnectionAge and its grace end connections of gRPC, so that callers spread over
	// instances. 0: connections do not end by age, or calls in flight have any time.
	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	// HTTPListen is the address of /json and /healthcheck, and DebugListen the address of /rlconfig, /stats
	// and profiles. Off or empty: none.
	HTTPListen, DebugListen string
	// Stats says where statistics go.
	Stats EnvoyStats
	// TLS is for Listen; nil: there is none.
	TLS *TLSFiles
	// ClientName is a name that callers' certificates must have. Empty: any.
	ClientName string
	// Each decides each descriptor of a call by itself. Otherwise a call takes all or nothing.
	Each bool
	// Shadow turns every refusal of a call into OK. QuotaMode gives all rules quota_mode.
	Shadow, QuotaMode bool
	// ResponseHeaders adds headers about the limit to responses, and DynamicMetadata a description
	// of the call.
	ResponseHeaders, DynamicMetadata bool
	// HeaderNames are the names of those headers.
	HeaderNames EnvoyHeaders
	// QuotaShares says how streams of the quota service share a limit: demand or equal.
	QuotaShares string
	// QuotaTTL is how long an assignment of the quota service lasts, in whole seconds.
	QuotaTTL time.Duration
	// Health has further conditions of health checks.
	Health EnvoyHealth
	// SharedCounters counts in the keys of envoyproxy/ratelimit; nil: in Stint's.
	SharedCounters *EnvoyCounters
}

// EnvoyHeaders are the names of headers of responses: the limit, the units remaining, and the seconds
// until the reset.
type EnvoyHeaders struct{ Limit, Remaining, Reset string }

// EnvoyHealth has conditions that make the service unhealthy.
type EnvoyHealth struct {
	// NeedsDescriptors: the service is unhealthy until there are descriptors of a domain. NeedsStore: it is
	// unhealthy while the store does not decide.
	NeedsDescriptors, NeedsStore bool
}

// EnvoyCounters are the keys of envoyproxy/ratelimit in a Redis.
type EnvoyCounters struct {
	// KeyPrefix is before each key. It may be empty.
	KeyPrefix string
	// ExpiryJitter is how much longer than its window a key lives at most.
	ExpiryJitter time.Duration
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
	rows := append(e.EnvoySource.rows(r), schema.Rows{
		{Name: "listen", Value: schema.Parsed(r, &e.Listen, ParseEnvoyListen, grpc).Expanding(r), Default: "127.0.0.1:8081", Example: `"unix:/run/stint.sock"`, Flag: "envoy-listen",
			Says: "Address of Envoy's rate limit service, or unix: and a socket's path."},
		{Name: "max_connection_age", Value: schema.Duration(r, "max_connection_age", &e.MaxConnectionAge, 0, schema.Endless), Default: "24h",
			Says: "How old a gRPC connection may get before its caller must open another, so that callers spread over instances. 0s: any age."},
		{Name: "max_connection_age_grace", Value: schema.Duration(r, "max_connection_age_grace", &e.MaxConnectionAgeGrace, 0, schema.Endless), Default: "1h",
			Says: "How long calls in flight may then take. 0s: no limit."},
		{Name: "http_listen", Value: schema.Parsed(r, &e.HTTPListen, parseListenOrOff, addressOrOff).Expanding(r), Default: Off, Example: `":8088"`,
			Says: "Address of /json and /healthcheck; off: none."},
		{Name: "debug_listen", Value: schema.Parsed(r, &e.DebugListen, parseListenOrOff, addressOrOff).Expanding(r), Default: Off, Example: "127.0.0.1:6070",
			Says: "Address of /rlconfig, /stats and profiles; off: none."},
	}...)
	rows = append(rows, e.Stats.rows(r)...)
	return append(rows, schema.Rows{
		{Name: "tls", Value: readTLS(r, &e.TLS), Example: "{cert: /etc/stint/tls.crt, key: /etc/stint/tls.key}", See: "access.md#tls",
			Says: "The certificate of listen; without it, connections are unencrypted."},
		{Name: "client_name", Value: schema.Text(r, &e.ClientName, "name"), Example: "envoy.internal", Needs: []string{"tls.client_ca"},
			Says: "A name that callers' certificates must have."},
		{Name: "each", Value: schema.Bool(r, &e.Each), Default: "false", Flag: "envoy-each", See: "envoy.md#how-a-call-is-decided",
			Says: "Decides each descriptor of a call by itself; otherwise a call takes all or nothing."},
		{Name: "shadow", Value: schema.Bool(r, &e.Shadow), Default: "false",
			Says: "Turns every refusal of a call into OK."},
		{Name: "quota_mode", Value: schema.Bool(r, &e.QuotaMode), Default: "false", See: "envoy-reference.md#calls-and-answers",
			Says: "Puts all descriptors in quota_mode: they refuse a call only if all are over their limits."},
		{Name: "response_headers", Value: schema.Bool(r, &e.ResponseHeaders), Default: "false", See: "envoy-reference.md#calls-and-answers",
			Says: "Adds headers about the limit to responses."},
		{Name: "header_names", Value: e.HeaderNames.value(r), See: "envoy-reference.md#calls-and-answers",
			Says: "The names of those headers."},
		{Name: "dynamic_metadata", Value: schema.Bool(r, &e.DynamicMetadata), Default: "false", See: "envoy-reference.md#calls-and-answers",
			Says: "Adds a description of the call to responses."},
		{Name: "quota_shares", Value: schema.Parsed(r, &e.QuotaShares, parseShares, schema.Words("demand", "equal")), Default: "demand", See: "envoy-quota.md",
			Says: "How quota streams share a limit: by demand, or equally."},
		{Name: "quota_ttl", Value: schema.Duration(r, "quota_ttl", &e.QuotaTTL, 4*time.Second, hour), Default: "20s", See: "envoy-quota.md",
			Says: "Lifetime of a quota assignment, in whole seconds."},
		{Name: "health", Value: e.Health.value(r), See: "envoy-reference.md#calls-and-answers",
			Says: "Further conditions of health checks."},
		{Name: "shared_counters", Value: readCounters(r, &e.SharedCounters), Example: "{key_prefix: team_a_}", See: "envoy-reference.md#counts-that-old-and-new-instances-share",
			Says: "Counts in envoyproxy/ratelimit's keys, so that its instances and Stint's share limits; {}: the defaults. Needs a store in Redis."},
	}...)
}

func (h *EnvoyHeaders) value(r *yamlnode.Reader) schema.Value {
	name := schema.Scalar("header", "^[^ ]+$")
	return schema.Section(r, schema.Rows{
		{Name: "limit", Value: schema.Parsed(r, &h.Limit, parseHeaderName, name), Default: "RateLimit-Limit", Example: "X-Limit", Says: "The header with the limit."},
		{Name: "remaining", Value: schema.Parsed(r, &h.Remaining, parseHeaderName, name), Default: "RateLimit-Remaining", Example: "X-Remaining", Says: "The header with the units remaining."},
		{Name: "reset", Value: schema.Parsed(r, &h.Reset, parseHeaderName, name), Default: "RateLimit-Reset", Example: "X-Reset", Says: "The header with the seconds until the reset."},
	}, nil)
}

func (h *EnvoyHealth) value(r *yamlnode.Reader) schema.Value {
	return schema.Section(r, schema.Rows{
		{Name: "needs_descriptors", Value: schema.Bool(r, &h.NeedsDescriptors), Default: "false", Says: "Unhealthy while there are no descriptors."},
		{Name: "needs_store", Value: schema.Bool(r, &h.NeedsStore), Default: "false", Says: "Unhealthy while the store does not decide."},
	}, nil)
}

func readCounters(r *yamlnode.Reader, to **EnvoyCounters) schema.Value {
	return schema.Optional(r, to, func(c *EnvoyCounters) schema.Rows {
		return schema.Rows{
			{Name: "key_prefix", Value: schema.Text(r, &c.KeyPrefix, "text"), Example: "team_a_", Says: "Prefix of each key, like CACHE_KEY_PREFIX of envoyproxy/ratelimit."},
			{Name: "expiry_jitter", Value: schema.Duration(r, "expiry_jitter", &c.ExpiryJitter, 0, schema.Endless), Default: "5m",
				Says: "How much longer than its window a key may live."},
		}
	}, nil)
}

func readEnvoy(r *yamlnode.Reader, to **Envoy) schema.Value {
	return schema.Optional(r, to, func(e *Envoy) schema.Rows { return e.rows(r) }, func(e *Envoy, _ *yamlnode.Node, fields map[string]*yamlnode.Node) {
		if e.Stats.Statsd != "" && e.Stats.DogStatsd != "" {
			r.Report(fields["dogstatsd"], "dogstatsd: there is statsd already; want one of them")
		}
		if e.ClientName != "" && !e.TLS.AsksForCertificate() {
			r.Report(fields["client_name"], "client_name needs tls with client_ca: otherwise no caller shows a certificate")
		}
		if e.Directory != "" && e.XDS != nil {
			r.Report(fields["xds"], "xds: there is directory already; want one of them")
		}
		if e.QuotaTTL%time.Second != 0 {
			r.Report(fields["quota_ttl"], "quota_ttl %s: want whole seconds", e.QuotaTTL)
		}
	})
}

// checkStores reports settings that need a Redis store, if there is none.
func (s *Settings) checkStores(r *yamlnode.Reader, fields map[string]*yamlnode.Node) {
	if s.Store != "memory" {
		return
	}
	if s.PerSecondStore != "" {
		r.Report(fields["per_second_store"], "per_second_store needs a store in Redis: counts are kept in memory")
	}
	if s.Envoy != nil && s.Envoy.SharedCounters != nil {
		r.Report(yamlnode.Field(fields["envoy"], "shared_counters"), "shared_counters needs a store in Redis: counts are kept in memory")
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

// parseHeaderName reads the name of a header of a response.
func parseHeaderName(text string) (string, error) {
	if !isHeaderName(text) {
		return "", fmt.Errorf("%.60q is not the name of a header", text)
	}
	return text, nil
}
