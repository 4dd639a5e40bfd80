package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/stintdev/stint/internal/redistest"
)

// istioFilter is the filter that the gateway has by the EnvoyFilters in a file. Fields that Envoy does not
// know are errors.
func istioFilter(t *testing.T, file string, client rls.RateLimitServiceClient) *envoyFilter {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f := &envoyFilter{filter: new(filter.RateLimit), client: client}
	host := &route.VirtualHost{Routes: []*route.Route{{
		Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
		Action: &route.Route_Route{Route: &route.RouteAction{}},
	}}}
	f.hosts = []*route.VirtualHost{host}
	for _, object := range strings.Split(string(data), "\n---\n") {
		var o struct {
			Spec struct {
				ConfigPatches []struct {
					ApplyTo string `yaml:"applyTo"`
					Patch   struct {
						Operation string
						Value     map[string]any
					}
				} `yaml:"configPatches"`
			}
		}
		if err := yaml.Unmarshal([]byte(object), &o); err != nil {
			t.Fatal(err)
		}
		for _, p := range o.Spec.ConfigPatches {
			switch patch := p.ApplyTo + " " + p.Patch.Operation; patch {
			case "HTTP_FILTER INSERT_BEFORE":
				var one manager.HttpFilter
				fromYAML(t, p.Patch.Value, &one)
				if err := one.ValidateAll(); err != nil {
					t.Fatal(err)
				}
				if err := one.GetTypedConfig().UnmarshalTo(f.filter); err != nil {
					t.Fatal(err)
				}
			case "VIRTUAL_HOST MERGE":
				var part route.VirtualHost
				fromYAML(t, p.Patch.Value, &part)
				proto.Merge(host, &part)
			default:
				t.Fatalf("%s has a patch that this test does not know: %s", file, patch)
			}
		}
	}
	for _, one := range host.RateLimits {
		if err := one.ValidateAll(); err != nil {
			t.Error(err)
		}
	}
	if err := f.filter.ValidateAll(); err != nil {
		t.Error(err)
	}
	return f
}

func fromYAML(t *testing.T, tree map[string]any, to proto.Message) {
	t.Helper()
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
}

// TestEnvoyInCluster is deploy/examples/istio.yaml, and examples/envoy/envoy.yaml, with the descriptors of
// deploy/values/envoy.yaml: what they send hits the limits there.
func TestEnvoyInCluster(t *testing.T) {
	data, err := os.ReadFile("../../deploy/values/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Envoy struct{ Descriptors map[string]any }
	}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(data), "unit: minute", "unit: day")), &values); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for name, file := range values.Envoy.Descriptors {
		text, err := yaml.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	awayFromMidnight()
	redis := redistest.Start(t)
	variables, _ := runtimeDirectory(t, files)
	s := asEnvoy(t, append(variables, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr)...)
	get := func(f *envoyFilter, path, client string) string {
		out := f.serve(t, &webRequest{path: path, client: client, headers: map[string]string{}})
		delete(out.headers, "x-ratelimit-reset") // see TestEnvoyHeadersOfAlgorithms
		return out.String()
	}
	istio := istioFilter(t, "../../deploy/examples/istio.yaml", s.client)
	const login = " limit:10, 100;w=86400, 10;w=86400 remaining:"
	for _, c := range []struct {
		path, want string
	}{
		{"/login", "200" + login + "9"},
		{"/login?a=b", "200" + login + "8"},
		{"/loginx", "200 limit:100, 100;w=86400 remaining:97"},
		{"/", "200 limit:100, 100;w=86400 remaining:96"},
	} {
		if got := get(istio, c.path, "192.0.2.1"); got != c.want {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
	}
	for range 8 {
		get(istio, "/login?again", "192.0.2.1")
	}
	if got := get(istio, "/login", "192.0.2.1"); got != "429 x-envoy-ratelimited:true"+login+"0" {
		t.Errorf("the eleventh login: %s", got)
	}
	if got := get(istio, "/login", "192.0.2.2"); got != "200"+login+"9" {
		t.Errorf("of another address: %s", got)
	}
	plain := filterOf(t, envoyExamples+"envoy.yaml", s.client)
	if got := get(plain, "/", "192.0.2.3"); got != "200 limit:100, 100;w=86400 remaining:99" {
		t.Errorf("of a plain Envoy: %s", got)
	}
	s.stop()
	if got := get(istio, "/login", "192.0.2.1"); got != "200" { // failure_mode_deny: false
		t.Errorf("without Stint: %s", got)
	}
}
