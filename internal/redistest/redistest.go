// Package redistest starts real Redis servers for tests, single, as a Cluster and behind
// Sentinels, and injects faults into them.
package redistest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Required is the environment variable that makes tests fail, not skip, without a Redis.
const Required = "STINT_REQUIRE_REDIS"

// Program is the environment variable that names the program to start as server,
// instead of the redis-server that is installed. scripts/servers has some.
const Program = "STINT_REDIS_SERVER"

// Server is a test's own redis-server on loopback.
type Server struct {
	Addr   string // host:port
	Socket string // the path of its Unix socket
	Dir    string // its directory, removed with it

	process *exec.Cmd
	env     []string // more than the test's own
}

// Start starts a server and stops it when the test ends. Without a redis-server it skips the test, or
// fails it if Required is set.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := prepare(t)
	s.start(t, append([]string{"--save", "", "--appendonly", "no"}, args...)...)
	return s
}

func program(t testing.TB) string {
	t.Helper()
	name := os.Getenv(Program)
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv(Program) != "" {
		t.Fatalf("%s: %v", Program, err)
	}
	if os.Getenv(Required) != "" {
		t.Fatalf("%s is set, but there is no redis-server: install it (apt-get install redis-server)", Required)
	}
	Skip(t, "redis-server", "install redis-server")
	return ""
}

func prepare(t testing.TB) *Server {
	t.Helper()
	program(t)
	dir, err := os.MkdirTemp("", "stint-redis-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t))), Socket: filepath.Join(dir, "s"), Dir: dir}
	t.Cleanup(s.stop)
	return s
}

// start starts the server, with args first on the command line.
func (s *Server) start(t testing.TB, args ...string) {
	t.Helper()
	s.run(t, append(args, "--port", s.port(), "--bind", "127.0.0.1", "--unixsocket", s.Socket, "--dir", s.Dir,
		"--logfile", filepath.Join(s.Dir, "log")))
	s.await(t)
}

func (s *Server) port() string {
	_, port, _ := net.SplitHostPort(s.Addr)
	return port
}

// await waits until the server answers anything at all.
func (s *Server) await(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if s.answers() {
			return
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	t.Fatalf("redis-server does not answer; its log:\n%s", log)
}

func (s *Server) answers() bool {
	conn, err := net.Dial("unix", s.Socket)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	buf := make([]byte, 64)
	n, err := conn.Read(buf)
	return err == nil && n > 0 && !strings.HasPrefix(string(buf), "-LOADING")
}

// URL is the server's address for redislimit.Open.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Client is a client of the server, closed when the test ends.
func (s *Server) Client(t testing.TB) rueidis.Client {
	t.Helper()
	c, err := s.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (s *Server) dial() (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true})
}

// Do sends a command to the server; an error reply fails the test.
func (s *Server) Do(t testing.TB, args ...string) *rueidis.RedisMessage {
	t.Helper()
	m, err := s.Try(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return m
}

// Try is Do for what may fail.
func (s *Server) Try(args ...string) (*rueidis.RedisMessage, error) {
	c, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	m, err := c.Do(context.Background(), c.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		return nil, err
	}
	return &m, nil
}

// Info is one field of a section of INFO; "": the server lacks it, or does not answer.
func (s *Server) Info(section, field string) string {
	m, err := s.Try("INFO", section)
	if err != nil {
		return ""
	}
	text, _ := m.ToString()
	return fieldOf(text, field)
}

func fieldOf(text, field string) string {
	text = strings.TrimPrefix(text, "txt:") // a verbatim string's form
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value
		}
	}
	return ""
}

// WatchPauses measures the longest delay with which the machine wakes a sleeper, until most is
// called: no answer is certain to come sooner.
func WatchPauses() (most func() time.Duration) {
	stop, done := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			slept := time.Now()
			select {
			case <-stop:
				done <- most
				return
			case <-time.After(time.Millisecond):
				most = max(most, time.Since(slept)-time.Millisecond)
			}
		}
	}()
	return func() time.Duration { close(stop); return <-done }
}
