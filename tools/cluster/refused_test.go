package main

import (
	"os"
	"strings"
	"testing"
)

// Values that no pod would start with, or that would not do what they seem to, are errors of helm, in words
// that say what to set.
func TestRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		set  string // separated by spaces
		says string
	}{
		// By the templates: values that do not fit together.
		{"", "gateway.upstream: say where your application is"},
		{"gateway.enabled=false", "nobody can ask this server"},
		{up + "redis.url=redis://a redis.secret.name=a redis.secret.url=url", "url and secret.url are two addresses"},
		{up + "redis.secret.url=url", "redis.secret.url is a key of a Secret"},
		{up + "redis.secret.name=a redis.secret.url=url redis.secret.files.ca=ca", "with url, files are not added to it"},
		{up + "redis.url=redis://a redis.secret.files.ca=ca", "redis.secret.files are keys of a Secret"},
		{up + "redis.url=redis://a redis.password=a redis.secret.name=a", "password and secret.name are two Secrets"},
		{up + "redis.password=a", "redis.url: say where Redis is"},
		{up + "redis.url=redis://a redis.secret.name=a redis.secret.files.ca=ca", "files.ca is for TLS"},
		{up + "redis.url=redis://a redis.secret.name=a redis.secret.files.sentinel_password_file=a", "is for Sentinels"},
		{up + "redis.url=redis://u:p@a redis.secret.name=a redis.secret.files.password_file=a", "redis.url has a password"},
		{up + "redis.url=redis://u:p@a redis.password=a", "redis.url has a password"},
		{up + "redis.url=rediss://a?ca=/a redis.secret.name=a redis.secret.files.ca=ca", "has the parameter ca"},
		{up + "replicas=2", "without Redis, each replica would give every client the whole limit"},
		{up + "autoscaling.enabled=true", "without Redis, each replica would give every client the whole limit"},
		{up + "check.enabled=true", "set config.server.check.tokens"},
		{up + "admin.enabled=true", "set config.server.admin.tokens"},
		{up + "envoy.enabled=true envoy.descriptors.a\\.yaml.domain=a envoy.existingConfigMap=b", "two sets of files"},
		{up + "config.server.rules=fleet", "the fleet's rules are in Redis"},
		{up + "push.enabled=true", "push.enabled: it needs admin.enabled"},
		{up + aPush, "only with config: {server: {rules: fleet}}"},
		{up + aPush + " config.server.rules=fleet config.server.admin.tls.cert=/c config.server.admin.tls.key=/k", "push.url: the admin API has TLS"},
		{up + "existingConfigMap=shop-stint", "existingConfigMap: this is the name of the chart's own"},
		{up + "envoy.enabled=true envoy.existingConfigMap=shop-stint-envoy", "envoy.existingConfigMap: this is the name of the chart's own"},
		{up + "redis.url=redis://a autoscaling.enabled=true autoscaling.minReplicas=11", "minReplicas is more than maxReplicas"},
		{up + "redis.url=redis://a autoscaling.enabled=true resources.requests.cpu=null", "targetCPU is a part of resources.requests.cpu"},
		{up + "gateway.service.externalTrafficPolicy=Local", "is for the types LoadBalancer and NodePort"},
		// By the schema: one value.
		{up + "redis=null", "missing property 'redis'"},
		{up + "stop=null", "missing property 'stop'"},
		{up + "redis.secret=null", "missing property 'secret'"},
		{up + "gateway.service=null", "missing property 'service'"},
		{up + "config.rules[0].name=a config.rules[0].limits[0]=10/minute", "'10/minute' does not match pattern"},
		{up + "config.rules[0].name=a config.rules[0].limit=10", "additional properties 'limit' not allowed"},
		{up + "config.server.log.level=loud", "value must be one of 'debug', 'info', 'warn', 'error'"},
		{up + "config.server.listen=:80", "additional properties 'listen' not allowed"},
		{up + "config.server.admin.listen=:80", "additional properties 'listen' not allowed"},
		{up + "config.server.store=memory", "additional properties 'store' not allowed"},
		{up + "redis.url=redis:6379", "/redis/url"},
		{up + "redis.url=redis://a redis.secret.name=a redis.secret.files.passwort_file=a", "passwort_file"},
		{up + "replicas=two", "got string, want integer"},
		{up + "gateways.port=80", "additional properties 'gateways' not allowed"},
		{up + "fullnameOverride=a.b", "/fullnameOverride"},
		{up + "user=0", "/user"},
		{up + "push.rules.server.store=memory", "/push/rules"},
	}
	said := map[string]bool{}
	for _, test := range tests {
		r := rendering{chart: chart, name: "shop", namespace: "front", set: strings.Fields(test.set)}
		if _, err := r.render(); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v: want %q", test.set, err, test.says)
		}
		said[test.says] = true
	}
	if _, err := (rendering{chart: chart, name: "1a", namespace: "front", set: strings.Fields(up)}).render(); err == nil || !strings.Contains(err.Error(), "begins with a digit") {
		t.Errorf("a name that begins with a digit: %v", err)
	}
	text, err := os.ReadFile(chart + "/templates/_refused.tpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, sentence := range strings.Split(string(text), `fail "`)[1:] {
		sentence, _, _ = strings.Cut(sentence, `"`)
		held := strings.Contains(sentence, "begins with a digit")
		for says := range said {
			held = held || strings.Contains(sentence, says)
		}
		if !held {
			t.Errorf("no case says %q", sentence)
		}
	}
}

const (
	up    = "gateway.upstream=http://shop:80 "
	aPush = "redis.url=redis://a admin.enabled=true config.server.admin.tokens[0].name=a config.server.admin.tokens[0].scope=write " +
		"config.server.admin.tokens[0].file=/a push.enabled=true push.secret.name=a push.rules.rules[0].name=a push.rules.rules[0].key=client.ip push.rules.rules[0].limits[0]=unlimited"
)
