package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// A switching is a value for each switch of the chart.
type switching map[string]bool

func (s switching) set() (values []string) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		values = append(values, fmt.Sprintf("%s=%t", name, s[name]))
	}
	return values
}

// pairs are its pairs of switches, with their values.
func (s switching) pairs() (all []string) {
	values := s.set()
	for i, a := range values {
		for _, b := range values[:i] {
			all = append(all, b+" "+a)
		}
	}
	return all
}

// switches are the boolean values of values.yaml.
func switches(t *testing.T) (names []string) {
	t.Helper()
	file, err := os.Open(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	values, err := loader.LoadValues(file)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(prefix string, in map[string]any)
	walk = func(prefix string, in map[string]any) {
		for name, value := range in {
			switch v := value.(type) {
			case bool:
				names = append(names, prefix+name)
			case map[string]any:
				walk(prefix+name+".", v)
			}
		}
	}
	walk("", values)
	slices.Sort(names)
	return names
}

// fits says whether the chart accepts s. Of pairs alone, it refuses a push without an admin API.
func (s switching) fits() bool {
	return (s["gateway.enabled"] || s["check.enabled"] || s["envoy.enabled"]) && (s["admin.enabled"] || !s["push.enabled"])
}

// Whichever way two switches are, the objects fit their schemas and each other. Switchings are drawn until
// each pair has been seen.
func TestSwitches(t *testing.T) {
	t.Parallel()
	names := switches(t)
	random := rand.New(rand.NewPCG(1, 2))
	draw := func() switching {
		for {
			s := switching{}
			for _, name := range names {
				s[name] = random.IntN(2) == 0
			}
			if s.fits() {
				return s
			}
		}
	}
	missing := map[string]bool{}
	for range 1000 {
		for _, pair := range draw().pairs() {
			missing[pair] = true
		}
	}
	if n := len(names); n < 12 || len(missing) != 2*n*(n-1)-1 {
		t.Fatalf("%d pairs of the switches %v", len(missing), names)
	}
	seen := 0
	for len(missing) > 0 {
		next, most := switching{}, 0
		for most == 0 {
			for range 100 {
				s, n := draw(), 0
				for _, pair := range s.pairs() {
					if missing[pair] {
						n++
					}
				}
				if n > most {
					next, most = s, n
				}
			}
		}
		seen++
		for _, pair := range next.pairs() {
			delete(missing, pair)
		}
		t.Run(strings.Join(next.on(), ","), func(t *testing.T) {
			t.Parallel()
			r := everything(next.set()...)
			out := r.must(t)
			validate(t, out.objects)
			for _, problem := range problems(out.objects, append(secrets, "default")...) {
				t.Error(problem)
			}
			for _, m := range linted(t, r) {
				t.Error(m)
			}
		})
	}
	t.Logf("%d switchings show each pair of %d switches", seen, len(names))
}

// on are the names of what is on.
func (s switching) on() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if s[name] {
			names = append(names, strings.TrimSuffix(name, ".enabled"))
		}
	}
	return names
}

// secrets are the names of Secrets that values name.
var secrets = []string{"stint-redis", "stint-check", "stint-admin"}

// everything is a release with what each switch needs.
func everything(set ...string) rendering {
	return rendering{chart: chart, name: "shop", namespace: "front", values: []string{"testdata/everything.yaml"}, set: set}
}

// all turns on every switch.
func all(t *testing.T) (set []string) {
	t.Helper()
	for _, name := range switches(t) {
		set = append(set, name+"=true")
	}
	return set
}

// The objects of each file of values fit each other, under any name of a release.
func TestObjects(t *testing.T) {
	t.Parallel()
	for name, r := range uses(t) {
		for _, problem := range problems(r.must(t).objects, secrets...) {
			t.Errorf("%s: %s", name, problem)
		}
	}
	for _, name := range []string{"stint", strings.Repeat("a", 53), strings.Repeat("a-", 26) + "a"} {
		r := everything(all(t)...)
		r.name = name
		for _, problem := range problems(r.must(t).objects, secrets...) {
			t.Errorf("%s: %s", name, problem)
		}
	}
	own := aRelease("gateway.yaml")
	own.set = []string{"redis.secret.name=", "redis.secret.files=null", "redis.password=abc"}
	for _, problem := range problems(own.must(t).objects) {
		t.Errorf("with a password in the values: %s", problem)
	}
}

