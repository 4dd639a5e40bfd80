// Package redistest starts real Redis servers for tests.
package redistest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Required is the environment variable that turns the want of a Redis from a
// skipped test into a failed one.
const Required = "STINT_REQUIRE_REDIS"

// Server is a redis-server of a test's own on loopback.
type Server struct {
	Addr   string // host:port
	Socket string // the path of its Unix socket
	Dir    string // its directory, removed with it

	process *exec.Cmd
}

// Start starts a server with the arguments given, and stops it when the test
// ends. Where there is no redis-server the test is skipped, or fails if Required
// is set.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, nil, args...)
}

// start starts a server; before is what must come first on its command line.
func start(t testing.TB, before []string, args ...string) *Server {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv(Required) != "" {
			t.Fatalf("%s is set, but there is no redis-server: install it (apt-get install redis-server)", Required)
		}
		t.Skip("SKIPPED FOR WANT OF REDIS: install redis-server to run this test")
	}
	dir, err := os.MkdirTemp("", "stint-redis-")
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Socket: filepath.Join(dir, "s"), Dir: dir}
	all := append(before, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--unixsocket", s.Socket, "--dir", dir,
		"--logfile", filepath.Join(dir, "log"))
	if before == nil {
		all = append(all, "--save", "", "--appendonly", "no")
	}
	s.process = exec.Command(binary, append(all, args...)...)
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	s.await(t)
	return s
}

func (s *Server) stop() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	_ = os.RemoveAll(s.Dir)
}

// await waits until the server answers anything at all.
func (s *Server) await(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", s.Socket)
		if err != nil {
			continue
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			continue
		}
		buf := make([]byte, 64)
		if n, err := conn.Read(buf); err == nil && n > 0 && !strings.HasPrefix(string(buf), "-LOADING") {
			return
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	t.Fatalf("redis-server does not answer; its log:\n%s", log)
}

// URL is the server's address for redislimit.Open.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Client is a client of the server, closed when the test ends.
func (s *Server) Client(t testing.TB) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Do sends a command to the server; an error reply fails the test.
func (s *Server) Do(t testing.TB, args ...string) *rueidis.RedisMessage {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := c.Do(context.Background(), c.B().Arbitrary(args...).Build()).ToMessage()
	if err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", args, err)
	}
	return &m
}

// StartCluster starts a Cluster of n masters without replicas and returns its
// servers. See Start.
func StartCluster(t testing.TB, n int) []*Server {
	t.Helper()
	all := make([]*Server, n)
	var addrs []string
	for i := range all {
		all[i] = Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000")
		addrs = append(addrs, all[i].Addr)
	}
	args := append([]string{"--cluster", "create"}, addrs...)
	args = append(args, "--cluster-replicas", "0", "--cluster-yes")
	if out, err := exec.Command("redis-cli", args...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli --cluster create: %v\n%s", err, out)
	}
	for _, s := range all {
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			info := s.Do(t, "CLUSTER", "INFO")
			text, _ := info.ToString()
			if strings.Contains(text, "cluster_state:ok") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the Cluster does not come up:\n%s", text)
			}
		}
	}
	return all
}

func freePort(t testing.TB) int {
	t.Helper()
	// A Cluster node's bus listens 10000 above its port, so that must be free too.
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if port+10000 > 65535 {
			port -= 20000
		}
		if isFree(port) && isFree(port+10000) {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// Stop stops the server as a shutdown would, until Restart.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	_ = s.process.Process.Signal(os.Interrupt)
	_ = s.process.Wait()
}

// Restart stops the server as a shutdown would, unless it was stopped, and starts it
// again on its files.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	s.process = exec.Command(s.process.Path, s.process.Args[1:]...)
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	s.await(t)
}

// ListenTLS makes the server, which was started with certificates, listen for TLS
// and returns the address.
func (s *Server) ListenTLS(t testing.TB) string {
	t.Helper()
	port := freePort(t)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Socket}, ForceSingleClient: true, DisableCache: true,
		DialCtxFn: func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Do(context.Background(), c.B().ConfigSet().ParameterValue().ParameterValue("tls-port", strconv.Itoa(port)).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Certificate makes a certificate for localhost that is its own authority, and
// returns the files of the authority, the certificate and the key.
func Certificate(t testing.TB) (ca, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "localhost"},
		DNSNames:              []string{"localhost"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, cert, key
}

// Freeze stops the server's process in its tracks until thaw is called, which the
// end of the test does in any case.
func (s *Server) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	if err := s.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = func() { _ = s.process.Process.Signal(syscall.SIGCONT) }
	t.Cleanup(thaw)
	return thaw
}

// StartSentinel starts a Sentinel that watches a master of its own, named
// mymaster, with a replica, and returns all three. See Start.
func StartSentinel(t testing.TB) (sentinel, master, replica *Server) {
	t.Helper()
	master = Start(t)
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica = Start(t, "--replicaof", host, port)
	file := filepath.Join(master.Dir, "sentinel.conf")
	config := fmt.Sprintf("sentinel monitor mymaster %s %s 1\nsentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n", host, port)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel = start(t, []string{file, "--sentinel"})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		replicas, err := sentinel.Do(t, "SENTINEL", "REPLICAS", "mymaster").ToArray()
		link, _ := replica.Do(t, "INFO", "replication").ToString()
		if err == nil && len(replicas) == 1 && strings.Contains(link, "master_link_status:up") {
			return sentinel, master, replica
		}
		if time.Now().After(deadline) {
			t.Fatalf("the Sentinel does not see the replica: %v %v", replicas, err)
		}
	}
}
