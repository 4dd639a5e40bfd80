//go:build cluster

package apiserver

import (
	"strings"
	"testing"
)

// refused shows that the checks can fail: each object has one fault.
func refused(t *testing.T, c *cluster) {
	ns := c.namespace(t, "refused")
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: wrong}
spec:
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: stint
      image: stint
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`
	const ingress = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: wrong}
spec:
  podSelector: {}
  ingress: [{ports: [{port: http}]}]
`
	const monitor = `
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: wrong}
spec: {selector: {}, endpoints: [{port: http, interval: 15s}]}
`
	const policy = `
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: wrong}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}]
`
	for _, test := range []struct{ name, right, from, to, says string }{
		{"pod with an unknown field", pod, "image: stint", "image: stint\n      imagge: stint", "imagge"},
		{"pod that may gain privileges", pod, "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "violates PodSecurity"},
		{"pod of an unknown account", pod, "spec:", "spec:\n  serviceAccountName: nobody", "nobody"},
		{"port name that is too long", ingress, "port: http", "port: a-name-of-sixteen", "must be no more than 15 characters"},
		{"custom object with an unknown field", monitor, "interval:", "intervall:", "intervall"},
		{"custom object outside a pattern", monitor, "15s", "soon", "should match"},
		{"custom object against a rule in CEL", policy, "kind: HTTPRoute", "kind: Service", "targetRefs"},
		{"unknown kind", monitor, "ServiceMonitor", "ServiceMonitors", "no matches for kind"},
	} {
		t.Run(test.name, func(t *testing.T) {
			right := parse(t, []byte(test.right))
			c.mustApply(t, ns, right...)
			c.remove(t, ns, right...)
			err := c.apply(t, parse(t, []byte(strings.Replace(test.right, test.from, test.to, 1)))[0], ns)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v: want %q", err, test.says)
			}
		})
	}
}
