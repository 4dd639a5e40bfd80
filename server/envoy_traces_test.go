package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/stintdev/stint/server/config"
)

// A call of Envoy's has a span, which continues Envoy's trace, with that of its decision in it. A
// health check has none.
func TestTraceOfEnvoy(t *testing.T) {
	c := newCollector(t)
	s := newServer(t, "rules:\n  - {name: all, key: client.ip, limits: [1 per 1h]}\n", c.sends())
	e := startEnvoy(t, s, &config.Envoy{Listen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0"})
	conn, err := grpc.NewClient("passthrough:///"+e.Addr("gRPC").String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent)
	call := func(domain string) error {
		_, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rls.RateLimitRequest{
			Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.7"}}}},
		})
		return err
	}
	_, health := grpc_health_v1.NewHealthClient(conn).Check(ctx, new(grpc_health_v1.HealthCheckRequest))
	if err := errors.Join(call("shop"), call("shop"), health); err != nil {
		t.Fatal(err)
	}
	if call("") == nil {
		t.Error("a call without a domain was answered")
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+e.Addr("HTTP").String()+"/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Traceparent", traceparent)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	s.Close()
	const want = `envoy server method=envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit status_code=OK outcome=allowed rule=all
  decide internal outcome=allowed rule=all
envoy server method=envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit status_code=OK outcome=limited rule=all
  decide internal outcome=limited rule=all
envoy server method=envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit status_code=INVALID_ARGUMENT
envoy server method=/json status_code=INVALID_ARGUMENT
`
	if got := tree(c.got(), "rpc.method", "rpc.response.status_code", "stint.outcome", "stint.rule"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, span := range c.got() {
		if hexOf(span.TraceId) != callersTrace {
			t.Errorf("%s is in another trace", span.Name)
		}
	}
}
