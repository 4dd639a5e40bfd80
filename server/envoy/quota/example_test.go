package quota_test

import (
	"fmt"

	"google.golang.org/grpc"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/envoy/quota"
	"github.com/stintdev/stint/server/rules"
)

// A server of gRPC assigns quotas to proxies, by a file of envoyproxy/ratelimit.
func Example() {
	set, err := rules.ParseFiles([]rules.File{{Name: "shop.yaml", Envoy: true, Data: []byte(`
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 100}}
`)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	decider := server.New(server.Config{Settings: config.Default(), Rules: set})
	defer decider.Close()
	service, err := quota.New(decider, quota.Settings{})
	if err != nil {
		fmt.Println(err)
		return
	}
	proxies := grpc.NewServer()
	service.Register(proxies)
	for name := range proxies.GetServiceInfo() {
		fmt.Println(name)
	}
	service.Stop() // before proxies.GracefulStop
	// Output: envoy.service.rate_limit_quota.v3.RateLimitQuotaService
}
