package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/yannh/kubeconform/pkg/resource"
	"github.com/yannh/kubeconform/pkg/validator"
)

// programFolder has the program that pods run, once it is built.
var programFolder string

func TestMain(m *testing.M) {
	code := m.Run()
	if programFolder != "" {
		os.RemoveAll(programFolder)
	}
	if f, err := schemas(); err == nil {
		os.RemoveAll(f.path)
	}
	os.Exit(code)
}

var conform = sync.OnceValues(func() (validator.Validator, error) {
	f, err := schemas()
	if err != nil {
		return nil, err
	}
	return validator.New([]string{f.location()}, validator.Opts{Strict: true, KubernetesVersion: strings.TrimPrefix(kubernetes, "v")})
})

// invalid says what kubeconform finds wrong with o. A kind without a schema is an error.
func invalid(o object) error {
	f, err := schemas()
	if err != nil {
		return err
	}
	if err := f.need(o.apiVersion(), o.kind()); err != nil {
		return err
	}
	v, err := conform()
	if err != nil {
		return err
	}
	switch result := v.ValidateResource(resource.Resource{Path: o.file, Bytes: []byte(o.text)}); {
	case result.Err != nil:
		return result.Err
	case result.Status != validator.Valid:
		return fmt.Errorf("status %d", result.Status)
	}
	return nil
}

// validate reports objects that do not fit the schemas of their kinds.
func validate(t *testing.T, objects []object) {
	t.Helper()
	if len(objects) == 0 {
		t.Error("no objects")
	}
	for _, o := range objects {
		if err := invalid(o); err != nil {
			t.Errorf("%v: %v", o, err)
		}
	}
}

const (
	aDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  selector: {matchLabels: {a: b}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 25%}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
        - name: a
          resources: {limits: {cpu: 1, memory: 1Gi}}
          ports: [{containerPort: 80}]
`
	aMonitor = `
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: a}
spec:
  selector: {matchLabels: {a: b}}
  endpoints: [{port: http, interval: 15s, targetPort: 80}]
`
	aRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a}
spec: {parentRefs: [{name: a}], rules: [{backendRefs: [{name: a, port: 80}]}]}
`
	aPolicy = `
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: a}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: a}]
  rateLimit: {type: Global, global: {rules: [{limit: {requests: 10, unit: Minute}}]}}
`
	aMiddleware = `
apiVersion: traefik.io/v1alpha1
kind: Middleware
metadata: {name: a}
spec: {forwardAuth: {address: "http://a", authResponseHeaders: [A]}, plugin: {any: {thing: 1}}}
`
	aFilter = `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: a}
spec:
  configPatches:
    - applyTo: HTTP_FILTER
      match: {context: GATEWAY}
      patch: {operation: INSERT_BEFORE, value: {any: {thing: 1}}}
`
	anAutoscaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: a}
spec: {maxReplicas: 2, scaleTargetRef: {kind: Deployment, name: a}}
`
)

// The validator passes objects of each module, and finds what is wrong in them.
func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct{ what, manifest, old, now, says string }{
		{what: "a Deployment", manifest: aDeployment},
		{"an unknown field of a container", aDeployment, "- name: a", "- name: a\n          port: 80", "port"},
		{"an unknown field of the object", aDeployment, "spec:\n  sel", "specs: {}\nspec:\n  sel", "specs"},
		{"a name twice", aDeployment, "metadata: {name: a}", "metadata: {name: a, name: b}", "already set"},
		{"text for a number", aDeployment, "containerPort: 80", `containerPort: "80"`, "want integer"},
		{"a number that is too big", aDeployment, "containerPort: 80", "containerPort: 3000000000", "want 2.147483647"},
		{"a list for an int-or-string", aDeployment, "maxSurge: 25%", "maxSurge: [1]", "maxSurge"},
		{"a fraction for an int-or-string", aDeployment, "maxSurge: 25%", "maxSurge: 0.5", "maxSurge"},
		{"a list for a quantity", aDeployment, "cpu: 1", "cpu: [1]", "cpu"},
		{"a number for a label", aDeployment, "labels: {a: b}", "labels: {a: 1}", "want string"},
		{"a field without a value", aDeployment, "metadata: {labels", "metadata: {annotations: , labels", "annotations"},
		{"a field that is missing", aDeployment, "selector: {matchLabels: {a: b}}", "", "selector"},
		{"an object without a name", aDeployment, "metadata: {name: a}", "metadata: {}", "name"},
		{"a kind in lower case", aDeployment, "kind: Deployment", "kind: deployment", "no schema for apps/v1 deployment"},
		{"an unknown kind", aDeployment, "kind: Deployment", "kind: Deploy", "no schema for apps/v1 Deploy"},
		{"an unknown version", aDeployment, "apps/v1", "apps/v1beta1", "no schema for apps/v1beta1 Deployment"},
		{"an unknown group", aDeployment, "apps/v1", "example.com/v1", "no schema for example.com/v1 Deployment"},
		{"a list of objects", "apiVersion: v1\nkind: List\nitems: []\n", "", "", "no schema for v1 List"},
		{what: "a HorizontalPodAutoscaler", manifest: anAutoscaler},
		{"one of a wrong field", anAutoscaler, "maxReplicas: 2", "maxReplicas: 2, max: 2", "max"},
		{what: "a ServiceMonitor", manifest: aMonitor},
		{"one with a wrong field", aMonitor, "interval", "intervall", "intervall"},
		{"one with a wrong field of metadata", aMonitor, "name: a", "name: a, label: {}", "label"},
		{"one with a wrong duration", aMonitor, "15s", "15 seconds", "pattern"},
		{"one of an unknown version", aMonitor, "/v1", "/v2", "no schema for monitoring.coreos.com/v2 ServiceMonitor"},
		{what: "an HTTPRoute", manifest: aRoute},
		{"one with a wrong field", aRoute, "parentRefs", "parents", "parents"},
		{what: "a BackendTrafficPolicy", manifest: aPolicy},
		{"one with a wrong unit", aPolicy, "Minute", "Fortnight", "unit"},
		{"one with a wrong field", aPolicy, "requests", "request", "request"},
		{what: "a Middleware", manifest: aMiddleware},
		{"one with a wrong field", aMiddleware, "authResponseHeaders", "responseHeaders", "responseHeaders"},
		{what: "an EnvoyFilter", manifest: aFilter},
		{"one with a wrong field", aFilter, "applyTo", "applyto", "applyto"},
		{"one with a wrong place", aFilter, "HTTP_FILTER", "HTTP", "applyTo"},
	}
	for _, test := range tests {
		manifest := strings.Replace(test.manifest, test.old, test.now, 1)
		fields, _ := read(strings.ReplaceAll(manifest, "name: a, name: b", "name: a"))
		err := invalid(object{text: manifest, fields: fields})
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v: want %q", test.what, err, test.says)
		}
		if test.old != "" && manifest == test.manifest {
			t.Errorf("%s: there is no %q", test.what, test.old)
		}
	}
}
