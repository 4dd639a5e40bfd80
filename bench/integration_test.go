package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The integration tests of envoyproxy/ratelimit run against "stint envoy": in a copy of their module,
// whose runner is testdata/runner.go.
func TestTheirIntegrationTests(t *testing.T) {
	switch _, err := exec.LookPath("redis-server"); {
	case testing.Short():
		t.Skip("it takes minutes")
	case err != nil && os.Getenv("STINT_REQUIRE_REDIS") != "":
		t.Fatal("STINT_REQUIRE_REDIS is set, but there is no redis-server")
	case err != nil:
		t.Skip("redis-server is not installed: scripts/get redis-server")
	}
	t.Setenv("GOWORK", "off") // as command.build has it
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(output(t, "go", "-C", "ratelimit", "mod", "download", "-json", "github.com/envoyproxy/ratelimit")), &module); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.CopyFS(theirs, os.DirFS(module.Dir)); err != nil {
		t.Fatal(err)
	}
	writable(t, theirs)
	runner, err := os.ReadFile("testdata/runner.go")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(theirs, "src/service_cmd/runner/runner.go"), runner)
	their := theirTests{dir: theirs, environment: append(os.Environ(), "STINT="+output(t, "go", "tool", "-n", "stint"),
		"PROJECT_DIR="+theirs, "SSL_CERT_FILE="+theirServers(t, theirs), "GOFLAGS=-mod=mod")}
	passed, failed, texts := their.run(t, ".")
	t.Logf("%d passed, %d failed", passed, len(failed))
	if passed < 30 {
		t.Errorf("they did not run: %s", texts[""])
	}
	// They count in windows of a minute of the clock, one of which may end meanwhile.
	for try := 2; len(failed) > 0 && try <= 3; try++ {
		var again []string
		for _, test := range failed {
			t.Logf("%s fails:\n%.4000s", test, texts[test])
			if name, _, _ := strings.Cut(test, "/"); !slices.Contains(again, name) {
				again = append(again, name)
			}
		}
		_, failed, texts = their.run(t, "^("+strings.Join(again, "|")+")$")
	}
	for _, test := range failed {
		t.Errorf("%s fails three times:\n%.4000s", test, texts[test])
	}
}

// theirTests runs tests of a copy of the module.
type theirTests struct {
	dir         string
	environment []string
}

// run returns how many passed, which failed, and what each printed. Those over memcache are left out,
// because Stint has none. All others must pass; docs/envoy-reference.md says so.
func (r *theirTests) run(t *testing.T, pattern string) (passed int, failed []string, texts map[string]*strings.Builder) {
	t.Helper()
	cmd := exec.Command("go", "test", "-json", "-count=1", "-timeout=15m", "-tags=integration", "-run="+pattern, "-skip=Memcache", "./test/integration")
	cmd.Dir, cmd.Env = r.dir, r.environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }() // the programs that a test left
	texts = map[string]*strings.Builder{"": {}}
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var event struct{ Action, Test, Output string }
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if texts[event.Test] == nil {
			texts[event.Test] = new(strings.Builder)
		}
		texts[event.Test].WriteString(event.Output)
		if event.Test == "" {
			continue
		}
		switch event.Action {
		case "pass":
			passed++
		case "fail":
			failed = append(failed, event.Test)
		case "skip":
			t.Errorf("%s is skipped", event.Test)
		}
	}
	_ = cmd.Wait()
	texts[""].Write(errors.Bytes())
	return passed, failed, texts
}

func output(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	out, err := exec.Command(name, arguments...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, arguments, err)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writable makes a copy from the module cache one that can be changed and removed.
func writable(t *testing.T, dir string) {
	t.Helper()
	if out, err := exec.Command("chmod", "-R", "u+w", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// theirServers starts what the tests expect to run, and returns the file of the authority of those with
// TLS. The ports are the tests'.
func theirServers(t *testing.T, theirs string) (authority string) {
	t.Helper()
	const password = "password123"
	start := func(port int, more ...string) {
		t.Helper()
		dir := t.TempDir()
		arguments := append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--requirepass", password}, more...)
		startServer(t, max(port, 1), dir, arguments...)
	}
	cert, key := selfSigned(t, theirs)
	for _, tls := range []struct {
		port    int
		clients string
	}{{16381, "no"}, {16382, "no"}, {16361, "yes"}} {
		dir := t.TempDir()
		startServer(t, tls.port, dir, "--port", "0", "--tls-port", strconv.Itoa(tls.port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--requirepass", password,
			"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", tls.clients)
	}
	for _, cluster := range [][]int{{6386, 6387, 6388}, {6389, 6390, 6391}} {
		nodes := []string{"--cluster", "create", "--cluster-replicas", "0", "--cluster-yes", "-a", password}
		for _, port := range cluster {
			start(port, "--cluster-enabled", "yes")
			nodes = append(nodes, "127.0.0.1:"+strconv.Itoa(port))
		}
		if out, err := exec.Command("redis-cli", nodes...).CombinedOutput(); err != nil {
			t.Fatalf("redis-cli: %v\n%s", err, out)
		}
	}
	for _, master := range []struct {
		port      int
		file      string
		sentinels []int
	}{
		{6392, "sentinel-pre-second.conf", []int{26399, 26400, 26401}},
		{6397, "sentinel.conf", []int{26394, 26395, 26396}},
	} {
		start(master.port)
		start(master.port+1, "--slaveof", "127.0.0.1 "+strconv.Itoa(master.port), "--masterauth", password)
		text, err := os.ReadFile(filepath.Join(theirs, "test/integration/conf", master.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range master.sentinels {
			dir := t.TempDir()
			file := filepath.Join(dir, "sentinel.conf")
			write(t, file, text)
			startServer(t, port, dir, file, "--sentinel", "--port", strconv.Itoa(port), "--dir", dir)
		}
	}
	return cert
}

// startServer starts redis-server, and returns when it takes connections.
func startServer(t *testing.T, port int, dir string, arguments ...string) {
	t.Helper()
	address := "127.0.0.1:" + strconv.Itoa(port)
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Fatalf("%s is in use; the tests want it", address)
	}
	log := filepath.Join(dir, "log")
	cmd := exec.Command("redis-server", append(arguments, "--logfile", log)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log)
			t.Fatalf("redis-server %v: %s", arguments, text)
		}
	}
}

// selfSigned writes cert.pem and key.pem, which are valid for servers and clients, into dir.
func selfSigned(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	return cert, key
}
