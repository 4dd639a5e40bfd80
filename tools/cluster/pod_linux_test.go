package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/container"
)

// entrypoint is the one of the image, which has the program there: tools/dist/image.
const entrypoint = "/usr/bin/stint"

// program builds stint as other tests do, so that they share what is compiled.
var program = sync.OnceValues(func() (path string, err error) {
	if programFolder, err = os.MkdirTemp("", "stint-cluster-"); err != nil {
		return "", err
	}
	path = filepath.Join(programFolder, "stint")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", path, "./cmd/stint").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// A pod runs here with the command, the variables, the volumes, the user and the ports that it has in a cluster.
// It lacks the profile of seccomp, and its limit of memory is told to the program but not enforced: a cgroup
// would be one of whoever runs the tests.
type pod struct {
	*container.Process
	name      string
	labels    map[string]string
	spec      corev1.PodSpec
	root      string // the folder on this machine
	container *container.Container
	volumes   map[string]*volume
	client    *http.Client // connects as another pod does
}

// main is the pod's only container.
func (p *pod) main() corev1.Container { return p.spec.Containers[0] }

// newPod starts the container of a pod.
func (n *namespace) newPod(t *testing.T, name string, template corev1.PodTemplateSpec) *pod {
	t.Helper()
	spec := template.Spec
	if len(spec.Containers) != 1 || len(spec.InitContainers) > 0 {
		t.Fatalf("%s has not one container", name)
	}
	p := &pod{name: name, labels: template.Labels, spec: spec, root: t.TempDir(), volumes: map[string]*volume{}}
	restricted(t, p)
	o := container.Options{
		Root: p.root, OwnNetwork: true,
		User: uint32(*spec.SecurityContext.RunAsUser), Group: uint32(*spec.SecurityContext.RunAsGroup),
		Groups: []uint32{uint32(*spec.SecurityContext.FSGroup)},
	}
	built, err := program()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p.root, 0o755); err != nil {
		t.Fatal(err)
	}
	o.Mounts = append(container.Libraries(), container.Mount{From: built, At: entrypoint},
		container.Mount{From: n.hosts(t), At: "/etc/hosts"}, container.Mount{From: memory(t, p.main()), At: "/sys/fs/cgroup"})
	o.Mounts = append(o.Mounts, n.mounts(t, p)...)
	p.container = container.New(t, o)
	n.serve(t, p)
	transport := &http.Transport{DialContext: p.container.Dial}
	p.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)

	command := p.main().Command
	if command == nil {
		command = []string{entrypoint}
	}
	p.Process = p.container.Start(t, n.variables(t, p.main()), append(command, p.main().Args...)...)
	return p
}

// restricted fails if a pod does not ask for what its container here has in any case.
func restricted(t *testing.T, p *pod) {
	t.Helper()
	own, whole := p.main().SecurityContext, p.spec.SecurityContext
	if own == nil || own.ReadOnlyRootFilesystem == nil || !*own.ReadOnlyRootFilesystem ||
		own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation ||
		own.Capabilities == nil || fmt.Sprint(own.Capabilities.Drop) != "[ALL]" || own.Capabilities.Add != nil ||
		whole == nil || whole.RunAsUser == nil || whole.RunAsGroup == nil || whole.FSGroup == nil {
		t.Fatalf("%s: its security context does not say all: %v, %v", p.name, whole, own)
	}
}

