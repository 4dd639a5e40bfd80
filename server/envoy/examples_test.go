package envoy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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

// The fields of these custom resources, as the APIs of Envoy Gateway and Envoy AI
// Gateway name them.
type (
	kubernetesObject struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
	}
	targetRef struct{ Group, Kind, Name string }
	selector  struct{ Type, Name, Value string }
	costFrom  struct {
		From     string
		Number   *uint64
		Metadata struct{ Namespace, Key string }
	}
	envoyGateway struct {
		kubernetesObject `yaml:",inline"`
		Gateway          struct {
			ControllerName string `yaml:"controllerName"`
		}
		Provider struct {
			Type       string
			Kubernetes struct {
				RateLimitDeployment struct{ Container struct{ Image string } } `yaml:"rateLimitDeployment"`
			}
		}
		RateLimit struct {
			Timeout    string
			FailClosed bool `yaml:"failClosed"`
			Backend    struct {
				Type  string
				Redis struct{ URL string }
			}
		} `yaml:"rateLimit"`
	}
	backendTrafficPolicy struct {
		kubernetesObject `yaml:",inline"`
		Spec             struct {
			TargetRefs []targetRef `yaml:"targetRefs"`
			RateLimit  struct {
				Type   string
				Global struct {
					Rules []struct {
						ClientSelectors []struct{ Headers []selector } `yaml:"clientSelectors"`
						Limit           struct {
							Requests uint32
							Unit     string
						}
						Cost struct{ Request, Response *costFrom }
					}
				}
			} `yaml:"rateLimit"`
		}
	}
	aiGatewayRoute struct {
		kubernetesObject `yaml:",inline"`
		Spec             struct {
			ParentRefs []targetRef `yaml:"parentRefs"`
			Rules      []struct {
				Matches     []struct{ Headers []selector }
				BackendRefs []struct{ Name string } `yaml:"backendRefs"`
			}
			LLMRequestCosts []struct {
				MetadataKey string `yaml:"metadataKey"`
				Type        string
			} `yaml:"llmRequestCosts"`
		}
	}
)

// The custom resources of examples/envoy, and the configuration of Envoy Gateway in deploy/examples, have no
// fields but those of their kinds. tools/cluster checks the other objects of deploy/examples.
func TestKubernetesExamples(t *testing.T) {
	for name, kinds := range map[string]string{
		"../../deploy/examples/envoy-gateway.yaml": "EnvoyGateway",
		"../../examples/envoy/ai-gateway.yaml":     "AIGatewayRoute BackendTrafficPolicy",
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var configMap struct{ Data map[string]string }
		if err := yaml.Unmarshal(text, &configMap); err != nil { // the first object
			t.Fatal(err)
		}
		if inner, ok := configMap.Data["envoy-gateway.yaml"]; ok {
			text = []byte(inner)
		}
		var found []string
		documents := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var tree any
			if err := documents.Decode(&tree); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			one, err := yaml.Marshal(tree)
			if err != nil {
				t.Fatal(err)
			}
			var object kubernetesObject
			if err := yaml.Unmarshal(one, &object); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			to := map[string]any{
				"gateway.envoyproxy.io/v1alpha1 EnvoyGateway":         new(envoyGateway),
				"gateway.envoyproxy.io/v1alpha1 BackendTrafficPolicy": new(backendTrafficPolicy),
				"aigateway.envoyproxy.io/v1beta1 AIGatewayRoute":      new(aiGatewayRoute),
			}[object.APIVersion+" "+object.Kind]
			strict := yaml.NewDecoder(bytes.NewReader(one))
			strict.KnownFields(true)
			if err := strict.Decode(to); err != nil {
				t.Errorf("%s: %s %s: %v", name, object.APIVersion, object.Kind, err)
			}
			found = append(found, object.Kind)
		}
		if got := strings.Join(found, " "); got != kinds {
			t.Errorf("%s has %s, want %s", name, got, kinds)
		}
	}
}
