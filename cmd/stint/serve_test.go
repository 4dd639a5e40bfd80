package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// served is a stint serve that runs.
type served struct {
	gateway, check, admin, probes string     // URLs
	log                           *log       // what it says on stderr
	stop                          func() int // returns its exit code
}

// told matches lines of both formats of the log.
var told = regexp.MustCompile(`"?msg"?[=:]"?(check API|admin API|probes|gateway|no gateway)\b.*?(?:[ ,]"?address"?[=:]"?([^\s"]+)"?)?}?$`)

// await waits until the log has named all listeners.
func (s *served) await(t *testing.T) {
	t.Helper()
	for line := range s.log.lines {
		switch m := told.FindStringSubmatch(line); {
		case m == nil:
		case m[1] == "check API":
			s.check = "http://" + m[2]
		case m[1] == "probes":
			s.probes = "http://" + m[2]
		case m[1] == "admin API":
			s.admin = "http://" + m[2]
		case m[1] == "gateway":
			s.gateway = "http://" + m[2]
			return
		default:
			return
		}
	}
	t.Fatalf("it did not start:\n%s", s.log)
}

// serving runs stint serve with ports of its own until the test ends.
func serving(t *testing.T, args ...string) *served {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &served{log: newLog()}
	done := make(chan int, 1)
	go func() {
		code := run(ctx, serveArgs(args), nil, io.Discard, s.log)
		s.log.end()
		done <- code
	}()
	s.stop = sync.OnceValue(func() int { cancel(); return <-done })
	stopsAtEnd(t, s.stop, s.log)
	s.await(t)
	return s
}

// bodyOf reads the body of a response to its end, and closes it.
func bodyOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// get is the status and what the limits say.
func get(t *testing.T, method, url string, headers ...string) string {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-RateLimit-Remaining"), resp.Header.Get("RateLimit"))
}

