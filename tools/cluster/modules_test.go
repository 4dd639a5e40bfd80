package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// A module has definitions of APIs. It is data here: nothing of it is compiled, so it is not in go.mod, and
// the hash, as in a go.sum, is here. "go mod download -json MODULE" prints that of another version.
type module struct {
	path, hash string
	groups     []string // those of its APIs, none for Kubernetes itself
	files      []string // patterns of files with CustomResourceDefinitions
}

var modules = []module{
	{
		path: "k8s.io/kubernetes@" + kubernetes,
		hash: "h1:qDQdoMiluAE2Eab6Fa52YV+WjiGz9mZFFoagEA6cI+o=",
	},
	{
		path:   "github.com/prometheus-operator/prometheus-operator@v0.85.0",
		hash:   "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
		groups: []string{"monitoring.coreos.com"},
		files:  []string{"example/prometheus-operator-crd/*.yaml"},
	},
	{
		path:   "github.com/traefik/traefik/v3@v3.7.13",
		hash:   "h1:T8wy9KuaFzCkmXCqAzDy7t73pBDR1DHrJe3pqXpNXTw=",
		groups: []string{"traefik.io"},
		files:  []string{"docs/content/reference/dynamic-configuration/kubernetes-crd-definition-v1.yml"},
	},
	{
		path:   "github.com/envoyproxy/gateway@v1.9.1",
		hash:   "h1:vAVp6/AlBXJ1aOhp1mxL7fNEzVEfjADUguUhm2wzxQY=",
		groups: []string{"gateway.envoyproxy.io", "gateway.networking.k8s.io"},
		files: []string{
			"charts/gateway-helm/charts/crds/crds/gatewayapi-crds.yaml",
			"charts/gateway-helm/charts/crds/crds/generated/*.yaml",
		},
	},
	{
		path:   "istio.io/api@v1.32.0",
		hash:   "h1:37mJvg9I0biYZAEQF+MATs4FNeCpXEIVO3LFpVb6iNM=",
		groups: []string{"networking.istio.io", "security.istio.io", "telemetry.istio.io", "extensions.istio.io"},
		files:  []string{"kubernetes/customresourcedefinitions.gen.yaml"},
	},
}

// folders are the folders of modules that were fetched, by path.
var folders sync.Map

// folder fetches m, once in a process, and returns where it is.
func (m module) folder() (string, error) {
	get, _ := folders.LoadOrStore(m.path, sync.OnceValues(func() (string, error) {
		cmd := exec.Command("go", "mod", "download", "-json", m.path)
		cmd.Dir = os.TempDir() // in no module
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GONOSUMDB=*")
		out, err := cmd.Output()
		var got struct{ Dir, Sum, Error string }
		switch wrong := json.Unmarshal(out, &got); {
		case got.Error != "":
			return "", fmt.Errorf("%s: %s", m.path, got.Error)
		case err != nil || wrong != nil:
			return "", fmt.Errorf("%s: %v, %v", m.path, err, wrong)
		case got.Sum != m.hash:
			return "", fmt.Errorf("%s has the hash %s: want %s", m.path, got.Sum, m.hash)
		}
		return got.Dir, nil
	}))
	return get.(func() (string, error))()
}

// moduleOf is the module with the definitions of an API group.
func moduleOf(group string) module {
	i := slices.IndexFunc(modules, func(m module) bool { return slices.Contains(m.groups, group) })
	return modules[max(i, 0)]
}

// A module that is not the pinned one is refused.
func TestModuleHash(t *testing.T) {
	t.Parallel()
	m := moduleOf("traefik.io")
	if folder, err := m.folder(); err != nil || !filepath.IsAbs(folder) {
		t.Errorf("in %q, %v", folder, err)
	}
	m.path, m.hash = "github.com/traefik/traefik/v3@v3.7.12", "h1:"
	if folder, err := m.folder(); err == nil {
		t.Errorf("the module without its hash is in %s", folder)
	}
}
