package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/container"
	"github.com/stintdev/stint/internal/redistest"
)

// mustContain skips a test that may not run the image here.
func mustContain(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds stint: in the long form only")
	}
	container.Need(t)
}

// The image runs as its user with a read-only root, limits by a Redis, answers its health check,
// and ends after the request in flight.
func TestRun(t *testing.T) {
	mustContain(t)
	redis := redistest.Start(t)
	stint, license := build(t), "../../../LICENSE"
	folder := filepath.Join(t.TempDir(), "image")
	if err := run(folder, license, []string{stint}); err != nil {
		t.Fatal(err)
	}
	image := images(t, folder)["linux/amd64"]
	if image == nil {
		t.Fatal("no image for linux/amd64")
	}
	c, config := contained(t, image, false)
	env := []string{
		"STINT_SERVER_STORE=redis://" + redis.Addr,
		fmt.Sprintf("STINT_SERVER_LISTEN=127.0.0.1:%d", redistest.FreePort(t)),
		fmt.Sprintf("STINT_SERVER_PROBE_LISTEN=:%d", redistest.FreePort(t)),
		fmt.Sprintf("STINT_SERVER_CHECK_LISTEN=127.0.0.1:%d", redistest.FreePort(t)),
		fmt.Sprintf("STINT_SERVER_ADMIN_LISTEN=127.0.0.1:%d", redistest.FreePort(t)),
	}
	gateway := "http://" + strings.TrimPrefix(env[1], "STINT_SERVER_LISTEN=")

	says := func(code int, text string, args ...string) {
		t.Helper()
		if got, out := c.Run(t, env, args...); got != code || !strings.Contains(out, text) {
			t.Errorf("%q: exit %d: %s", args, got, out)
		}
	}
	says(0, "1 rule", programPath, "rules", "check", "--strict", configPath)
	says(0, "stint envoy", "/bin/ratelimit", "--help")
	says(1, "refused", config.Healthcheck.Test[1:]...)

	asked, answer := make(chan struct{}), make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(asked)
			<-answer
		}
	}))
	defer upstream.Close()
	let := sync.OnceFunc(func() { close(answer) })
	defer let()
	s := c.Start(t, env, slices.Concat(config.Entrypoint, config.Cmd, []string{"--upstream", upstream.URL})...)
	await.Until(t, "it is healthy", func() bool {
		code, _ := c.Run(t, env, config.Healthcheck.Test[1:]...)
		return code == 0
	})
	if ids := s.Status(t, "Uid", "Gid", "Groups"); ids != "65532 65532 65532 65532|65532 65532 65532 65532|65532" {
		t.Errorf("it runs as %s", ids)
	}

	slow := make(chan error, 1)
	go func() { slow <- ask(gateway+"/slow", 200) }()
	select {
	case <-asked:
	case err := <-slow:
		t.Fatalf("a slow request: %v\n%s", err, s.Log())
	}
	codes := map[int]int{}
	for range 100 {
		resp, err := http.Get(gateway + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		codes[resp.StatusCode]++
	}
	// One of a hundred is in flight. The limit refills by one every 600 ms.
	if codes[200] < 99 || codes[200]+codes[429] != 100 {
		t.Errorf("answers %v\n%s", codes, s.Log())
	}
	await.Until(t, "a request is refused", func() bool { return ask(gateway+"/", 429) == nil })

	if err := s.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "it takes no more requests", func() bool {
		resp, err := http.Get(gateway + "/")
		if err == nil {
			resp.Body.Close()
		}
		return err != nil
	})
	let()
	if err := <-slow; err != nil {
		t.Errorf("the request in flight: %v\n%s", err, s.Log())
	}
	if err := s.Ended(); err != nil {
		t.Errorf("%v\n%s", err, s.Log())
	}
}

func ask(url string, want int) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != want {
		return errors.New(resp.Status)
	}
	return nil
}

// build builds stint for linux/amd64.
func build(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "stint")
	cmd := exec.Command("go", "build", "-C", "../../..", "-trimpath", "-ldflags", "-s -w", "-o", path, "./cmd/stint")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// contained makes a container of an image, and returns how to run it.
func contained(t *testing.T, image v1.Image, ownNetwork bool) (*container.Container, v1.Config) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	o := container.Options{Root: unpack(t, image), OwnNetwork: ownNetwork}
	if _, err := fmt.Sscanf(config.Config.User, "%d:%d", &o.User, &o.Group); err != nil {
		t.Fatalf("user %q: %v", config.Config.User, err)
	}
	o.Groups = []uint32{o.Group}
	return container.New(t, o), config.Config
}

// unpack writes image into a folder, which others may enter.
func unpack(t *testing.T, image v1.Image) (root string) {
	t.Helper()
	root = t.TempDir()
	all := mutate.Extract(image)
	defer all.Close()
	for r := tar.NewReader(all); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = put(root, h, r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func put(root string, h *tar.Header, from io.Reader) error {
	path := filepath.Join(root, h.Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // the archive may have files before their folders
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	case tar.TypeLink:
		return os.Link(filepath.Join(root, h.Linkname), path)
	default:
		data, err := io.ReadAll(from)
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(os.Chown(path, h.Uid, h.Gid), os.Chmod(path, h.FileInfo().Mode()))
}
