package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/stintdev/stint/internal/container"
)

// Prefixes of what has data.
const (
	configMap = "ConfigMap "
	secret    = "Secret "
)

// A namespace has what a chart made, and the Secrets and the programs that its values name.
type namespace struct {
	objects  []object
	stored   map[string]map[string]string // data, by kind and name, such as "Secret stint-redis"
	services []service
	pods     []*pod // of the Deployment
}

// A service is a name and a port that pods connect to.
type service struct {
	host     string
	port     int
	selector labels.Selector // of the pods that it leads to; nil: it leads out of the cluster
	dial     func(context.Context) (net.Conn, error)
}

// What there is before a chart is installed.
type before struct {
	values  []string          // the names of files in deploy/values
	set     []string          // such as replicas=1
	secrets map[string]string // by name and key, such as stint-redis/password
	outside map[string]string // addresses of this machine, by host and port in the cluster, such as redis:6379
}

// install renders the chart, starts the pods of its Deployment, and waits until they are ready.
func install(t *testing.T, b before) *namespace {
	t.Helper()
	n := create(t, b)
	for _, p := range n.pods {
		p.awaitReady(t)
	}
	return n
}

// create is install without waiting.
func create(t *testing.T, b before) *namespace {
	t.Helper()
	container.Need(t)
	n := &namespace{objects: b.rendered(t), stored: map[string]map[string]string{}}
	for at, value := range b.secrets {
		name, key, _ := strings.Cut(at, "/")
		if n.stored[secret+name] == nil {
			n.stored[secret+name] = map[string]string{}
		}
		n.stored[secret+name][key] = value
	}
	for at, to := range b.outside {
		host, port, err := net.SplitHostPort(at)
		if err != nil {
			t.Fatal(err)
		}
		s := service{host: host, dial: func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", to) }}
		if _, err := fmt.Sscan(port, &s.port); err != nil {
			t.Fatal(err)
		}
		n.services = append(n.services, s)
	}
	for _, o := range n.objects {
		switch o.kind() {
		case "ConfigMap":
			n.stored[configMap+o.name()] = decode[corev1.ConfigMap](t, o).Data
		case "Secret":
			n.stored[secret+o.name()] = decode[corev1.Secret](t, o).StringData
		case "Service":
			n.expose(t, decode[corev1.Service](t, o))
		}
	}
	deployment := decode[appsv1.Deployment](t, n.object(t, "Deployment", "stint"))
	for i := range *deployment.Spec.Replicas {
		n.pods = append(n.pods, n.newPod(t, fmt.Sprintf("%s-%d", deployment.Name, i), deployment.Spec.Template))
	}
	return n
}

func (b before) rendered(t *testing.T) []object {
	t.Helper()
	r := rendering{chart: "../../deploy/chart", name: "stint", namespace: "default", set: b.set}
	for _, name := range b.values {
		r.values = append(r.values, filepath.Join("../../deploy/values", name+".yaml"))
	}
	out, err := r.render()
	if err != nil {
		t.Fatal(err)
	}
	return out.objects
}

func decode[T any](t *testing.T, o object) (v T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(o.text), &v); err != nil {
		t.Fatalf("%s: %v", o, err)
	}
	return v
}

func (n *namespace) object(t *testing.T, kind, name string) object {
	t.Helper()
	i := slices.IndexFunc(n.objects, func(o object) bool { return o.kind() == kind && o.name() == name })
	if i < 0 {
		t.Fatalf("the chart makes no %s %s", kind, name)
	}
	return n.objects[i]
}

// data is that of a ConfigMap or a Secret.
func (n *namespace) data(t *testing.T, of string) map[string]string {
	t.Helper()
	data, ok := n.stored[of]
	if !ok {
		t.Fatalf("there is no %s", of)
	}
	return data
}

// update changes a key of a ConfigMap or a Secret, and what the pods' volumes show of it.
func (n *namespace) update(t *testing.T, of, key, value string) {
	t.Helper()
	n.stored[of] = maps.Clone(n.data(t, of))
	n.stored[of][key] = value
	shown := 0
	for _, p := range n.pods {
		for _, v := range p.volumes {
			if v.of != of {
				continue
			}
			shown++
			if err := v.write(n.stored[of]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if shown == 0 {
		t.Fatalf("no pod shows %s", of)
	}
}

// expose leads the name of a Service to the pods that it selects, in turn.
func (n *namespace) expose(t *testing.T, s corev1.Service) {
	t.Helper()
	selector := labels.SelectorFromSet(s.Spec.Selector)
	for _, port := range s.Spec.Ports {
		turn := new(atomic.Uint64)
		n.services = append(n.services, service{host: s.Name, port: int(port.Port), selector: selector, dial: func(ctx context.Context) (net.Conn, error) {
			var to []*pod
			for _, p := range n.pods {
				if selector.Matches(labels.Set(p.labels)) {
					to = append(to, p)
				}
			}
			if len(to) == 0 {
				return nil, fmt.Errorf("service %s selects no pod", s.Name)
			}
			p := to[turn.Add(1)%uint64(len(to))]
			return p.container.Dial(ctx, "tcp", net.JoinHostPort(container.Address, fmt.Sprint(p.port(t, port.TargetPort))))
		}})
	}
}

// hosts makes the /etc/hosts of a pod, where a cluster has DNS. A service at index i has the address 10.96.1.i.
func (n *namespace) hosts(t *testing.T) (path string) {
	t.Helper()
	var text strings.Builder
	fmt.Fprintln(&text, "127.0.0.1 localhost")
	for i, s := range n.services {
		if i == n.first(s.host) {
			fmt.Fprintf(&text, "10.96.1.%d %s\n", i, s.host)
		}
	}
	path = filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// first is the index of the first service with this name.
func (n *namespace) first(host string) int {
	return slices.IndexFunc(n.services, func(s service) bool { return s.host == host })
}

// serve leads the addresses of the services in a pod's network to where they are. Those that lead to the pod
// itself are left out, because they would take its ports.
func (n *namespace) serve(t *testing.T, p *pod) {
	t.Helper()
	for _, s := range n.services {
		if s.selector != nil && s.selector.Matches(labels.Set(p.labels)) {
			continue
		}
		l, err := p.container.Listen("tcp", fmt.Sprintf("10.96.1.%d:%d", n.first(s.host), s.port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go forward(l, s.dial)
	}
}

// runJob runs the pod of a Job once, to its end.
func (n *namespace) runJob(t *testing.T, name string) (code int, out string) {
	t.Helper()
	return n.runToEnd(t, name, decode[batchv1.Job](t, n.object(t, "Job", name)).Spec.Template)
}

// runPod runs a pod that a chart has for helm test, to its end.
func (n *namespace) runPod(t *testing.T, name string) (code int, out string) {
	t.Helper()
	p := decode[corev1.Pod](t, n.object(t, "Pod", name))
	return n.runToEnd(t, name, corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec})
}

func (n *namespace) runToEnd(t *testing.T, name string, template corev1.PodTemplateSpec) (code int, out string) {
	t.Helper()
	p := n.newPod(t, name, template)
	_ = p.Ended()
	return p.ProcessState.ExitCode(), p.Log()
}