func checked(t *testing.T, s *served, body string) int {
	t.Helper()
	resp, err := http.Post(s.check+"/v1/check", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func hello(t *testing.T) string {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	t.Cleanup(up.Close)
	return up.URL
}

// One command puts a limit in front of an upstream.
func TestServeFlags(t *testing.T) {
	s := serving(t, "--upstream", hello(t), "--limit", "2 per 1h sliding_log", "--limit", "100 per 1h", "--key", "client.ip")
	for i, want := range []string{"200 1", "200 0", "429 0"} {
		if got := get(t, "GET", s.gateway); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
	// The check API counts in the same place.
	if code := checked(t, s, `{"client":"127.0.0.1"}`); code != 429 {
		t.Errorf("check: %d", code)
	}
	if code := checked(t, s, `{"client":"192.0.2.1"}`); code != 200 {
		t.Errorf("check of another: %d", code)
	}
	if got := get(t, "GET", s.check+"/readyz"); got != "200 " {
		t.Errorf("ready: %s", got)
	}
}

// What a shell passes on is what the expression says, whatever quotes it holds.
func TestServeQuotes(t *testing.T) {
	s := serving(t, "--upstream", hello(t), "--limit", " 1 per 1h  ",
		"--key", "request.headers[\"x-key\"]\n== "+`"it's" ? 'a "b": {c} #d\'' : request.headers["x-key"]`)
	for i, c := range []struct{ key, want string }{
		{"it's", "200 0"}, {"it's", "429 0"}, {`a "b": {c} #d'`, "429 0"}, {"other", "200 0"},
	} {
		if got := get(t, "GET", s.gateway, "X-Key", c.key); got != c.want {
			t.Errorf("request %d: %s, want %s", i, got, c.want)
		}
	}
}

// Flags override the settings of a file.
func TestServeConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stint.yaml")
	if err := os.WriteFile(file, []byte(`
server:
  listen: 256.0.0.1:1
  check_listen: 127.0.0.1:1
  store: redis://127.0.0.1:1
  headers: [x-ratelimit]
  routes: [{path: /only, upstream: "http://127.0.0.1:1"}]
rules:
  - {name: all, key: '"all"', limits: [1 per 1h]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serving(t, "--config", file, "--upstream", hello(t), "--store", "memory", "--headers", "draft-11")
	if got := get(t, "GET", s.gateway); got != `200 "all";r=0;t=3600` {
		t.Error(got)
	}
}

// Without routes there is no gateway, and that is said.
func TestServeCheckOnly(t *testing.T) {
	s := serving(t, "--limit", "1 per 1h")
	if s.gateway != "" || !strings.Contains(s.log.String(), "no gateway") {
		t.Errorf("gateway %q; %s", s.gateway, s.log)
	}
	if code := checked(t, s, `{"client":"192.0.2.1"}`); code != 200 {
		t.Error(code)
	}
	if code := checked(t, s, `{"client":"192.0.2.1"}`); code != 429 {
		t.Error(code)
	}
}

// The three things that the demo says to try.
func TestServeDemo(t *testing.T) {
	t.Setenv("STINT_SERVER_LOG_LEVEL", "info") // which has the addresses
	s := serving(t, "--demo")
	if got := get(t, "GET", s.gateway+"/hello"); got != "200 99" {
		t.Errorf("hello: %s", got)
	}
	var codes []string
	for range 6 {
		codes = append(codes, get(t, "GET", s.gateway+"/api")[:3])
	}
	for range 11 {
		codes = append(codes, get(t, "POST", s.gateway+"/login")[:3])
	}
	if got := strings.Join(codes, " "); got != strings.TrimSpace(strings.Repeat("200 ", 5)+"429 "+strings.Repeat("200 ", 5)+strings.Repeat("429 ", 6)) {
		t.Errorf("api and login: %s", got)
	}
}

// The demo says where its dashboard is, if there is one, and which commands show refusals.
func TestDemoNamesTheDashboard(t *testing.T) {
	gateway, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer gateway.Close()
	for _, shown := range []bool{true, false} {
		var out strings.Builder
		settings := config.Default()
		settings.Admin.Dashboard = shown
		tellDemo(&settings, server.Listeners{Gateway: gateway, Admin: gateway}, &out)
		if text := out.String(); strings.Contains(text, "The dashboard is at http://"+gateway.Addr().String()+"/") != shown || !strings.Contains(text, "curl") || !strings.Contains(text, " top --admin http://"+gateway.Addr().String()+"\n") {
			t.Errorf("%v: %s", shown, text)
		}
	}
}

// What keeps it from serving is said, and nothing stays open.
func TestServeFailsToStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"check": {[]string{"--check-listen", taken.Addr().String()}, "stint: check API: listen tcp " + taken.Addr().String() + ": bind: address already in use (elsewhere: --check-listen ADDRESS, or STINT_SERVER_CHECK_LISTEN=ADDRESS; without it: --check-listen off)\n"},
		"admin": {[]string{"--check-listen", "127.0.0.1:0", "--admin-listen", taken.Addr().String()},
			"stint: admin API: listen tcp " + taken.Addr().String() + ": bind: address already in use (elsewhere: --admin-listen ADDRESS, or STINT_SERVER_ADMIN_LISTEN=ADDRESS; without it: --admin-listen off)\n"},
		"gateway": {[]string{"--check-listen", "127.0.0.1:0", "--admin-listen", "off", "--listen", taken.Addr().String(), "--upstream", "http://localhost"},
			"stint: gateway: listen tcp " + taken.Addr().String() + ": bind: address already in use (elsewhere: --listen ADDRESS, or STINT_SERVER_LISTEN=ADDRESS)\n"},
		"store": {[]string{"--store", "redis://user:geheim@127.0.0.1:1/name"}, "stint: serve: --store: database \"name\": must be a number such as 0\n"},
	} {
		code, _, errs := call("", append([]string{"serve", "--limit", "1 per 1h"}, c.args...)...)
		want := 1
		if name == "store" { // the call is wrong
			want = 2
		}
		if last := errs[max(0, strings.LastIndex(strings.TrimSpace(errs), "\n")+1):]; code != want || !strings.HasPrefix(last, c.want) || strings.Contains(errs, "geheim") {
			t.Errorf("%s: exit %d\n%s", name, code, errs)
		}
	}
	code, _, errs := call("", "serve", "--envoy", "../../examples/envoy/ratelimit", "--check-listen", "off", "--admin-listen", "off", "--envoy-listen", taken.Addr().String())
	if code != 1 || !strings.Contains(errs, "stint: Envoy's gRPC: listen tcp "+taken.Addr().String()+": bind: address already in use (elsewhere: --envoy-listen ADDRESS, ") {
		t.Errorf("envoy: exit %d\n%s", code, errs)
	}
}

// hang makes a Redis take commands and answer none.
func hang(t *testing.T, redis *redistest.Server) {
	t.Helper()
	c, err := net.Dial("tcp", redis.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "CLIENT PAUSE 60000 ALL\r\n")
	if answer, err := bufio.NewReader(c).ReadString('\n'); answer != "+OK\r\n" {
		t.Fatal(answer, err)
	}
}

// Two instances share what a Redis counts; without it each goes on by itself from
// what it was told last, after no more than the time for a decision.
func TestServeRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "stint.yaml")
	if err := os.WriteFile(file, []byte(`
server: {decision_timeout: 200ms, instances: 1}
rules: [{name: client, key: client.ip, limits: [3 per 1h sliding_log]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config", file, "--upstream", hello(t), "--store", redis.URL()}
	a, b := serving(t, args...), serving(t, args...)
	for i, c := range []struct {
		s    *served
		want string
	}{{a, "200 2"}, {b, "200 1"}, {a, "200 0"}, {b, "429 0"}, {a, "429 0"}} {
		if got := get(t, "GET", c.s.gateway); got != c.want {
			t.Errorf("request %d: %s, want %s", i, got, c.want)
		}
	}
	if code := b.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	hang(t, redis)
	if got := get(t, "GET", a.gateway); got != "429 0" {
		t.Errorf("who had nothing left has, without the store: %s", got)
	}
	for i, want := range []int{200, 200, 200, 429} {
		if code := checked(t, a, `{"client":"192.0.2.1"}`); code != want {
			t.Errorf("alone, request %d: %d, want %d", i, code, want)
		}
	}
	if !strings.Contains(a.log.String(), "the store does not decide") {
		t.Errorf("nobody is told:\n%s", a.log)
	}
}

// A Redis that may drop counts is warned of.
func TestServeEviction(t *testing.T) {
	redis := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	s := serving(t, "--limit", "3 per 1h", "--store", redis.URL())
	if !strings.Contains(s.log.String(), "level=WARN") || !strings.Contains(s.log.String(), "maxmemory-policy allkeys-lru") {
		t.Errorf("log:\n%s", s.log)
	}
}

// As a process it ends on SIGTERM, when what is under way is done.
func TestServeSignal(t *testing.T) {
	came, goOn := make(chan bool), make(chan bool)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		came <- true
		<-goOn
		fmt.Fprint(w, "finished")
	}))
	defer up.Close()
	c, s := process(t, "--admin-listen", "off", "--upstream", up.URL, "--limit", "9 per 1h")
	body := make(chan string)
	go func() {
		resp, err := http.Get(s.gateway)
		if err != nil {
			body <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		body <- string(b)
	}()
	<-came
	c.signal(t, syscall.SIGTERM)
	await.Until(t, "it has stopped listening", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.gateway, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(goOn)
	if got := <-body; got != "finished" {
		t.Errorf("under way: %s", got)
	}
	c.endsWell(t)
}
