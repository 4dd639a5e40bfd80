package envoy_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rate_limit_quota/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// Envoy's own messages accept the configurations of examples/envoy: each field is known, and each
// value valid.
func TestEnvoyExamples(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		data, err := os.ReadFile("../../examples/envoy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	check := func(name, text string) {
		t.Helper()
		var tree any
		if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := json.Marshal(tree)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var b bootstrap.Bootstrap
		if err := protojson.Unmarshal(data, &b); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err := b.ValidateAll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	check("envoy.yaml", read("envoy.yaml"))
	check("rate_limit_quota.yaml", read("rate_limit_quota.yaml"))
	text := read("ext_authz.yaml")
	check("ext_authz.yaml", text)

	// The HTTP service of its end in place of the gRPC service.
	before, service, ok := strings.Cut(text, "\n# http_service:")
	head, rest, ok2 := strings.Cut(before, "                      grpc_service:")
	_, tail, ok3 := strings.Cut(rest, "                  - name: envoy.filters.http.router")
	if !ok || !ok2 || !ok3 {
		t.Fatal("ext_authz.yaml has no two services")
	}
	service = "# http_service:" + service
	service = strings.ReplaceAll("\n"+strings.TrimRight(service, "\n"), "\n# ", "\n                      ")
	check("ext_authz.yaml by HTTP", head+service[1:]+"\n                  - name: envoy.filters.http.router"+tail)
}
