package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
)

// notified listens at a socket as systemd does, and gives its address to the programs of this test.
type notified struct{ c *net.UnixConn }

func listenAsSystemd(t *testing.T, address string) *notified {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", address)
	return &notified{c}
}

// next is what was told next.
func (n *notified) next(t *testing.T) string {
	t.Helper()
	_ = n.c.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 4096)
	size, err := n.c.Read(b)
	if err != nil {
		t.Fatalf("systemd was told nothing: %v", err)
	}
	return string(b[:size])
}

// rest is what was told and is not read yet.
func (n *notified) rest() (all []string) {
	for {
		_ = n.c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		b := make([]byte, 4096)
		size, err := n.c.Read(b)
		if err != nil {
			return all
		}
		all = append(all, string(b[:size]))
	}
}

const (
	toldServing = "READY=1\nSTATUS=serving"
	toldRefused = "READY=1\nSTATUS=serving by the previous rules: the files have an error, which is in the log"
	toldStop    = "STOPPING=1\nSTATUS=stopping: requests in flight may end"
)

// reload reads what is told of a reload up to its end, and returns the last.
func (n *notified) reload(t *testing.T) string {
	t.Helper()
	begun := time.Duration(0)
	for {
		said := n.next(t)
		rest, reloading := strings.CutPrefix(said, "RELOADING=1\nMONOTONIC_USEC=")
		if !reloading {
			if begun == 0 {
				t.Fatalf("it was told %q without a reload", said)
			}
			return said
		}
		text, _, _ := strings.Cut(rest, "\n")
		at, err := strconv.ParseInt(text, 10, 64)
		if now := time.Duration(at); err != nil || now <= 0 || now < begun {
			t.Fatalf("%q after %d", said, begun)
		} else {
			begun = now
		}
	}
}

// systemd is told when the instance is ready, when it reads files again, by a signal or because one has
// changed, and when it stops. Both kinds of sockets do.
func TestSystemdIsTold(t *testing.T) {
	for _, address := range []string{filepath.Join(t.TempDir(), "notify"), "@stint-test-" + strconv.Itoa(os.Getpid())} {
		systemd := listenAsSystemd(t, address)
		rules := func(amount string) string {
			return "rules: [{name: a, key: client.ip, limits: [" + amount + " per 1h]}]\n"
		}
		file := configured(t, rules("1"))
		c, s := process(t, "--config", file)
		if got := systemd.next(t); got != toldServing {
			t.Fatalf("at the start: %q", got)
		}
		if got := get(t, "GET", s.check+"/readyz"); got != "200 " {
			t.Errorf("it is told to be ready, and answers %s", got)
		}
		c.signal(t, syscall.SIGHUP)
		if got := systemd.reload(t); got != toldServing {
			t.Errorf("after SIGHUP: %q", got)
		}
		for _, change := range []struct{ text, told string }{{rules("2"), toldServing}, {"rules: 7\n", toldRefused}, {rules("3"), toldServing}} {
			put(t, file, change.text)
			if got := systemd.reload(t); got != change.told {
				t.Errorf("after %q: %q", change.text, got)
			}
		}
		// What a signal asks for is in force when its end is told.
		put(t, file, rules("40"))
		c.signal(t, syscall.SIGHUP)
		systemd.reload(t)
		if code := checked(t, s, `{"client":"192.0.2.1","cost":40}`); code != 200 {
			t.Errorf("a check that the new rules allow: %d\n%s", code, s.log)
		}
		c.signal(t, syscall.SIGTERM)
		told := systemd.next(t)
		for strings.HasPrefix(told, "RELOADING=1\n") || told == toldServing { // the watcher may have seen the last change, too
			told = systemd.next(t)
		}
		if told != toldStop {
			t.Errorf("at the stop: %q", told)
		}
		c.endsWell(t)
		if more := systemd.rest(); len(more) > 0 {
			t.Errorf("after the stop: %q", more)
		}
	}
}