// memory makes the folder in which a container sees its limit of memory, for both versions of cgroups.
func memory(t *testing.T, c corev1.Container) (folder string) {
	t.Helper()
	folder = t.TempDir()
	limit := fmt.Sprintln(c.Resources.Limits.Memory().Value())
	if err := os.Mkdir(filepath.Join(folder, "memory"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(limit), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// mounts makes the pod's volumes.
func (n *namespace) mounts(t *testing.T, p *pod) (all []container.Mount) {
	t.Helper()
	dir := t.TempDir()
	for _, v := range p.spec.Volumes {
		made, err := newVolume(v, filepath.Join(dir, v.Name), int(*p.spec.SecurityContext.FSGroup))
		if err == nil && made.of != "" {
			err = made.write(n.data(t, made.of))
		}
		if err != nil {
			t.Fatal(err)
		}
		p.volumes[v.Name] = made
	}
	for _, m := range p.main().VolumeMounts {
		v := p.volumes[m.Name]
		if v == nil || m.SubPath != "" {
			t.Fatalf("%s: mount %s has no volume, or is a part of one", p.name, m.Name)
		}
		all = append(all, container.Mount{From: v.folder, At: m.MountPath, Writable: v.of == "" && !m.ReadOnly})
	}
	return all
}

// variables are the environment of a container.
func (n *namespace) variables(t *testing.T, c corev1.Container) (all []string) {
	t.Helper()
	if c.EnvFrom != nil {
		t.Fatal("envFrom is not known here")
	}
	for _, v := range c.Env {
		value := v.Value
		if from := v.ValueFrom; from != nil {
			if from.SecretKeyRef == nil {
				t.Fatalf("%s: its source is not known here", v.Name)
			}
			data, ok := n.data(t, secret+from.SecretKeyRef.Name)[from.SecretKeyRef.Key]
			if !ok {
				t.Fatalf("%s: there is no key %s", v.Name, from.SecretKeyRef)
			}
			value = data
		}
		all = append(all, v.Name+"="+value)
	}
	return all
}

// port is the number of one of the pod's ports, which may be a name.
func (p *pod) port(t *testing.T, port intstr.IntOrString) int {
	t.Helper()
	if port.Type == intstr.Int {
		return port.IntValue()
	}
	for _, known := range p.main().Ports {
		if known.Name == port.StrVal {
			return int(known.ContainerPort)
		}
	}
	t.Fatalf("%s has no port %s", p.name, port.StrVal)
	return 0
}

// address is that of one of the pod's ports for other pods.
func (p *pod) address(t *testing.T, port string) string {
	t.Helper()
	return net.JoinHostPort(container.Address, fmt.Sprint(p.port(t, intstr.FromString(port))))
}

// An answer is what a pod has sent.
type answer struct {
	code int
	body string
}

// ask sends a request to a port, with headers such as "Stint-Token: x".
func (p *pod) ask(t *testing.T, port, method, path, body string, headers ...string) answer {
	t.Helper()
	got, err := send(p.client, method, "http://"+p.address(t, port)+path, body, headers...)
	if err != nil {
		t.Fatalf("%v\n%s", err, p.Log())
	}
	return got
}

func send(c *http.Client, method, url, body string, headers ...string) (answer, error) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	resp, err := c.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(text)}, err
}

// probe asks what the kubelet asks.
func (p *pod) probe(t *testing.T, probe *corev1.Probe) (answer, error) {
	t.Helper()
	if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Scheme != "" && probe.HTTPGet.Scheme != corev1.URISchemeHTTP {
		t.Fatalf("%s: there is no probe, or one of a kind that is not known here", p.name)
	}
	at := net.JoinHostPort(container.Address, fmt.Sprint(p.port(t, probe.HTTPGet.Port)))
	return send(p.client, http.MethodGet, "http://"+at+probe.HTTPGet.Path, "")
}

// awaitReady waits as the kubelet does: for the start, and then until a Service may lead here.
func (p *pod) awaitReady(t *testing.T) {
	t.Helper()
	for _, probe := range []*corev1.Probe{p.main().StartupProbe, p.main().ReadinessProbe} {
		var got answer
		var err error
		if !await.So(func() bool {
			got, err = p.probe(t, probe)
			return err == nil && got.code == http.StatusOK || syscall.Kill(p.Cmd.Process.Pid, 0) != nil
		}) || got.code != http.StatusOK {
			t.Fatalf("%s is not ready: %v %v\n%s", p.name, got, err, p.Log())
		}
	}
}

// terminate tells the pod to end, as the kubelet does. ended waits until it has, and returns the exit code, which
// is -1 if the grace period was over before.
func (p *pod) terminate(t *testing.T) (ended func() int) {
	t.Helper()
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	over := time.AfterFunc(time.Duration(*p.spec.TerminationGracePeriodSeconds)*time.Second, func() { _ = p.Cmd.Process.Kill() })
	return func() int {
		defer over.Stop()
		_ = p.Ended()
		return p.ProcessState.ExitCode()
	}
}

// logged waits until the log has a text, so many times.
func (p *pod) logged(t *testing.T, text string, times int) {
	t.Helper()
	if !await.So(func() bool { return strings.Count(p.Log(), text) >= times }) {
		t.Fatalf("%s: the log has %q not %d times:\n%s", p.name, text, times, p.Log())
	}
}

// forward leads what connects to l elsewhere.
func forward(l net.Listener, dial func(context.Context) (net.Conn, error)) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := dial(context.Background())
			if err != nil {
				return
			}
			defer to.Close()
			var both sync.WaitGroup
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				both.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].(*net.TCPConn).CloseWrite()
				})
			}
			both.Wait()
		}()
	}
}
