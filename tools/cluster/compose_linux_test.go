package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/container"
	"github.com/stintdev/stint/internal/redistest"
)

// The Stint of the compose file is healthy by its own check, and refuses the sixth login.
func TestComposeServes(t *testing.T) {
	t.Parallel()
	container.Need(t)
	s := composed(t).Services["stint"]
	n := &namespace{
		stored:   map[string]map[string]string{configMap + "rules": files(t, mounted(t, s, "/etc/stint"))},
		services: []service{{host: "redis", port: 6379, dial: to(redistest.Start(t).Addr)}, {host: "app", port: 80, dial: to(authority(shop(t).URL))}},
	}
	p := n.newPod(t, "stint", podOf(s))
	await.Until(t, "it is healthy", func() bool {
		code, _ := p.container.Run(t, n.variables(t, p.main()), s.HealthCheck.Test[1:]...)
		return code == 0
	})
	var codes []int
	for range 6 {
		codes = append(codes, p.ask(t, "http", "POST", "/login", "").code)
	}
	if !slices.Equal(codes, []int{200, 200, 200, 200, 200, 429}) {
		t.Errorf("logins: %v\n%s", codes, p.Log())
	}
	if got := p.ask(t, "probes", "GET", "/metrics", ""); got.code != 200 {
		t.Errorf("Prometheus gets %v", got)
	}
}

// podOf is a pod with what a service of the compose file has.
func podOf(s types.ServiceConfig) corev1.PodTemplateSpec {
	yes, no, user := true, false, int64(65532) // the image's
	c := corev1.Container{
		Name: s.Name, Args: s.Command,
		Ports:        []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "probes", ContainerPort: 8083}},
		VolumeMounts: []corev1.VolumeMount{{Name: "rules", MountPath: "/etc/stint", ReadOnly: true}},
		SecurityContext: &corev1.SecurityContext{
			ReadOnlyRootFilesystem: &s.ReadOnly, AllowPrivilegeEscalation: &no, RunAsNonRoot: &yes,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	for name, value := range s.Environment {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: *value})
	}
	// A busy machine must not decide by itself.
	c.Env = append(c.Env, corev1.EnvVar{Name: "STINT_SERVER_DECISION_TIMEOUT", Value: "10s"})
	rules := corev1.Volume{Name: "rules"}
	rules.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "rules"}}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{c}, Volumes: []corev1.Volume{rules},
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: &user, RunAsGroup: &user, FSGroup: &user},
	}}
}

func to(address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
}

// files are those of a folder.
func files(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(folder)
	for _, e := range entries {
		var text []byte
		if err == nil {
			text, err = os.ReadFile(filepath.Join(folder, e.Name()))
		}
		all[e.Name()] = string(text)
	}
	if err != nil || len(all) == 0 {
		t.Fatal(fmt.Sprint(len(all), " files: "), err)
	}
	return all
}
