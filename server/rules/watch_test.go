package rules_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server/rules"
)

// told is what a Watcher tells, in order.
type told struct {
	mu    sync.Mutex
	texts []string
	errs  int
}

// said is what files hold: the text of a single one, else each behind its name.
func said(files []rules.File) string {
	if len(files) == 1 {
		return string(files[0].Data)
	}
	var all []string
	for _, f := range files {
		all = append(all, filepath.Base(f.Name)+"="+string(f.Data))
	}
	return strings.Join(all, " ")
}

func watch(t *testing.T, path string, now chan os.Signal) *told {
	t.Helper()
	return watchBy(t, rules.Watcher{Path: path, Now: now}, read(t, path))
}

func read(t *testing.T, path string) []rules.File {
	t.Helper()
	files, err := rules.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// watchBy runs w with a Changed of its own.
func watchBy(t *testing.T, w rules.Watcher, files []rules.File) *told {
	var got told
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Every = time.Second
		w.Changed = func(files []rules.File, err error) {
			got.mu.Lock()
			defer got.mu.Unlock()
			if err != nil {
				got.errs++
				return
			}
			got.texts = append(got.texts, said(files))
		}
		w.Run(ctx, files)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return &got
}

func (got *told) expect(t *testing.T, errs int, texts ...string) {
	t.Helper()
	synctest.Wait()
	got.mu.Lock()
	defer got.mu.Unlock()
	if got.errs != errs || fmt.Sprint(got.texts) != fmt.Sprint(texts) {
		t.Errorf("told %q and %d errors, want %q and %d", got.texts, got.errs, texts, errs)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, "one")
	synctest.Test(t, func(t *testing.T) {
		now := make(chan os.Signal)
		answered := 0
		got := watchBy(t, rules.Watcher{Path: path, Now: now, Answered: func() { answered++ }}, read(t, path))
		time.Sleep(5 * time.Second)
		got.expect(t, 0)

		write(t, path, "three") // another length
		time.Sleep(time.Second)
		got.expect(t, 0, "three")

		replacement := path + ".new" // as editors do
		write(t, replacement, "forty")
		if err := os.Rename(replacement, path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		got.expect(t, 0, "three", "forty")

		touched := time.Now().Add(time.Hour) // another time, the same text
		if err := os.Chtimes(path, touched, touched); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		got.expect(t, 0, "three", "forty")

		if answered > 0 {
			t.Error("it answers what nobody has asked")
		}
		now <- syscall.SIGHUP
		got.expect(t, 0, "three", "forty", "forty")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		now <- syscall.SIGHUP
		got.expect(t, 1, "three", "forty", "forty")
		if answered != 2 {
			t.Errorf("of two questions, %d were answered", answered)
		}
	})
}

// A file that is away is told once, when it is away for longer than a replacement
// takes; when it is back with the same text, nothing has changed.
func TestWatchMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, "one")
	synctest.Test(t, func(t *testing.T) {
		now := make(chan os.Signal)
		got := watch(t, path, now)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		got.expect(t, 0)
		time.Sleep(5 * time.Second)
		got.expect(t, 1)
		now <- syscall.SIGHUP
		got.expect(t, 2)
		write(t, path, "one")
		time.Sleep(time.Second)
		got.expect(t, 2)
		write(t, path, "another")
		time.Sleep(time.Second)
		got.expect(t, 2, "another")
	})
}

// Kubernetes mounts a ConfigMap as links through ..data, and swaps that.
func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "rules.yaml"), "version "+version)
	}
	link(t, "1", filepath.Join(dir, "..data"))
	link(t, "..data/rules.yaml", filepath.Join(dir, "rules.yaml"))
	synctest.Test(t, func(t *testing.T) {
		got := watch(t, filepath.Join(dir, "rules.yaml"), nil)
		link(t, "2", filepath.Join(dir, "..data_tmp"))
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		got.expect(t, 0, "version 2")
	})
}

