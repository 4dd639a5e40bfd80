package rules_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/rules"
)

// told is what a Watcher tells, in order.
type told struct {
	mu    sync.Mutex
	texts []string
	errs  int
}

func watch(t *testing.T, path string, now chan os.Signal) *told {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got told
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		rules.Watcher{Path: path, Every: time.Second, Now: now, Changed: func(data []byte, err error) {
			got.mu.Lock()
			defer got.mu.Unlock()
			if err != nil {
				got.errs++
				return
			}
			got.texts = append(got.texts, string(data))
		}}.Run(ctx, data)
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
		got := watch(t, path, now)
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

		now <- syscall.SIGHUP
		got.expect(t, 0, "three", "forty", "forty")
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
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("1", "..data")
	link("..data/rules.yaml", "rules.yaml")
	synctest.Test(t, func(t *testing.T) {
		got := watch(t, filepath.Join(dir, "rules.yaml"), nil)
		link("2", "..data_tmp")
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		got.expect(t, 0, "version 2")
	})
}
