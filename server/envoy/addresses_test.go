package envoy_test

import (
	"testing"

	authz "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/envoy"
	"github.com/stintdev/stint/server/rules"
)

// By both of Envoy's services, an IPv4 client has one count, however Envoy writes it. The limit of a file
// of Envoy's form and that of a rule both see one.
func TestOneClientHoweverEnvoyWritesIt(t *testing.T) {
	const file = "nat64_prefixes: [2001:db8:64::/96]\ntrusted_proxies: [192.0.2.0/24]\nrules: [{name: client, key: client.ip, limits: [1 per 1h]}]"
	authorization := envoy.NewAuthorization(serverOf(t, file, open))
	byRule, _ := start(t, envoy.Config{Decider: serverOf(t, file)})
	const descriptors = "domain: d\ndescriptors: [{key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1}}]"
	byTree, _ := start(t, envoy.Config{Decider: serverOf(t, "nat64_prefixes: [2001:db8:64::/96]\nrules: []", func(c *server.Config) {
		set, err := rules.ParseFiles([]rules.File{{Name: "r.yaml", Data: []byte("nat64_prefixes: [2001:db8:64::/96]\nrules: []")}, {Name: "d.yaml", Data: []byte(descriptors), Envoy: true}})
		if err != nil {
			t.Fatal(err)
		}
		c.Rules = set
	})})
	rule, tree := rls.NewRateLimitServiceClient(dial(t, byRule)), rls.NewRateLimitServiceClient(dial(t, byTree))
	limited := func(client rls.RateLimitServiceClient, address string) bool {
		t.Helper()
		r, err := client.ShouldRateLimit(t.Context(), request("d", "remote_address", address))
		if err != nil {
			t.Fatal(err)
		}
		return r.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT
	}
	for i, c := range []struct {
		address string
		limited bool
	}{
		{"203.0.113.1", false}, {"::ffff:203.0.113.1", true}, {"64:ff9b::cb00:7101", true}, {"2002:cb00:7101::1", true},
		{"2001:0:4136:e378:8000:63bf:34ff:8efe", true}, {"2001:db8:64::cb00:7101", true}, {"64:ff9b::cb00:7102", false},
	} {
		r, err := authorization.Check(fromProxy(), &authz.CheckRequest{Attributes: asked{method: "GET", target: "/", host: "shop.example", source: c.address}.attributes()})
		if err != nil || verdictStatus(r) == 429 != c.limited {
			t.Errorf("ext_authz, request %d, of %s: %v, %v", i, c.address, r, err)
		}
		if got := limited(rule, c.address); got != c.limited {
			t.Errorf("a rule, request %d, of %s: limited %t", i, c.address, got)
		}
		if got := limited(tree, c.address); got != c.limited {
			t.Errorf("descriptors, request %d, of %s: limited %t", i, c.address, got)
		}
	}
}
