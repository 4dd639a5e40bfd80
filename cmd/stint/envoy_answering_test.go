package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stintdev/stint/internal/await"
)

// answering is a stint envoy in a process of its own.
type answering struct {
	*child
	http, debug, admin, prometheus string // URLs
	grpc                           string // address
	client                         rls.RateLimitServiceClient
}

// asEnvoy starts stint envoy with these variables and a port of its own for each listener. It
// expects exit code 0 at the end.
func asEnvoy(t testing.TB, variables ...string) *answering {
	t.Helper()
	s := launchEnvoy(t, variables...)
	s.await(t)
	return s
}

func launchEnvoy(t testing.TB, variables ...string) *answering {
	t.Helper()
	c := program(t, "envoy", "--admin-listen", "127.0.0.1:0")
	c.Env = append(c.Env, "HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "USE_STATSD=false",
		"LOG_LEVEL=info", "STINT_DECISION_TIMEOUT=10s") // no call is decided without Redis because the machine is busy
	c.Env = append(c.Env, variables...)
	s := &answering{child: launch(t, c)}
	stopsAtEnd(t, s.stop, s.log)
	return s
}

var addresses = regexp.MustCompile(`\b(grpc|http|debug|admin|prometheus)"?[=:]"?([^\s",}]+)`)

// await waits until it listens.
func (s *answering) await(t testing.TB) {
	t.Helper()
	line := s.logged(t, `msg"?[=:]"?listening`)
	for _, m := range addresses.FindAllStringSubmatch(line, -1) {
		switch url := "http://" + m[2]; m[1] {
		case "grpc":
			s.connect(t, m[2])
		case "prometheus":
			s.prometheus = url
		case "http":
			s.http = url
		case "debug":
			s.debug = url
		case "admin":
			s.admin = url
		}
	}
}

// connect makes a client for the service at an address.
func (s *answering) connect(t testing.TB, address string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s.client, s.grpc = rls.NewRateLimitServiceClient(conn), address
}

// logged waits for a line of the log, and returns it.
func (s *answering) logged(t testing.TB, pattern string) string {
	t.Helper()
	want, late := regexp.MustCompile(pattern), time.After(20*time.Second)
	for {
		select {
		case line, ok := <-s.log.lines:
			if want.MatchString(line) {
				return line
			}
			if !ok {
				t.Fatalf("it ended without %s:\n%s", pattern, s.log)
			}
		case <-late:
			t.Fatalf("it did not log %s:\n%s", pattern, s.log)
		}
	}
}

// ask returns the answer to a descriptor, each entry key=value: OK or OVER_LIMIT and what remains, or
// the error.
func (s *answering) ask(t *testing.T, domain string, entries ...string) string {
	t.Helper()
	d := &common.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := s.client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{d}})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(r.OverallCode, " ", r.Statuses[0].LimitRemaining)
}

func (s *answering) asks(t *testing.T, want, domain string, entries ...string) {
	t.Helper()
	if got := s.ask(t, domain, entries...); got != want {
		t.Errorf("%s %v: %s, want %s\n%s", domain, entries, got, want, s.log)
	}
}

// asksUntil waits for an answer, of calls that cost nothing because their rule is unlimited or missing.
func (s *answering) asksUntil(t *testing.T, want, domain string, entries ...string) {
	t.Helper()
	got := ""
	if !await.So(func() bool { got = s.ask(t, domain, entries...); return got == want }) {
		t.Fatalf("%s %v: %s, want %s\n%s", domain, entries, got, want, s.log)
	}
}

func fetched(t *testing.T, url, body string) string {
	t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(text))
}

const shop = `domain: shop
descriptors:
  - key: remote_address
    rate_limit: {unit: day, requests_per_unit: 2}
  - key: plan
    value: free
    rate_limit: {unlimited: true}
`

// runtimeDirectory is a RUNTIME_ROOT with the link and the directories of envoyproxy/ratelimit's
// documentation: the variables, and the directory of the files.
func runtimeDirectory(t testing.TB, files map[string]string) (variables []string, config string) {
	t.Helper()
	dir := t.TempDir()
	config = filepath.Join(dir, "v1/ratelimit/config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(config, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("v1", filepath.Join(dir, "current")); err != nil {
		t.Fatal(err)
	}
	return []string{"RUNTIME_ROOT=" + filepath.Join(dir, "current"), "RUNTIME_SUBDIRECTORY=ratelimit"}, config
}

// answeringBeside is Envoy's rate limit service beside s, once it listens.
func answeringBeside(t *testing.T, s *served) *answering {
	t.Helper()
	a := &answering{child: &child{log: s.log}, admin: s.admin}
	_, address, _ := strings.Cut(a.logged(t, "Envoy's gRPC"), "address=")
	if strings.HasPrefix(address, "/") {
		address = "unix:" + address
	}
	a.connect(t, address)
	return a
}