// Each check of objects can fail.
func TestObjectsWrong(t *testing.T) {
	t.Parallel()
	objects := everything(all(t)...).must(t).objects
	if found := problems(objects, secrets...); len(found) > 0 {
		t.Fatal(found)
	}
	const server, push = "app.kubernetes.io/component: server", "app.kubernetes.io/component: push"
	for _, test := range []struct{ kind, old, now, says string }{
		{"Service", "name: shop-stint", "name: shop.stint", "the name shop.stint"},
		{"Service", "app.kubernetes.io/instance: shop", "app.kubernetes.io/instance: " + strings.Repeat("a", 64), "the label"},
		{"Service", server, "a: b", "meets the pod of stint/templates/deployment.yaml: Deployment shop-stint: false"},
		{"Service", "    " + server + "\n", "", "meets the pod of stint/templates/push.yaml: Job shop-stint-push: true"},
		{"Service", "targetPort: http", "targetPort: web", "no container has the port web"},
		{"Job", push, server, "shop-stint-push: true"},
		{"Pod", "component: test", "component: server", "shop-stint-ready: true"},
		{"PodDisruptionBudget", server, "a: b", "Deployment shop-stint: false"},
		{"NetworkPolicy", server, "a: b", "Deployment shop-stint: false"},
		{"NetworkPolicy", "port: http-check", "port: check", "no container has the port check"},
		{"HorizontalPodAutoscaler", "name: shop-stint\n  min", "name: shop\n  min", "it scales"},
		{"ServiceMonitor", "app.kubernetes.io/component: api", "app.kubernetes.io/component: none", "meets 0 Services"},
		{"ServiceMonitor", "port: http-metrics", "port: metrics", "the Service has no port metrics"},
		{"Deployment", "spec:\n  selector", "spec:\n  replicas: 2\n  selector", "the Deployment has replicas"},
		{"Deployment", "spec:\n  selector", "spec:\n  replica: 2\n  selector", "unknown field"},
		{"Deployment", "cpu: ", "cpu: a", "quantities must match"},
		{"Deployment", "name: http-check", "name: http-check-of-a-port", "must be no more than 15 characters"},
		{"Deployment", "containerPort: 8082", "containerPort: 8081", "is there twice"},
		{"Deployment", "path: /readyz, port: http-metrics", "path: /readyz, port: metrics", "the readiness probe asks the port metrics"},
		{"Deployment", "livenessProbe:", "lifecycle: {}\n          startupProbe:", "already set"},
		{"Deployment", "terminationGracePeriodSeconds: 35", "terminationGracePeriodSeconds: 30", "is killed before"},
		{"Deployment", "STINT_SERVER_STOP_DELAY", "STINT_STOP_DELAY", "STINT_SERVER_STOP_DELAY is not set"},
		{"Deployment", "configMap: {name: shop-stint}", "configMap: {name: shop}", "nobody makes the ConfigMap shop"},
		{"Deployment", "secretName: stint-check", "secretName: check", "nobody makes the Secret check"},
		{"Deployment", "{name: state, mountPath", "{name: states, mountPath", "has no volume"},
		{"Deployment", "mountPath: /etc/stint-envoy", "mountPath: /etc/envoy", "nothing is mounted at /etc/stint-envoy"},
		{"Deployment", "mountPath: /etc/stint,", "subPath: stint.yaml, mountPath: /etc/stint,", "by subPath"},
		{"Deployment", "serviceAccountName: shop-stint", "serviceAccountName: shop", "nobody makes the ServiceAccount shop"},
		{"Job", "key: \"deploy\"", "name: none, key: \"deploy\"", "already set"},
		{"Deployment", "runAsNonRoot: true", "runAsNonRoot: false", "runAsNonRoot"},
		{"Job", "seccompProfile: {type: RuntimeDefault}", "seccompProfile: {type: Unconfined}", "seccompProfile"},
		{"Pod", "drop: [ALL]", "drop: [NET_RAW]", "unrestricted capabilities"},
		{"Pod", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "allowPrivilegeEscalation"},
		{"Deployment", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "may write"},
		{"Deployment", "automountServiceAccountToken: false", "automountServiceAccountToken: true", "has a token"},
	} {
		wrong := slices.Clone(objects)
		i := slices.IndexFunc(wrong, func(o object) bool { return o.kind() == test.kind && strings.Contains(o.text, test.old) })
		if i < 0 {
			t.Errorf("no %s has %q", test.kind, test.old)
			continue
		}
		o := &wrong[i]
		o.text = strings.ReplaceAll(o.text, test.old, test.now)
		if fields, err := read(o.text); err == nil { // else the check itself says so
			o.fields = fields
		}
		if found := strings.Join(problems(wrong, secrets...), "\n"); !strings.Contains(found, test.says) {
			t.Errorf("%s with %q: %s\nwant %q", test.kind, test.now, found, test.says)
		}
	}
}
