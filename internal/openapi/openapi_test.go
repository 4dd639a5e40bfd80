// Package openapi makes clients of the documents in docs, and drives a stint serve with them. The clients
// are made anew by each test, so that none of their 16,000 lines is ever out of date. It is a module
// of its own because they import oapi-codegen/runtime.
package openapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/oapi-codegen/runtime" // for the clients
)

const repository = "../.."

// config has what testdata/drive asks about.
const config = `
trusted_proxies: [127.0.0.1]
blocklist: [operation == "bad"]
server:
  check: {tokens: [{name: shop, file: shop.token}]}
  admin: {tokens: [{name: ops, scope: write, file: ops.token}]}
rules:
  - {name: login, match: operation == "login", key: client.ip, limits: [1 per 1h fixed_window]}
  - {name: paths, match: request.path == "/once", key: client.ip, limits: [1 per 1h fixed_window]}
  - {name: tokens, match: operation == "export", key: attrs.user, limits: [1000 per 1h fixed_window hold]}
  - {name: slots, match: operation == "export", key: attrs.user, cost: "1", limits: [2 in_flight]}
`

// Clients that oapi-codegen makes of both documents, of every operation, can be built, and the tests of
// testdata/drive pass with them.
func TestClients(t *testing.T) {
	generated := overlay(t, map[string]string{"check": "check-api.yaml", "admin": "admin-api.yaml"})
	check, admin := serve(t)
	// go vet does not know the folders of an overlay.
	drive := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay", generated, "./testdata/drive")
	drive.Env = append(os.Environ(), "STINT_CHECK="+check, "STINT_ADMIN="+admin)
	if out, err := drive.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// overlay makes the package of each document below testdata, for the flag -overlay.
func overlay(t *testing.T, documents map[string]string) string {
	t.Helper()
	replace := map[string]string{}
	for name, document := range documents {
		file := filepath.Join(t.TempDir(), name+".go")
		run(t, "go", "-C", filepath.Join(repository, "tools"), "tool", "oapi-codegen",
			"-generate", "types,client", "-package", name, "-o", file, filepath.Join("..", "docs", document))
		at, err := filepath.Abs(filepath.Join("testdata", name, name+".go"))
		if err != nil {
			t.Fatal(err)
		}
		replace[at] = file
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	write(t, file, string(text))
	return file
}

var served = regexp.MustCompile(`msg="?(check|admin) API"? address=(127\.0\.0\.1:[0-9]+)`)

// serve starts a stint serve until the test ends, and returns the URLs of its APIs.
func serve(t *testing.T) (check, admin string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"stint.yaml": config, "shop.token": "shop-0123456789abcdef", "ops.token": "ops-0123456789abcdef"} {
		write(t, filepath.Join(dir, name), text)
	}
	stint := filepath.Join(dir, "stint")
	run(t, "go", "-C", repository, "build", "-o", stint, "./cmd/stint")
	c := exec.Command(stint, "serve", "--config", "stint.yaml", "--check-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	c.Dir = dir
	stderr, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	log, ready, ended := new(bytes.Buffer), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			log.WriteString(lines.Text() + "\n")
			switch found := served.FindStringSubmatch(lines.Text()); {
			case found != nil && found[1] == "check":
				check = "http://" + found[2]
			case found != nil:
				admin = "http://" + found[2]
			case strings.Contains(lines.Text(), "msg=rules"): // the last line of the start
				close(ready)
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		<-ended
		if err := c.Wait(); err != nil {
			t.Errorf("stint serve: %v\n%s", err, log)
		}
	})
	select {
	case <-ready:
	case <-ended:
		t.Fatalf("stint serve ended:\n%s", log)
	case <-time.After(time.Minute):
		t.Fatal("stint serve does not begin")
	}
	return check, admin
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
