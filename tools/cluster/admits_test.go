package main

import (
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const elsewhere = "namespaceSelector.matchLabels.team=ops"

// The policy admits the chart's own pods, whomever else it admits, and Istio's gateway to Envoy's service: an Envoy
// that does not reach Stint lets every request pass.
func TestPolicyAdmits(t *testing.T) {
	t.Parallel()
	closed := everything(append(all(t), "networkPolicy.metrics[0]."+elsewhere, "networkPolicy.admin[0]."+elsewhere)...)
	istio := aRelease("envoy.yaml", "production.yaml")
	own := func(component string) labels.Set {
		return labels.Set{"app.kubernetes.io/name": "stint", "app.kubernetes.io/instance": "shop", "app.kubernetes.io/component": component}
	}
	gateway := labels.Set{"istio": "ingressgateway"}
	for _, test := range []struct {
		what      string
		r         rendering
		port      string
		namespace string
		pod       labels.Set
		want      bool
	}{
		{"helm test", closed, "http-metrics", "front", own("test"), true},
		{"helm test with production.yaml", istio, "http-metrics", "front", own("test"), true},
		{"the Job", closed, "http-admin", "front", own("push"), true},
		{"the test at the admin API", closed, "http-admin", "front", own("test"), false},
		{"another release's test", closed, "http-metrics", "other", own("test"), false},
		{"an application at the admin API", closed, "http-admin", "front", labels.Set{"app": "shop"}, false},
		{"Istio", istio, "grpc-envoy", "istio-system", gateway, true},
		{"an Envoy in the same namespace", istio, "grpc-envoy", "front", labels.Set{"app": "envoy"}, true},
		{"an Envoy of another namespace", istio, "grpc-envoy", "other", gateway, false},
	} {
		var policy networkingv1.NetworkPolicy
		if err := yaml.UnmarshalStrict([]byte(only(t, test.r.must(t), "NetworkPolicy").text), &policy); err != nil {
			t.Fatal(err)
		}
		if got := admits(t, policy, test.port, test.namespace, test.pod); got != test.want {
			t.Errorf("%s: admitted to %s: %t", test.what, test.port, got)
		}
	}
}

// admits says whether a pod of a namespace may connect to a port of the pods of policy, which are in the namespace
// front.
func admits(t *testing.T, policy networkingv1.NetworkPolicy, port, namespace string, pod labels.Set) bool {
	t.Helper()
	matches := func(s *metav1.LabelSelector, of labels.Set) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		return s == nil || selector.Matches(of)
	}
	return slices.ContainsFunc(policy.Spec.Ingress, func(in networkingv1.NetworkPolicyIngressRule) bool {
		at := slices.ContainsFunc(in.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.StrVal == port })
		return at && (len(in.From) == 0 || slices.ContainsFunc(in.From, func(from networkingv1.NetworkPolicyPeer) bool {
			near := from.NamespaceSelector != nil || namespace == "front"
			return near && matches(from.NamespaceSelector, labels.Set{"kubernetes.io/metadata.name": namespace}) && matches(from.PodSelector, pod)
		}))
	})
}
