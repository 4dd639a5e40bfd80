package rules_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// tree is a new directory with these files, by their paths.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), text)
	}
	return dir
}

func TestReadEnvoy(t *testing.T) {
	dir := tree(t, map[string]string{
		"b.yaml": "B", "a": "A", ".hidden.yaml": "H", "sub/c.yml": "C", "sub/deeper/d.yaml": "D", ".git/config": "G",
		"mounted/..v1/e.yaml": "E", "mounted/other.yaml": "of no version",
	})
	link(t, "..v1", filepath.Join(dir, "mounted/..data"))
	link(t, filepath.Join(dir, "a"), filepath.Join(dir, "link.yaml"))
	link(t, filepath.Join(dir, "sub"), filepath.Join(dir, "again"))
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(t.TempDir(), "current")
	link(t, dir, root)
	for _, c := range []struct {
		ignore bool
		want   string
	}{
		{false, "config=G .hidden.yaml=H a=A b.yaml=B link.yaml=A e.yaml=E c.yml=C d.yaml=D"},
		{true, "a=A b.yaml=B link.yaml=A e.yaml=E c.yml=C d.yaml=D"},
	} {
		e := rules.EnvoyFiles{Path: root, IgnoreDotFiles: c.ignore, MergeDomains: c.ignore}
		files, err := e.Read()
		if err != nil || said(files) != c.want {
			t.Errorf("ignore %v: %s, %v, want %s", c.ignore, said(files), err, c.want)
		}
		for _, f := range files {
			if !f.Envoy || f.MergeDomain != c.ignore || !strings.HasPrefix(f.Name, root+"/") {
				t.Errorf("ignore %v: %+v", c.ignore, f)
			}
		}
	}
}

func TestReadEnvoyErrors(t *testing.T) {
	empty := tree(t, map[string]string{".hidden": ""})
	nowhere := tree(t, map[string]string{"a.yaml": "A"})
	link(t, "gone", filepath.Join(nowhere, "b.yaml"))
	for path, want := range map[string]string{
		filepath.Join(empty, ".hidden"): ".hidden is not a directory",
		empty:                           "there is no file in it",
		nowhere:                         "b.yaml: no such file",
		filepath.Join(empty, "missing"): "missing: no such file",
	} {
		e := rules.EnvoyFiles{Path: path, IgnoreDotFiles: true}
		if _, err := e.Read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// TestWatchEnvoyLink swaps a link to the whole runtime directory, as a deployment by goruntime does.
// Files that are changed in place are taken with the next swap, or if Now asks.
func TestWatchEnvoyLink(t *testing.T) {
	dir := tree(t, map[string]string{"1/config/a.yaml": "version 1", "2/config/a.yaml": "version 2"})
	root := filepath.Join(dir, "current")
	link(t, "1", root)
	synctest.Test(t, func(t *testing.T) {
		e := &rules.EnvoyFiles{Path: filepath.Join(root, "config"), Link: root}
		files, err := e.Read()
		if err != nil {
			t.Fatal(err)
		}
		now := make(chan os.Signal)
		got := watchBy(t, rules.Watcher{Envoy: e, Now: now}, files)
		time.Sleep(2 * time.Second)
		write(t, filepath.Join(dir, "1/config/a.yaml"), "in place")
		time.Sleep(2 * time.Second)
		got.expect(t, 0)
		link(t, "2", filepath.Join(dir, "next"))
		if err := os.Rename(filepath.Join(dir, "next"), root); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		got.expect(t, 0, "version 2")
		write(t, filepath.Join(dir, "2/config/a.yaml"), "in place")
		now <- syscall.SIGHUP
		got.expect(t, 0, "version 2", "in place")
	})
}

// TestWatchEnvoyFiles has a Link that is no link, so that the files themselves count, and a rules
// file besides.
func TestWatchEnvoyFiles(t *testing.T) {
	dir := tree(t, map[string]string{"rules.yaml": "R", "config/a.yaml": "A"})
	at := func(name string) string { return filepath.Join(dir, name) }
	synctest.Test(t, func(t *testing.T) {
		e := &rules.EnvoyFiles{Path: at("config"), Link: at("config")}
		files, err := e.Read()
		if err != nil {
			t.Fatal(err)
		}
		mine, err := rules.Read(at("rules.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		got := watchBy(t, rules.Watcher{Path: at("rules.yaml"), Envoy: e}, append(mine, files...))
		time.Sleep(2 * time.Second)
		got.expect(t, 0)
		write(t, at("config/a.yaml"), "AA")
		time.Sleep(time.Second)
		got.expect(t, 0, "rules.yaml=R a.yaml=AA")
		write(t, at("rules.yaml"), "RR")
		time.Sleep(time.Second)
		got.expect(t, 0, "rules.yaml=R a.yaml=AA", "rules.yaml=RR a.yaml=AA")
		if err := os.Remove(at("config/a.yaml")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		got.expect(t, 1, "rules.yaml=R a.yaml=AA", "rules.yaml=RR a.yaml=AA")
	})
}

// A file that is longer than a rules file may be is read to its end.
func TestLongEnvoyFile(t *testing.T) {
	dir := t.TempDir()
	text := "domain: d\n" + strings.Repeat("# "+strings.Repeat("x", 97)+"\n", 50_000) + "descriptors:\n  - {key: a, rate_limit: {unit: minute, requests_per_unit: 1}}\n"
	if err := os.WriteFile(filepath.Join(dir, "d.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := (&rules.EnvoyFiles{Path: dir}).Read()
	if err != nil {
		t.Fatal(err)
	}
	s, err := rules.ParseFiles(files)
	if err != nil || len(s.Rules) != 2 {
		t.Errorf("%d of %d bytes, %v, %v", len(files[0].Data), len(text), s, err)
	}
}
