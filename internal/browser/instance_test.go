package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// instance is a stint serve that runs until its test ends.
type instance struct {
	t                     testing.TB
	dir                   string
	process               *os.Process
	stop                  func() // ends it, and waits for its end
	gateway, check, admin string // URLs

	mu  sync.Mutex
	log bytes.Buffer
}

const (
	writeToken = "geheim-write-0123456789abcdef"
	readToken  = "geheim-read-0123456789abcdef"
)

// withTokens is the part of a configuration by which callers need a token.
const withTokens = `
  admin:
    tokens:
      - {name: ops, scope: write, file: ops.token}
      - {name: viewer, scope: read, file: viewer.token}
`

var served = regexp.MustCompile(`msg="?(gateway|check|admin)(?: API)?"? address=(127\.0\.0\.1:[0-9]+)`)

// serve starts an instance with a configuration and, where the arguments name none, a store in
// memory.
func serve(t testing.TB, config string, args ...string) *instance {
	t.Helper()
	s := &instance{t: t, dir: t.TempDir()}
	for name, text := range map[string]string{"stint.yaml": config, "ops.token": writeToken, "viewer.token": readToken} {
		s.write(name, text)
	}
	c := exec.Command(stint(t), append([]string{"serve", "--config", "stint.yaml", "--listen", "127.0.0.1:0", "--check-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
	c.Dir = s.dir
	stderr, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.process = c.Process
	ready, ended := make(chan struct{}), make(chan struct{})
	go s.follow(stderr, ready, ended)
	s.stop = sync.OnceFunc(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		<-ended
		if err := c.Wait(); err != nil {
			t.Errorf("stint serve: %v\n%s", err, s.text())
		}
	})
	t.Cleanup(s.stop)
	select {
	case <-ready:
	case <-ended:
		t.Fatalf("stint serve ended:\n%s", s.text())
	case <-time.After(30 * time.Second):
		t.Fatalf("stint serve does not begin:\n%s", s.text())
	}
	return s
}

// follow reads the log, and closes ready when the instance has begun.
func (s *instance) follow(r io.Reader, ready, ended chan struct{}) {
	defer close(ended)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.mu.Lock()
		s.log.Write(append(lines.Bytes(), '\n'))
		s.mu.Unlock()
		if found := served.FindStringSubmatch(lines.Text()); found != nil {
			url := "http://" + found[2]
			switch found[1] {
			case "gateway":
				s.gateway = url
			case "check":
				s.check = url
			case "admin":
				s.admin = url
			}
		}
		if strings.Contains(lines.Text(), "msg=rules") && ready != nil { // the last line of the start
			close(ready)
			ready = nil
		}
	}
}

// text is the log so far.
func (s *instance) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// write writes a file into the instance's directory.
func (s *instance) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// reload makes it read its files again.
func (s *instance) reload() {
	s.t.Helper()
	if err := s.process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatal(err)
	}
}

// call calls the admin API as a program does.
func (s *instance) call(method, path string, body any) (int, string) {
	s.t.Helper()
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		text = bytes.NewReader(b)
	}
	r, err := http.NewRequest(method, s.admin+path, text)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+writeToken)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// must is call, and want is the status that it must have.
func (s *instance) must(want int, method, path string, body any) string {
	s.t.Helper()
	code, answer := s.call(method, path, body)
	if code != want {
		s.t.Fatalf("%s %s: %d %s, want %d", method, path, code, answer, want)
	}
	return answer
}

// ask sends checks, each an object of the check API, and returns their statuses.
func (s *instance) ask(checks ...map[string]any) (statuses []int) {
	s.t.Helper()
	for _, c := range checks {
		b, err := json.Marshal(c)
		if err != nil {
			s.t.Fatal(err)
		}
		resp, err := http.Post(s.check+"/v1/check", "application/json", bytes.NewReader(b))
		if err != nil {
			s.t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode == http.StatusBadRequest {
			s.t.Fatalf("%s: %s %v", b, answer, err)
		}
		statuses = append(statuses, resp.StatusCode)
	}
	return statuses
}

// banMany has n clients banned by the rule login, which must ban at once.
func (s *instance) banMany(n int) {
	s.t.Helper()
	for first := 0; first < n; first += 1000 {
		var checks []map[string]any
		for i := first; i < min(first+1000, n); i++ {
			checks = append(checks, login(fmt.Sprintf("10.0.%d.%d", i>>8, i&255)))
		}
		s.askAtOnce(checks)
		s.askAtOnce(checks)
	}
}

// askAtOnce sends checks in one call.
func (s *instance) askAtOnce(checks []map[string]any) {
	s.t.Helper()
	b, err := json.Marshal(checks)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.Post(s.check+"/v1/check", "application/json", bytes.NewReader(b))
	if err != nil {
		s.t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 200 {
		s.t.Fatalf("%d %.300s", resp.StatusCode, text)
	}
}

// login is a check of the operation login by a client.
func login(client string) map[string]any {
	return map[string]any{"operation": "login", "client": client}
}
