package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// composed is what docker compose reads in deploy/compose.
func composed(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../../deploy/compose/compose.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// What the compose file mounts is there, other machines reach nothing, and Stint has the rights that it has in a
// cluster, and the time to end.
func TestCompose(t *testing.T) {
	t.Parallel()
	project := composed(t)
	for name, s := range project.Services {
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s mounts %s: %v, read-only %v", name, v.Source, err, v.ReadOnly)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q", name, p.Published, p.HostIP)
			}
		}
		for on, how := range s.DependsOn {
			if how.Condition == types.ServiceConditionHealthy && project.Services[on].HealthCheck == nil {
				t.Errorf("%s waits for the health of %s, which has no check", name, on)
			}
		}
		if name, tag, _ := strings.Cut(s.Image, ":"); tag == "" || tag == "latest" && name != "ghcr.io/stintdev/stint" {
			t.Errorf("%s: image %s may change by itself", s.Name, s.Image)
		}
	}
	stint := project.Services["stint"]
	if !stint.ReadOnly || !slices.Equal(stint.CapDrop, []string{"ALL"}) || !slices.Contains(stint.SecurityOpt, "no-new-privileges:true") {
		t.Errorf("Stint may do more than it needs: %v %v %v", stint.ReadOnly, stint.CapDrop, stint.SecurityOpt)
	}
	stop, err := time.ParseDuration(*stint.Environment["STINT_SERVER_STOP_TIMEOUT"])
	if grace := time.Duration(*stint.StopGracePeriod); err != nil || grace <= stop {
		t.Errorf("it is killed after %s, and may take %s: %v", grace, stop, err)
	}
}

// Prometheus takes its configuration, with the alerts where the compose file mounts them.
func TestComposePrometheus(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("STINT_REQUIRE_MONITORING") != "" {
			t.Fatal("STINT_REQUIRE_MONITORING is set, and promtool is not installed")
		}
		t.Skip("promtool is not installed")
	}
	folder, s := t.TempDir(), composed(t).Services["prometheus"]
	for _, name := range []string{"prometheus.yml", "stint-alerts.yml"} {
		text, err := os.ReadFile(mounted(t, s, "/etc/prometheus/"+name))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "config", filepath.Join(folder, "prometheus.yml")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// mounted is the file of this machine that a service sees at path.
func mounted(t *testing.T, s types.ServiceConfig, path string) string {
	t.Helper()
	for _, v := range s.Volumes {
		if rest, ok := strings.CutPrefix(path, v.Target); ok && (rest == "" || rest[0] == '/') {
			return filepath.Join(v.Source, rest)
		}
	}
	t.Fatalf("%s has no %s", s.Name, path)
	return ""
}