// A directory is told of anew when a file in it is added, changed, renamed,
// replaced or removed, and not when something else lies in it.
func TestWatchDirectory(t *testing.T) {
	dir := folder(t, map[string]string{"a.yaml": "A", "b.yaml": "B"})
	at := func(name string) string { return filepath.Join(dir, name) }
	synctest.Test(t, func(t *testing.T) {
		now := make(chan os.Signal)
		got := watch(t, dir, now)
		want := []string{}
		for _, step := range []struct {
			do   func() error
			told string // empty: nothing
		}{
			{func() error { return nil }, ""},
			{func() error { write(t, at("c.yaml"), "C"); return nil }, "a.yaml=A b.yaml=B c.yaml=C"},
			{func() error { write(t, at("b.yaml"), "BB"); return nil }, "a.yaml=A b.yaml=BB c.yaml=C"},
			{func() error { write(t, at("notes.txt"), "x"); return nil }, ""},
			{func() error { write(t, at(".d.yaml.swp"), "x"); return nil }, ""},
			{func() error { return os.Rename(at("a.yaml"), at("z.yaml")) }, "b.yaml=BB c.yaml=C z.yaml=A"},
			{func() error {
				write(t, at("new"), "D")
				return os.Rename(at("new"), at("c.yaml"))
			}, "b.yaml=BB c.yaml=D z.yaml=A"},
			{func() error { return os.Remove(at("z.yaml")) }, "b.yaml=BB c.yaml=D"},
			{func() error { now <- syscall.SIGHUP; return nil }, "b.yaml=BB c.yaml=D"},
		} {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if step.told != "" {
				want = append(want, step.told)
			}
			got.expect(t, 0, want...)
		}
		for _, name := range []string{"b.yaml", "c.yaml"} {
			if err := os.Remove(at(name)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		got.expect(t, 1, want...)
	})
}

// version fills a directory as Kubernetes does for a ConfigMap of n files that all
// say which version they are of.
func version(t *testing.T, dir string, v, n int) {
	t.Helper()
	real := filepath.Join(dir, fmt.Sprint("..v", v))
	if err := os.Mkdir(real, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		write(t, filepath.Join(real, fmt.Sprint(i, ".yaml")), fmt.Sprint(v))
	}
	link(t, filepath.Base(real), filepath.Join(dir, "..data_tmp"))
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if name := filepath.Join(dir, fmt.Sprint(i, ".yaml")); v == 1 {
			link(t, filepath.Join("..data", fmt.Sprint(i, ".yaml")), name)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, fmt.Sprint("..v", v-1))); err != nil {
		t.Fatal(err)
	}
}

// While a ConfigMap is replaced again and again, each reading is of one version,
// with all of its files.
func TestReadTornConfigMap(t *testing.T) {
	dir := t.TempDir()
	const files, versions = 10, 30
	version(t, dir, 1, files)
	done := make(chan bool)
	go func() {
		defer close(done)
		for {
			got, err := rules.Read(dir)
			if err != nil {
				continue // replaced again and again; the last version stays
			}
			for _, f := range got {
				if string(f.Data) != string(got[0].Data) || len(got) != files {
					t.Errorf("a mix: %s", said(got))
					return
				}
			}
			if string(got[0].Data) == fmt.Sprint(versions) {
				return
			}
		}
	}()
	for v := 2; v <= versions; v++ {
		version(t, dir, v, files)
	}
	<-done
}

// Kubernetes swaps the version first and sees to the links of single files later:
// what counts is the version.
func TestReadConfigMapLinks(t *testing.T) {
	dir := t.TempDir()
	version(t, dir, 1, 2)
	version(t, dir, 2, 3) // no link leads to the third file yet
	if err := os.Remove(filepath.Join(dir, "..v2", "0.yaml")); err != nil {
		t.Fatal(err) // and that to the first leads nowhere now
	}
	files, err := rules.Read(dir)
	if err != nil || said(files) != "1.yaml=2 2.yaml=2" {
		t.Errorf("%s, %v", said(files), err)
	}
}

func TestWatchConfigMapDirectory(t *testing.T) {
	dir := t.TempDir()
	version(t, dir, 1, 2)
	synctest.Test(t, func(t *testing.T) {
		got := watch(t, dir, nil)
		time.Sleep(2 * time.Second)
		got.expect(t, 0)
		version(t, dir, 2, 2)
		time.Sleep(time.Second)
		got.expect(t, 0, "0.yaml=2 1.yaml=2")
	})
}

// A directory that never rests is read as it was at one instant, or said to be
// restless.
func TestReadRestless(t *testing.T) {
	dir := folder(t, map[string]string{"a.yaml": "0", "z.yaml": "0"})
	for i := range 400 { // what takes time between the two
		write(t, filepath.Join(dir, fmt.Sprint("m", i, ".yaml")), "")
	}
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for i := 1; ; i++ {
			for _, name := range []string{"a.yaml", "z.yaml"} { // in this order: a is never behind z
				select {
				case <-stop:
					return
				default:
				}
				write(t, filepath.Join(dir, name+".new"), fmt.Sprint(i))
				if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	for range 20 {
		files, err := rules.Read(dir)
		if err != nil {
			if !strings.Contains(err.Error(), "it keeps changing while it is read") {
				t.Error(err)
			}
			continue
		}
		var a, z int
		_, _ = fmt.Sscan(string(files[0].Data), &a)
		_, _ = fmt.Sscan(string(files[len(files)-1].Data), &z)
		if len(files) != 402 || a < z || a > z+1 {
			t.Errorf("%d files, %d and %d: a mix", len(files), a, z)
		}
	}
	close(stop)
	<-done
}
