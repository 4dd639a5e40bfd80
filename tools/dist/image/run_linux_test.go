package main

import (
	"archive/tar"
	"bufio"
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
	"github.com/stintdev/stint/internal/redistest"
)

// run in a mount namespace of its own: folder becomes the root, read-only, and user another.
const contain = `set -eu
root=$1 user=$2; shift 2
mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
mount -o remount,ro,bind "$root"
if touch "$root/written" 2>/dev/null; then echo "the root can be written" >&2; exit 97; fi
exec chroot --userspec="$user" --groups="${user#*:}" "$root" "$@"`

// mustContain skips a test that may not run the image here.
func mustContain(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it builds stint: in the long form only")
	}
	if os.Getuid() != 0 {
		t.Skip("only root may mount the image and become its user")
	}
	if out, err := exec.Command("unshare", "-m", "-n", "true").CombinedOutput(); err != nil {
		t.Skipf("no namespaces may be made here: %v: %s", err, out)
	}
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
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := container{root: unpack(t, image), config: config.Config}
	c.env = []string{
		"STINT_SERVER_STORE=redis://" + redis.Addr,
		fmt.Sprintf("STINT_SERVER_LISTEN=127.0.0.1:%d", redistest.FreePort(t)),
		fmt.Sprintf("STINT_SERVER_PROBE_LISTEN=:%d", redistest.FreePort(t)),
		fmt.Sprintf("STINT_SERVER_CHECK_LISTEN=127.0.0.1:%d", redistest.FreePort(t)),
		fmt.Sprintf("STINT_SERVER_ADMIN_LISTEN=127.0.0.1:%d", redistest.FreePort(t)),
	}
	gateway := "http://" + strings.TrimPrefix(c.env[1], "STINT_SERVER_LISTEN=")

	c.says(t, 0, "1 rule", programPath, "rules", "check", "--strict", configPath)
	c.says(t, 0, "stint envoy", "/bin/ratelimit", "--help")
	c.says(t, 1, "refused", config.Config.Healthcheck.Test[1:]...)

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
	s := c.start(t, slices.Concat(config.Config.Entrypoint, config.Config.Cmd, []string{"--upstream", upstream.URL})...)
	await.Until(t, "it is healthy", func() bool { return c.command(t, config.Config.Healthcheck.Test[1:]...).Run() == nil })
	if ids := status(t, s.cmd.Process.Pid, "Uid:", "Gid:", "Groups:"); ids != "65532 65532 65532 65532|65532 65532 65532 65532|65532" {
		t.Errorf("it runs as %s", ids)
	}

	slow := make(chan error, 1)
	go func() { slow <- ask(gateway+"/slow", 200) }()
	select {
	case <-asked:
	case err := <-slow:
		t.Fatalf("a slow request: %v\n%s", err, s.log())
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
		t.Errorf("answers %v\n%s", codes, s.log())
	}
	await.Until(t, "a request is refused", func() bool { return ask(gateway+"/", 429) == nil })

	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
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
		t.Errorf("the request in flight: %v\n%s", err, s.log())
	}
	if err := s.wait(); err != nil {
		t.Errorf("%v\n%s", err, s.log())
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

// unpack writes image into a folder, which others may enter.
func unpack(t *testing.T, image v1.Image) (root string) {
	t.Helper()
	root, err := os.MkdirTemp("/tmp", "stint-image-") // t.TempDir is for its user alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
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
	// What runs containers makes the places where it mounts.
	if err := errors.Join(os.Chmod(root, 0o755), os.Mkdir(filepath.Join(root, "proc"), 0o755)); err != nil {
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

// container is an image that is unpacked at root.
type container struct {
	root   string
	config v1.Config
	env    []string
}

// command is args in the container.
func (c *container) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"-m", "sh", "-c", contain, "contain", c.root, c.config.User}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, c.env...)
	return cmd
}

// says runs a command to its end, which comes with code, and of which the output has a text.
func (c *container) says(t *testing.T, code int, text string, args ...string) {
	t.Helper()
	cmd := c.command(t, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != code || !strings.Contains(string(out), text) {
		t.Errorf("%q: %v: %s", args, err, out)
	}
}

// started is a command with its log.
type started struct {
	cmd  *exec.Cmd
	done chan error
	wait func() error // until it has ended
	mu   sync.Mutex
	text strings.Builder
}

func (c *container) start(t *testing.T, args ...string) *started {
	t.Helper()
	s := &started{cmd: c.command(t, args...), done: make(chan error, 1)}
	r, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			s.mu.Lock()
			fmt.Fprintln(&s.text, lines.Text())
			s.mu.Unlock()
		}
		s.done <- s.cmd.Wait()
	}()
	s.wait = sync.OnceValue(func() error { return <-s.done })
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.wait()
	})
	return s
}

func (s *started) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// status are fields of what the system says of a process.
func status(t *testing.T, pid int, names ...string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, name := range names {
		_, rest, _ := strings.Cut(string(text), "\n"+name)
		line, _, _ := strings.Cut(rest, "\n")
		values = append(values, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(values, "|")
}
