package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stintdev/stint/internal/await"
)

// A pod runs as a user who may do nothing more, writes into its emptyDir alone, and knows its limit of memory.
func TestPodRestricted(t *testing.T) {
	t.Parallel()
	n := install(t, withRedis(t, startRedis(t), "fleet"))
	var before []string
	for _, p := range n.pods {
		before = append(before, tree(t, p.root))
	}
	if code, out := n.runJob(t, "stint-push"); code != 0 { // the instances keep the rules
		t.Fatalf("exit %d: %s", code, out)
	}
	for i, p := range n.pods {
		none := strings.Repeat("0", 16)
		want := strings.Join([]string{"65532 65532 65532 65532", "65532 65532 65532 65532", "65532", "1", none, none, none, none, none}, "|")
		if got := p.Status(t, "Uid", "Gid", "Groups", "NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"); got != want {
			t.Errorf("%s runs as %s", p.name, got)
		}
		if got := writable(t, p.Cmd.Process.Pid); !slices.Equal(got, []string{"/var/lib/stint"}) {
			t.Errorf("%s may write %s", p.name, got)
		}
		limits := p.main().Resources.Limits
		p.logged(t, fmt.Sprintf("memory=%dMiB from=cgroup", limits.Memory().Value()>>20), 1)
		if strings.Contains(p.Log(), "exceed its memory") {
			t.Errorf("%s warns of its memory:\n%s", p.name, p.Log())
		}
		state := p.volumes["state"].folder
		await.Until(t, p.name+" keeps the rules", func() bool { return strings.Count(tree(t, state), "\n") > 2 })
		for _, line := range strings.Split(strings.TrimSpace(tree(t, state)), "\n")[1:] {
			if !strings.Contains(line, " 65532:65532 ") {
				t.Errorf("in the state: %s", line)
			}
		}
		if after := tree(t, p.root); after != before[i] {
			t.Errorf("%s has changed its root folder:\n%s\nbefore:\n%s", p.name, after, before[i])
		}
	}
}

// tree lists a folder with what changes if it is written to.
func tree(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(folder, func(at string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) { // it was there a moment ago
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		of := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&all, "%s %d:%d %s %d %s\n", info.Mode(), of.Uid, of.Gid, info.ModTime(), info.Size(), at)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// writable are the mounts of a process that are not read-only, but for those of the system.
func writable(t *testing.T, pid int) (all []string) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line) // proc_pid_mountinfo(5): the mount point, and its options
		if at := fields[4]; at != "/proc" && !strings.HasPrefix(at, "/proc/") && slices.Contains(strings.Split(fields[5], ","), "rw") {
			all = append(all, at)
		}
	}
	return all
}