// Signals in a burst, while the file changes, leave it ready.
func TestSystemdReloadsAtOnce(t *testing.T) {
	var out bytes.Buffer
	systemd := listenAsSystemd(t, filepath.Join(t.TempDir(), "notify"))
	by := newSupervisor(os.Environ(), slog.New(slog.NewTextHandler(&out, nil)))
	by.reload()() // before it is ready, nothing is told
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); _ = by.watch(ctx) }()
	if got := systemd.next(t); got != toldServing {
		t.Fatalf("%q", got)
	}
	const reloads = 4
	var ends []func()
	for range reloads {
		ends = append(ends, by.reload())
		if got := systemd.next(t); !strings.HasPrefix(got, "RELOADING=1\n") {
			t.Fatalf("%q", got)
		}
	}
	for _, end := range ends {
		end()
	}
	if got := systemd.next(t); got != toldServing {
		t.Errorf("after the last: %q", got)
	}
	during := by.reload()
	systemd.next(t)
	stop()
	<-stopped
	during()
	if got := systemd.rest(); len(got) != 1 || got[0] != toldStop {
		t.Errorf("when it stops during a reload: %q", got)
	}
	if out.Len() > 0 {
		t.Errorf("the log has\n%s", &out)
	}
}

// Envoy's service tells systemd the same.
func TestSystemdIsToldByEnvoy(t *testing.T) {
	systemd := listenAsSystemd(t, filepath.Join(t.TempDir(), "notify"))
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "config", "a.yaml"), "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	cmd := program(t, "envoy", "--admin-listen", "off")
	cmd.Env = append(cmd.Env, "RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=.", "RUNTIME_APPDIRECTORY=config", "REDIS_URL=memory",
		"HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0")
	c := launch(t, cmd)
	if got := systemd.next(t); got != toldServing {
		t.Fatalf("at the start: %q\n%s", got, c.log)
	}
	c.signal(t, syscall.SIGHUP)
	if got := systemd.reload(t); got != toldServing {
		t.Errorf("after SIGHUP: %q", got)
	}
	c.signal(t, syscall.SIGTERM)
	if got := systemd.next(t); got != toldStop {
		t.Errorf("at the stop: %q", got)
	}
}

// An instance that cannot start is never told to be ready; one whose systemd is gone serves, and the
// log says so.
func TestSystemdBadPlaces(t *testing.T) {
	systemd := listenAsSystemd(t, filepath.Join(t.TempDir(), "notify"))
	_, taken := tcpSocket(t)
	if code, _, errs := call("", "serve", "--limit", "1 per 1h", "--check-listen", taken); code != 1 || !strings.Contains(errs, taken) {
		t.Errorf("exit %d\n%s", code, errs)
	}
	if got := systemd.rest(); len(got) > 0 {
		t.Errorf("told %q", got)
	}
	for address, want := range map[string]string{filepath.Join(t.TempDir(), "none"): "no such file", "vsock:2:1": "want a path, or @"} {
		t.Setenv("NOTIFY_SOCKET", address)
		s := serving(t, "--limit", "1 per 1h")
		await.Until(t, "the log says so", func() bool {
			return strings.Contains(s.log.String(), "the service manager could not be notified") && strings.Contains(s.log.String(), want)
		})
		if code := checked(t, s, `{"client":"192.0.2.1"}`); code != 200 {
			t.Error(code)
		}
	}
}

// tcpSocket is a file of a listener, as systemd passes it, and its address.
func tcpSocket(t *testing.T) (*os.File, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, l.Addr().String()
}

// withSockets is stint with these sockets, as systemd starts it.
func withSockets(t *testing.T, names string, files []*os.File, args ...string) *exec.Cmd {
	t.Helper()
	c := program(t, args...)
	c.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, c.Path}, args...)
	c.Path = "/bin/sh"
	c.ExtraFiles = files
	c.Env = append(c.Env, "LISTEN_FDS="+strconv.Itoa(len(files)), "LISTEN_FDNAMES="+names)
	return c
}

