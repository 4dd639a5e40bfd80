package main

import (
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/await"
)

// replaced is a file of a ConfigMap with a text replaced.
func (n *namespace) replaced(t *testing.T, of, key, old, text string) string {
	t.Helper()
	before := n.data(t, of)[key]
	if strings.Count(before, old) != 1 {
		t.Fatalf("%s has %q not once:\n%s", of, old, before)
	}
	return strings.Replace(before, old, text, 1)
}

// A changed ConfigMap is in force without a restart, and a wrong one changes nothing.
func TestPodRulesChange(t *testing.T) {
	t.Parallel()
	n := install(t, withRedis(t, startRedis(t), "gateway"))
	const of, key = configMap + "stint", "stint.yaml"
	three := func(client string) {
		t.Helper()
		n.turns(t, 3, func(p *pod, i int) bool {
			got := p.ask(t, "http", "GET", "/", "", "X-Forwarded-For: "+client)
			if got.code != 200 && got.code != 429 {
				t.Fatalf("request %d: %v", i, got)
			}
			return got.code == 429
		})
	}
	n.update(t, of, key, n.replaced(t, of, key, "1000 per 1m", "3 per 1h"))
	for _, p := range n.pods {
		p.logged(t, "rules taken", 1)
	}
	three("198.51.100.7")
	n.update(t, of, key, n.replaced(t, of, key, "3 per 1h", "3 per 1 hour and a half"))
	for _, p := range n.pods {
		p.logged(t, "rules not taken", 1)
	}
	three("198.51.100.8")
}

// So are Envoy's descriptors.
func TestPodDescriptorsChange(t *testing.T) {
	t.Parallel()
	n := install(t, withRedis(t, startRedis(t), "envoy"))
	const of, key = configMap + "stint-envoy", "shop.yaml"
	n.update(t, of, key, n.replaced(t, of, key, "requests_per_unit: 100", "requests_per_unit: 7"))
	for _, p := range n.pods {
		c := p.envoy(t)
		await.Until(t, "the new limit is in force", func() bool {
			_, limit := shouldRateLimit(t, c, "remote_address=198.51.100.7")
			return limit == 7
		})
	}
	n.update(t, of, key, n.replaced(t, of, key, "requests_per_unit: 7", "requests_per_unit: seven"))
	for _, p := range n.pods {
		p.logged(t, "rules not taken", 1)
		if _, limit := shouldRateLimit(t, p.envoy(t), "remote_address=198.51.100.7"); limit != 7 {
			t.Errorf("%s: after a wrong file, the limit is %d", p.name, limit)
		}
	}
}

// The password of Redis changes as docs/redis.md says: Redis takes both, the Secret changes, the old one goes.
func TestPodPasswordChange(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	n := install(t, withRedis(t, redis, "gateway"))
	redis.Do(t, "ACL", "SETUSER", "stint", ">the next one")
	n.update(t, secret+"stint-redis", "password", "the next one")
	for _, p := range n.pods {
		p.logged(t, "the store's connections were replaced", 1)
	}
	redis.Do(t, "ACL", "SETUSER", "stint", "<"+password)
	redis.Do(t, "CLIENT", "KILL", "USER", "stint")
	n.turns(t, 0, func(p *pod, i int) bool {
		got := p.ask(t, "http", "POST", "/login", "", someone)
		if got.code != 200 && got.code != 429 {
			t.Fatalf("login %d: %v", i, got)
		}
		return got.code == 429
	})
	for _, p := range n.pods {
		await.Until(t, "Redis decides again", func() bool {
			got, err := p.probe(t, p.main().ReadinessProbe)
			return err == nil && got == answer{200, "ready\n"}
		})
	}
}
