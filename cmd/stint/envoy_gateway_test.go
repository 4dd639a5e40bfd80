package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stintdev/stint/internal/pemfile"
	"github.com/stintdev/stint/internal/redistest"
)

// gatewayMapping has the form of the mapping that Envoy Gateway mounts.
const gatewayMapping = `mappings:
  - match: "ratelimit.service.rate_limit.*.*.over_limit"
    name: "ratelimit_service_rate_limit_over_limit"
    timer_type: "histogram"
    labels: {domain: "$1", key1: "$2"}
  - match: "ratelimit\\.service\\.rate_limit\\.([^\\.]*)\\.([^\\.]*)\\.([^\\.]*)(\\..*)?\\.over_limit"
    match_type: regex
    name: "ratelimit_service_rate_limit_over_limit"
    timer_type: "histogram"
    labels: {domain: "$1", key1: "$2", key2: "$3"}
  - match: "ratelimit_server.*.response_time"
    name: "ratelimit_service_response_time_seconds"
    timer_type: histogram
    labels: {grpc_method: "$1"}
`

// gateway is the part of Envoy Gateway that Stint meets: a management server with mutual TLS, and a
// container with the variables that Envoy Gateway sets.
type gateway struct {
	*answering
	configs cache.SnapshotCache
	version int
}

