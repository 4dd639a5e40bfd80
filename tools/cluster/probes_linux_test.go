package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
)

// says waits until a probe of the Deployment, as it is written there, has this answer.
func (p *pod) says(t *testing.T, probe *corev1.Probe, code int, text string) {
	t.Helper()
	var got answer
	var err error
	if !await.So(func() bool {
		got, err = p.probe(t, probe)
		return err == nil && got.code == code && strings.Contains(got.body, text)
	}) {
		t.Fatalf("%s answers %v, %v: want %d, %s\n%s", probe.HTTPGet.Path, got, err, code, text, p.Log())
	}
}

// helmTest runs the pod of helm test, which asks through the Service.
func (n *namespace) helmTest(t *testing.T, passes bool) {
	t.Helper()
	if code, out := n.runPod(t, "stint-ready"); (code == 0) != passes {
		t.Errorf("helm test: exit %d: %s", code, out)
	}
}

// away makes Redis unreachable until it is called again.
func away(proxy *redistest.Proxy) (back func()) {
	proxy.Set(redistest.Toxic{Refuse: true})
	proxy.Reset()
	return func() { proxy.Set(redistest.Toxic{}) }
}

// Without Redis, pods that decide by themselves stay ready.
func TestPodProbes(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartProxy(t, startRedis(t).Addr)
	b := withRedis(t, &redistest.Server{Addr: proxy.Addr}, "gateway")
	n := install(t, b)
	n.helmTest(t, true)
	back := away(proxy)
	for _, p := range n.pods {
		c := p.main()
		p.says(t, c.ReadinessProbe, 200, "without the store")
		p.says(t, c.StartupProbe, 200, "")
		p.says(t, c.LivenessProbe, 200, "")
	}
	n.helmTest(t, true)
	back()
	for _, p := range n.pods {
		p.says(t, p.main().ReadinessProbe, 200, "ready\n")
	}
}

// A rule that must not be decided without Redis takes the pods out of the Service, but restarts none.
func TestPodProbesDeny(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartProxy(t, startRedis(t).Addr)
	n := install(t, withRedis(t, &redistest.Server{Addr: proxy.Addr}, "gateway", "config.rules[0].name=login", "config.rules[0].key=client.ip",
		"config.rules[0].limits[0]=10 per 1m", "config.rules[0].on_store_error=deny"))
	back := away(proxy)
	for _, p := range n.pods {
		c := p.main()
		p.says(t, c.ReadinessProbe, 503, "rule login needs the store")
		p.says(t, c.LivenessProbe, 200, "")
		p.logged(t, `msg="not ready" why="rule login needs the store`, 1)
	}
	n.helmTest(t, false)
	back()
	for _, p := range n.pods {
		p.says(t, p.main().ReadinessProbe, 200, "ready\n")
		p.logged(t, "ready again", 1)
	}
	n.helmTest(t, true)
}
