package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// What testdata/systemd/try prints. The sandbox of the unit is in force: the kernel says so.
const underSystemd = `installed: disabled inactive
started: serving active
CapBnd: 0000000000000000
NoNewPrivs: 1
Seccomp: 2
state: stint drwx------
check: 200
reloaded: 200 429
wrong: serving by the previous rules: the files have an error, which is in the log active
right: serving active
upgraded: serving active
stopped: success 0
no file: stint: rules: stat /etc/stint/stint.yaml: no such file or directory
port in use: stint: check API: listen tcp 127.0.0.1:8082: bind: address already in use (elsewhere: --check-listen ADDRESS, or STINT_SERVER_CHECK_LISTEN=ADDRESS; without it: --check-listen off)
state of another: serving active stint
socket: 502 serving active
removed: inactive inactive
purged:
`

var trailing = regexp.MustCompile(` +\n`)

// Under systemd, which is booted on a copy of this machine's files, the package's unit starts, reloads,
// takes its socket and is restarted by an upgrade; a removal stops it.
func TestPackageUnderSystemd(t *testing.T) {
	mustInstall(t)
	for _, name := range []string{"unshare", "pivot_root", "/lib/systemd/systemd"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("there is no %s", name)
		}
	}
	shared := t.TempDir()
	if err := os.Mkdir(filepath.Join(shared, "over"), 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "stint")
	if said, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	p := newPackager(t)
	for version, name := range map[string]string{"0.1.0": "first.deb", "0.1.1": "second.deb"} {
		if err := os.Rename(p.build(t, program, version, "deb"), filepath.Join(shared, name)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(shared, "try"), readText(t, "testdata/systemd/try"))
	boot, err := filepath.Abs("testdata/systemd/boot")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithTimeout(t.Context(), 5*time.Minute) // else it hangs
	defer end()
	c := exec.CommandContext(ctx, "unshare", "--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup", "bash", boot, shared)
	said, err := c.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && (exit.ExitCode() == 77 || strings.HasPrefix(string(said), "unshare: ")) {
		t.Skipf("systemd may not be booted here: %s", said)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if got := trailing.ReplaceAllString(readText(t, filepath.Join(shared, "out")), "\n"); got != underSystemd {
		t.Errorf("it printed\n%s\nwant\n%s", got, underSystemd)
	}
}
