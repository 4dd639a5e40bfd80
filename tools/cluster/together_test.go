package main

import (
	"strings"
	"testing"
)

// Two files of values may say opposite things. A gateway that is off has no address that other pods reach, even if
// an upstream or routes are there.
func TestGatewayOff(t *testing.T) {
	t.Parallel()
	r := aRelease("gateway.yaml", "check.yaml")
	r.set = []string{"config.server.routes[0].path=/", "config.server.routes[0].upstream=http://shop"}
	deployment := only(t, r.must(t), "Deployment").text
	if strings.Contains(deployment, "--upstream") || !strings.Contains(deployment, `{name: STINT_SERVER_LISTEN, value: "127.0.0.1:8080"}`) {
		t.Error(deployment)
	}
}

// Where nodes are reserved, or of several architectures, the Job and the test go where the server goes.
func TestNodes(t *testing.T) {
	t.Parallel()
	r := everything(append(all(t), "nodeSelector.pool=edge", "tolerations[0].key=edge", "tolerations[0].operator=Exists")...)
	read := &release{objects: r.must(t).objects}
	read.readPods()
	if len(read.pods) != 3 {
		t.Fatalf("%d pods", len(read.pods))
	}
	for _, p := range read.pods {
		if p.spec.NodeSelector["pool"] != "edge" || len(p.spec.Tolerations) != 1 || p.spec.Tolerations[0].Key != "edge" {
			t.Errorf("%v: nodes %v, tolerations %v", p.of, p.spec.NodeSelector, p.spec.Tolerations)
		}
	}
}

// Names that YAML would read as a number or as false stay names: a country has the release no.
func TestNamesStayNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"no", "1e3"} {
		r := everything(all(t)...)
		r.name = name
		r.set = append(r.set, "fullnameOverride=on", "nameOverride=y", "serviceAccount.name="+name, "priorityClassName="+name)
		r.set = append(r.set, "redis.secret.name="+name, "push.secret.name="+name, "secrets[0]="+name, "secrets[1]=stint-admin")
		out := r.must(t)
		validate(t, out.objects)
		for _, problem := range problems(out.objects, name, "stint-admin") {
			if !strings.Contains(problem, "/run/secrets/") {
				t.Errorf("%s: %s", name, problem)
			}
		}
	}
}

// The Secret that the chart makes does not have the name stint-redis of the pages. When a release goes from
// redis.password to redis.secret, Helm removes the Secret that it made, and the pods would need that name.
func TestSecretName(t *testing.T) {
	t.Parallel()
	r := rendering{chart: chart, name: "stint", namespace: "front", set: strings.Fields(up + "redis.url=redis://redis redis.password=a")}
	if name := only(t, r.must(t), "Secret").name(); name == "stint-redis" {
		t.Errorf("the Secret %s", name)
	}
}

// The notes have a command that works, and say what balancers do to addresses.
func TestNotes(t *testing.T) {
	t.Parallel()
	const nodes = "NOTE: without gateway.service.externalTrafficPolicy"
	for _, test := range []struct {
		use, set string
		says     string
		not      string
	}{
		{"gateway.yaml", "", "/usr/bin/stint status\n", nodes},
		{"fleet.yaml", "", "/usr/bin/stint status --token-file /run/secrets/stint-admin/deploy\n", nodes},
		{"gateway.yaml", "gateway.service.type=LoadBalancer", nodes, "WARNING"},
		{"gateway.yaml", "gateway.service.type=LoadBalancer gateway.service.externalTrafficPolicy=Local", "Gateway: http://", nodes},
		{"check.yaml", "gateway.service.type=LoadBalancer", "with a token", nodes},
	} {
		r := aRelease(test.use)
		r.set = strings.Fields(test.set)
		if notes := r.must(t).notes; !strings.Contains(notes, test.says) || strings.Contains(notes, test.not) {
			t.Errorf("%s %s: want %q, and not %q:\n%s", test.use, test.set, test.says, test.not, notes)
		}
	}
}
