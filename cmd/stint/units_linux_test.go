package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stintdev/stint/server/config"
)

const packaging = "../../packaging/"

// The first file of the packages has no finding, and nothing in it is reached from elsewhere.
func TestPackagedFile(t *testing.T) {
	path := packaging + "stint.yaml"
	if code, out, errs := call("", "rules", "check", "--strict", path); code != 0 || strings.Count(out, "\n") != 1 || errs != "" {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	s, _, err := readConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{s.Listen, s.CheckListen, s.Admin.Listen} {
		if !strings.HasPrefix(address, "127.0.0.1:") {
			t.Errorf("it listens on %s", address)
		}
	}
	socket := unit(t, packaging+"stint.socket")
	if got := socket["ListenStream"]; len(got) != 1 || got[0] != s.Listen {
		t.Errorf("stint.socket listens on %q, and the file on %s", got, s.Listen)
	}
	if got := socket["FileDescriptorName"]; len(got) != 1 || got[0] != "gateway" {
		t.Errorf("stint.socket is called %q", got)
	}
}

// unit is what a unit of systemd sets, section by section in one.
func unit(t *testing.T, path string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for line := range strings.Lines(readText(t, path)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			all[name] = append(all[name], value)
		}
	}
	return all
}

// mostExposed is what systemd-analyze security may say of the unit, in tenths.
const mostExposed = "15"

// The units have no errors, and the service may do little.
func TestUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze: apt-get install systemd")
	}
	dir := t.TempDir()
	for _, name := range []string{"stint.service", "stint.socket"} {
		// The program of the packages is not installed here.
		text := strings.ReplaceAll(readText(t, packaging+name), "/usr/bin/stint", "/bin/true")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	service := filepath.Join(dir, "stint.service")
	said, err := exec.Command(analyze, "verify", "--man=no", service, filepath.Join(dir, "stint.socket")).CombinedOutput()
	if err != nil || len(said) > 0 {
		t.Errorf("verify: %v\n%s", err, said)
	}
	said, err = exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold="+mostExposed, service).CombinedOutput()
	if err != nil {
		t.Errorf("security: %v\n%s", err, said)
	}
	_, overall, _ := strings.Cut(string(said), "Overall exposure level")
	t.Log(strings.TrimSpace(overall))
}

// The unit gives the instance more time to stop than it takes.
func TestUnitOutlivesTheStop(t *testing.T) {
	s := config.Default()
	if got := unit(t, packaging+"stint.service")["TimeoutStopSec"]; len(got) != 1 || got[0] != "60" || s.StopDelay+s.StopTimeout >= 60e9 {
		t.Errorf("TimeoutStopSec %q, and the defaults take %s", got, s.StopDelay+s.StopTimeout)
	}
}