// startGateway starts stint envoy as Envoy Gateway does, with more variables.
func startGateway(t *testing.T, more ...string) *gateway {
	t.Helper()
	ca, cert, key := redistest.Certificate(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := pemfile.Certificates(text)
	if err != nil {
		t.Fatal(err)
	}
	secure := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pemfile.Pool(authority), RootCAs: pemfile.Pool(authority), ServerName: "localhost",
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{configs: cache.NewSnapshotCache(false, cache.IDHash{}, nil)}
	management := grpc.NewServer(grpc.Creds(credentials.NewTLS(secure)))
	discovery.RegisterAggregatedDiscoveryServiceServer(management, xds.NewServer(t.Context(), g.configs, xds.CallbackFuncs{}))
	go func() { _ = management.Serve(l) }()
	t.Cleanup(management.Stop)

	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	g.answering = asEnvoy(t, append([]string{
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW",
		"CONFIG_GRPC_XDS_SERVER_URL=localhost:" + port, "CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=" + cert, "GRPC_SERVER_TLS_KEY=" + key, "GRPC_SERVER_TLS_CA_CERT=" + ca,
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + cert, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + key,
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + ca, "FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:0", // a port of its own
	}, more...)...)
	conn, err := grpc.NewClient(g.grpc, grpc.WithTransportCredentials(credentials.NewTLS(secure)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	g.client = rls.NewRateLimitServiceClient(conn)
	return g
}

// push sends configurations, and waits until they are in force.
func (g *gateway) push(t *testing.T, all ...*ratelimit.RateLimitConfig) {
	t.Helper()
	var resources []types.Resource
	for _, one := range all {
		resources = append(resources, one)
	}
	g.version++
	snapshot, err := cache.NewSnapshot(fmt.Sprint(g.version), map[resource.Type][]types.Resource{resource.RateLimitConfigType: resources})
	if err == nil {
		err = g.configs.SetSnapshot(t.Context(), "envoy-ratelimit", snapshot)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.logged(t, "rules taken")
}

// chain is a descriptor for each key, or key=value, each below the one before, the last with a limit.
func chain(shadow bool, n uint32, keys ...string) *ratelimit.RateLimitDescriptor {
	key, value, _ := strings.Cut(keys[0], "=")
	d := &ratelimit.RateLimitDescriptor{Key: key, Value: value, ShadowMode: shadow}
	if len(keys) > 1 {
		d.Descriptors = []*ratelimit.RateLimitDescriptor{chain(shadow, n, keys[1:]...)}
	} else {
		d.RateLimit = &ratelimit.RateLimitPolicy{RequestsPerUnit: n, Unit: ratelimit.RateLimitUnit_DAY}
	}
	return d
}

const (
	gatewayDomain = "default/eg/http"
	gatewayRoute  = "httproute/default/shop/rule/0/match/0/shop_example_com"
)

// gatewayConfig is a domain of the form that Envoy Gateway makes of policies: a descriptor of the route,
// and below it one for each rule.
func gatewayConfig(domain, of string, list ...*ratelimit.RateLimitDescriptor) *ratelimit.RateLimitConfig {
	return &ratelimit.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{{Key: of, Value: of, Descriptors: list}}}
}

// TestEnvoyGateway runs stint envoy in the container of Envoy Gateway: its variables, its probes, its
// management server, and the resources that it makes of a BackendTrafficPolicy.
func TestEnvoyGateway(t *testing.T) {
	awayFromMidnight()
	traced := make(chan string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { traced <- r.URL.Path }))
	t.Cleanup(collector.Close)
	mapping := filepath.Join(t.TempDir(), "conf.yaml")
	if err := os.WriteFile(mapping, []byte(gatewayMapping), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t)
	ca, cert, key := redistest.Certificate(t)
	redis.SetTLS(t, ca, cert, key)
	_, port, err := net.SplitHostPort(redis.ListenTLS(t))
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t,
		"PROMETHEUS_MAPPER_YAML="+mapping,
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=localhost:"+port, "REDIS_TLS=true", "REDIS_TLS_CLIENT_CERT="+cert, "REDIS_TLS_CLIENT_KEY="+key,
		"SSL_CERT_FILE="+ca, // the authority of Redis is one of the image
		"TRACING_ENABLED=true", "TRACING_SERVICE_NAME=envoy-ratelimit", "TRACING_SERVICE_NAMESPACE=envoy-gateway-system",
		"TRACING_SERVICE_INSTANCE_ID=pod-1", "TRACING_SAMPLING_RATE=1.0", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL,
	)
	if want := "variables=GRPC_SERVER_TLS_CA_CERT,TRACING_SERVICE_INSTANCE_ID,TRACING_SERVICE_NAMESPACE\n"; !strings.Contains(g.log.String(), want) {
		t.Errorf("the log has no %q:\n%s", want, g.log)
	}
	// Envoy Gateway probes before there is a policy, and the pod must be ready then.
	if got := fetched(t, g.http+"/healthcheck", ""); got != "200 OK" {
		t.Errorf("/healthcheck without a configuration: %s", got)
	}
	if got := g.ask(t, gatewayDomain, gatewayRoute+"="+gatewayRoute); !strings.Contains(got, "code = Unavailable") {
		t.Errorf("without a configuration: %s", got)
	}
	const shared = "default/by-user"
	g.push(t,
		gatewayConfig(gatewayDomain, gatewayRoute,
			chain(false, 2, "rule-0-match-0"),
			chain(false, 1, "masked_remote_address=0.0.0.0/0", "remote_address"),
			chain(true, 1, "rule-2-match-0=rule-2-match-0", "rule-2-method=rule-2-method", "rule-2-path=rule-2-path"),
			chain(false, 0, "rule-3-match--1=rule-3-match--1")),
		gatewayConfig(shared, shared+"/rule/0", chain(false, 1, "rule-0-match-0")),
	)
	here := gatewayRoute + "=" + gatewayRoute
	for _, c := range []struct {
		want, domain string
		entries      []string
	}{
		{"OK 1", gatewayDomain, []string{here, "rule-0-match-0=ann"}},
		{"OK 0", gatewayDomain, []string{here, "rule-0-match-0=ann"}},
		{"OVER_LIMIT 0", gatewayDomain, []string{here, "rule-0-match-0=ann"}},
		{"OK 1", gatewayDomain, []string{here, "rule-0-match-0=bob"}},
		{"OK 0", gatewayDomain, []string{here, "masked_remote_address=0.0.0.0/0", "remote_address=192.0.2.1"}},
		{"OVER_LIMIT 0", gatewayDomain, []string{here, "masked_remote_address=0.0.0.0/0", "remote_address=192.0.2.1"}},
		{"OK 0", gatewayDomain, []string{here, "masked_remote_address=0.0.0.0/0", "remote_address=192.0.2.2"}},
		{"OK 0", gatewayDomain, []string{here, "rule-2-match-0=rule-2-match-0", "rule-2-method=rule-2-method", "rule-2-path=rule-2-path"}},
		{"OK 0", gatewayDomain, []string{here, "rule-2-match-0=rule-2-match-0", "rule-2-method=rule-2-method", "rule-2-path=rule-2-path"}},
		{"OVER_LIMIT 0", gatewayDomain, []string{here, "rule-3-match--1=rule-3-match--1"}},
		{"OK 0", shared, []string{shared + "/rule/0=" + shared + "/rule/0", "rule-0-match-0=ann"}},
		{"OVER_LIMIT 0", shared, []string{shared + "/rule/0=" + shared + "/rule/0", "rule-0-match-0=ann"}},
		{"OK 0", gatewayDomain, []string{"another=another"}},
	} {
		g.asks(t, c.want, c.domain, c.entries...)
	}
	if page := fetched(t, g.prometheus+"/metrics", ""); !strings.Contains(page, `ratelimit_service_rate_limit_over_limit{domain="default/by-user",key1="default/by-user/rule/0_default/by-user/rule/0",key2="rule-0-match-0"} 1`) {
		t.Errorf("/metrics:\n%s", page)
	}
	select {
	case path := <-traced:
		if path != "/v1/traces" {
			t.Errorf("spans went to %s", path)
		}
	case <-time.After(30 * time.Second):
		t.Error("no spans")
	}
	// A policy that changes keeps its counts; one that goes limits no longer.
	g.push(t, gatewayConfig(gatewayDomain, gatewayRoute, chain(false, 2, "rule-0-match-0"), chain(false, 9, "rule-1-match-0")))
	g.asks(t, "OVER_LIMIT 0", gatewayDomain, here, "rule-0-match-0=ann")
	g.asks(t, "OK 0", shared, shared+"/rule/0="+shared+"/rule/0", "rule-0-match-0=ann")
	g.push(t)
	g.asks(t, "OK 0", gatewayDomain, here, "rule-0-match-0=ann")
	if got := fetched(t, g.http+"/healthcheck", ""); got != "200 OK" {
		t.Errorf("/healthcheck without policies: %s", got)
	}
}

// TestEnvoyGatewayWithoutMapping starts although the mapping is not there: Envoy Gateway mounts it as an
// optional file.
func TestEnvoyGatewayWithoutMapping(t *testing.T) {
	g := startGateway(t, "REDIS_URL=memory", "PROMETHEUS_MAPPER_YAML="+filepath.Join(t.TempDir(), "conf.yaml"))
	if !strings.Contains(g.log.String(), "the mapping for Prometheus is missing; the default one is used") {
		t.Errorf("the log says nothing:\n%s", g.log)
	}
	g.push(t, gatewayConfig(gatewayDomain, gatewayRoute, chain(false, 0, "rule-0-match-0")))
	g.asks(t, "OVER_LIMIT 0", gatewayDomain, gatewayRoute+"="+gatewayRoute, "rule-0-match-0=ann")
	if page := fetched(t, g.prometheus+"/metrics", ""); !strings.Contains(page, `ratelimit_service_rate_limit_over_limit{`) {
		t.Errorf("/metrics:\n%s", page)
	}
}

// TestEnvoyAIGateway has budgets of tokens for each user and model, as Envoy AI Gateway has Envoy count
// them: it asks with 0 before a request, and charges when the response has ended.
func TestEnvoyAIGateway(t *testing.T) {
	awayFromMidnight()
	redis := redistest.Start(t)
	g := startGateway(t, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr)
	g.push(t, gatewayConfig(gatewayDomain, gatewayRoute,
		chain(false, 1000, "rule-0-match-0", "rule-0-match-1=rule-0-match-1"), // tokens of a user and the small model
		chain(false, 50, "rule-1-match-0", "rule-1-match-1=rule-1-match-1"),   // and of the large one
		chain(false, 7, "rule-2-match-0")))                                    // requests of a user
	action := func(key, value string) *route.RateLimit_Action {
		return &route.RateLimit_Action{ActionSpecifier: &route.RateLimit_Action_GenericKey_{
			GenericKey: &route.RateLimit_Action_GenericKey{DescriptorKey: key, DescriptorValue: value},
		}}
	}
	user := func(rule int) *route.RateLimit_Action {
		return &route.RateLimit_Action{ActionSpecifier: &route.RateLimit_Action_RequestHeaders_{
			RequestHeaders: &route.RateLimit_Action_RequestHeaders{HeaderName: "x-user-id", DescriptorKey: fmt.Sprintf("rule-%d-match-0", rule)},
		}}
	}
	var limits []*route.RateLimit
	for rule, model := range []string{"small", "large"} {
		name := fmt.Sprintf("rule-%d-match-1", rule)
		actions := []*route.RateLimit_Action{action(gatewayRoute, gatewayRoute), user(rule), {ActionSpecifier: &route.RateLimit_Action_HeaderValueMatch_{
			HeaderValueMatch: &route.RateLimit_Action_HeaderValueMatch{
				DescriptorKey: name, DescriptorValue: name, ExpectMatch: wrapperspb.Bool(true),
				Headers: []*route.HeaderMatcher{{Name: "x-ai-eg-model", HeaderMatchSpecifier: &route.HeaderMatcher_StringMatch{
					StringMatch: &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Exact{Exact: model}},
				}}},
			},
		}}}
		limits = append(limits,
			&route.RateLimit{Actions: actions, HitsAddend: &route.RateLimit_HitsAddend{Number: wrapperspb.UInt64(0)}},
			&route.RateLimit{Actions: actions, ApplyOnStreamDone: true, HitsAddend: &route.RateLimit_HitsAddend{Format: "%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_total_token)%"}})
	}
	limits = append(limits, &route.RateLimit{Actions: []*route.RateLimit_Action{action(gatewayRoute, gatewayRoute), user(2)}})
	f := &envoyFilter{client: g.client, filter: &filter.RateLimit{Domain: gatewayDomain, EnableXRatelimitHeaders: filter.RateLimit_DRAFT_VERSION_03, DisableXEnvoyRatelimitedHeader: true}}
	f.hosts = []*route.VirtualHost{{Routes: []*route.Route{{
		Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
		Action: &route.Route_Route{Route: &route.RouteAction{RateLimits: limits}},
	}}}}
	for i, c := range []struct {
		user, model string
		tokens      uint64
		want        string
	}{
		{"ann", "small", 400, "200 limit:7, 1000;w=86400, 7;w=86400 remaining:6"}, // the requests have less left
		{"ann", "small", 900, "200 limit:7, 1000;w=86400, 7;w=86400 remaining:5"}, // more than is left
		{"ann", "small", 5, "429 limit:1000, 1000;w=86400, 7;w=86400 remaining:0"},
		{"ann", "large", 30, "200 limit:7, 50;w=86400, 7;w=86400 remaining:4"}, // the refused one cost no request
		{"ann", "large", 20, "200 limit:7, 50;w=86400, 7;w=86400 remaining:3"}, // exactly what is left
		{"ann", "large", 1, "429 limit:50, 50;w=86400, 7;w=86400 remaining:0"},
		{"bob", "large", 49, "200 limit:7, 50;w=86400, 7;w=86400 remaining:6"},
		{"bob", "large", 1, "200 limit:50, 50;w=86400, 7;w=86400 remaining:1"},
		{"bob", "large", 1, "429 limit:50, 50;w=86400, 7;w=86400 remaining:0"},
		{"bob", "other", 9, "200 limit:7, 7;w=86400 remaining:4"},
	} {
		r := f.serve(t, &webRequest{
			path: "/v1/chat/completions", headers: map[string]string{"x-user-id": c.user, "x-ai-eg-model": c.model},
			metadata: map[string]uint64{"io.envoy.ai_gateway:llm_total_token": c.tokens},
		})
		delete(r.headers, "x-ratelimit-reset")
		if got := r.String(); got != c.want {
			t.Errorf("request %d, %s of %s: %s, want %s", i+1, c.model, c.user, got, c.want)
		}
	}
}