// The gateway takes the socket that systemd has opened, which stays open while one instance replaces
// another.
func TestSystemdSocket(t *testing.T) {
	other, otherAddress := tcpSocket(t)
	for names, what := range map[string]string{"stint.socket": "", "more:gateway": "the others have no effect"} {
		f, address := tcpSocket(t)
		files := []*os.File{f}
		if strings.Contains(names, ":") {
			files = []*os.File{other, f}
		}
		for range 2 {
			c, s := started(t, withSockets(t, names, files, "serve", "--upstream", hello(t), "--limit", "1 per 1h", "--listen", "127.0.0.1:1", "--check-listen", "off", "--admin-listen", "off"))
			if s.gateway != "http://"+address || !strings.Contains(s.log.String(), "listen has no effect") || !strings.Contains(s.log.String(), what) {
				t.Fatalf("%s: it serves %s, want %s, beside %s\n%s", names, s.gateway, address, otherAddress, s.log)
			}
			for i, want := range []int{200, 429} {
				c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				resp, err := c.Get(s.gateway)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				if resp.Body.Close(); resp.StatusCode != want {
					t.Errorf("request %d: %d, want %d", i, resp.StatusCode, want)
				}
			}
			c.signal(t, syscall.SIGTERM)
			c.endsWell(t)
		}
	}
}

// What does not fit is an error that says what does, or a line of the log.
func TestSystemdSocketsThatDoNotFit(t *testing.T) {
	tcp, _ := tcpSocket(t)
	unixSocket := func() *os.File {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		f, err := l.(*net.UnixListener).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}()
	datagrams := func() *os.File {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f, err := c.(*net.UDPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}()
	for _, tt := range []struct {
		names string
		files []*os.File
		want  string
	}{
		{"gateway:gateway", []*os.File{tcp, tcp}, "two sockets with the name gateway"},
		{"gateway", []*os.File{datagrams}, `the socket "gateway" of systemd does not listen`},
		{"gateway", []*os.File{unixSocket}, `the socket "gateway" of systemd is unix: want one of TCP`},
	} {
		c := withSockets(t, tt.names, tt.files, "serve", "--upstream", "http://127.0.0.1:9", "--limit", "1 per 1h", "--check-listen", "off", "--admin-listen", "off")
		if said, err := c.CombinedOutput(); err == nil || c.ProcessState.ExitCode() != 1 || !strings.Contains(string(said), tt.want) {
			t.Errorf("%s: %v, want %q\n%s", tt.names, err, tt.want, said)
		}
	}
	for _, tt := range []struct {
		sockets passedSockets
		files   []*os.File
		wanted  bool
		want    string
	}{
		{sockets: passedSockets{}, wanted: true},
		{sockets: passedSockets{pid: "1", count: "1"}, wanted: true, want: "passed to another process"},
		{files: []*os.File{duplicate(t, tcp, "a"), duplicate(t, tcp, "b")}, wanted: true, want: "none of them has the name gateway"},
		{files: []*os.File{duplicate(t, tcp, "gateway")}, want: "there are no routes"},
	} {
		var out bytes.Buffer
		by := &supervisor{sockets: tt.sockets, log: slog.New(slog.NewTextHandler(&out, nil))}
		l, err := by.listener(tt.wanted)
		if tt.files != nil {
			l, err = by.chosen(tt.files, tt.wanted)
		}
		if l != nil || err != nil || !strings.Contains(out.String(), tt.want) || (tt.want == "") != (out.Len() == 0) {
			t.Errorf("%+v: %v, %v, want %q\n%s", tt, l, err, tt.want, &out)
		}
	}
	by := &supervisor{sockets: passedSockets{pid: strconv.Itoa(os.Getpid()), count: "many"}}
	if _, err := by.listener(true); err == nil || !strings.Contains(err.Error(), `LISTEN_FDS "many"`) {
		t.Error(err)
	}
}

func duplicate(t *testing.T, f *os.File, name string) *os.File {
	t.Helper()
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), name)
}
