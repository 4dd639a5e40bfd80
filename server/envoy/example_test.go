package envoy_test

import (
	"context"
	"fmt"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

// The rate limit service decides calls by a file of envoyproxy/ratelimit. Register it at a
// grpc.Server by rls.RegisterRateLimitServiceServer.
func Example() {
	set, err := rules.ParseFiles([]rules.File{{Name: "shop.yaml", Envoy: true, Data: []byte(`
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}
`)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	decider := server.New(server.Config{Settings: config.Default(), Rules: set})
	defer decider.Close()
	service := envoy.NewService(decider, &config.Envoy{}, nil)

	user := &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "ann"}}}
	for range 2 {
		answer, err := service.ShouldRateLimit(context.Background(), &rls.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimit.RateLimitDescriptor{user}})
		fmt.Println(answer.GetOverallCode(), err)
	}
	// Output:
	// OK <nil>
	// OVER_LIMIT <nil>
}
