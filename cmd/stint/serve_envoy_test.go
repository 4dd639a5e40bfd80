package main

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServeEnvoy has Envoy's rate limit service beside the gateway and the check API: one set of rules,
// one admin API, one log.
func TestServeEnvoy(t *testing.T) {
	dir := t.TempDir()
	descriptors, socket := filepath.Join(dir, "descriptors"), filepath.Join(dir, "rls.sock")
	if err := os.Mkdir(descriptors, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(descriptors, "shop.yaml"), shop)
	write(filepath.Join(descriptors, ".shop.yaml.swp"), "no configuration")
	file := filepath.Join(dir, "stint.yaml")
	write(file, "server:\n  envoy: {directory: "+descriptors+", listen: \"unix:"+socket+"\", response_headers: true}\nrules: [{name: client, key: client.ip, limits: [100 per 1m]}]\n")
	s := serving(t, "--config", file)
	a := answeringBeside(t, s)
	for _, want := range []string{"OK 1", "OK 0", "OVER_LIMIT 0"} {
		a.asks(t, want, "shop", "remote_address=192.0.2.1")
	}
	if status, _ := checkedBy(t, s, `{"client":"192.0.2.1"}`); status != 200 {
		t.Errorf("a check: %d", status)
	}
	if code, out, errs := call("", "ban", "add", "--admin", s.admin, "--rule", "shop/remote_address", "--key", "192.0.2.9", "--for", "1h"); code != 0 {
		t.Errorf("stint ban: %d, %s%s", code, out, errs)
	}
	a.asks(t, "OVER_LIMIT 0", "shop", "remote_address=192.0.2.9")
	if code, out, errs := call("", "key", "show", "--admin", s.admin, "--rule", "shop/remote_address", "--key", "192.0.2.1"); code != 0 || !strings.Contains(out, "192.0.2.1") {
		t.Errorf("stint key show: %d, %s%s", code, out, errs)
	}
	if code, out, errs := call("", "rules", "list", "--admin", s.admin); code != 0 || !strings.Contains(out, "\nshop/remote_address ") {
		t.Errorf("stint rules list: %d, %s%s", code, out, errs)
	}
	if code, out, errs := call("", "rules", "push", "--admin", s.admin, "--after", "0", "testdata/files/fleet.yaml"); code != 1 || !strings.Contains(errs, "some of its rules are in Envoy's files") {
		t.Errorf("stint rules push: %d, %s%s", code, out, errs)
	}
	write(filepath.Join(descriptors, "shop.yaml"), strings.ReplaceAll(shop, "plan", "tier"))
	a.asksUntil(t, "OK 4294967295", "shop", "tier=free")
	if status, _ := checkedBy(t, s, `{"client":"192.0.2.1"}`); status != 200 {
		t.Errorf("a check after the reload: %d", status)
	}
	write(filepath.Join(descriptors, "shop.yaml"), "domain: shop\nsurprise: 1\n")
	a.logged(t, "rules not taken.*unknown key 'surprise'")
	a.asks(t, "OK 4294967295", "shop", "tier=free")
}

// TestServeEnvoyFlags needs no file of settings.
func TestServeEnvoyFlags(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "shop"), []byte(shop), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serving(t, "--envoy", dir, "--envoy-listen", "127.0.0.1:0", "--envoy-each")
	a := answeringBeside(t, s)
	a.asks(t, "OK 1", "shop", "remote_address=192.0.2.1")
}

// Statistics reach a statsd, by the settings of the file.
func TestServeEnvoyStatsd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	descriptors, socket := filepath.Join(dir, "descriptors"), filepath.Join(dir, "rls.sock")
	if err := os.Mkdir(descriptors, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(descriptors, "shop.yaml"), []byte(shop), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file := filepath.Join(dir, "stint.yaml")
	if err := os.WriteFile(file, []byte("server:\n  envoy: {directory: "+descriptors+", listen: \"unix:"+socket+"\", statsd: \""+l.Addr().String()+"\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	serving(t, "--config", file)
	came := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for lines := bufio.NewScanner(c); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "ratelimit.service.config_load_success:") {
				came <- lines.Text()
				return
			}
		}
	}()
	select {
	case line := <-came:
		if line != "ratelimit.service.config_load_success:1|c" {
			t.Error(line)
		}
	case <-time.After(60 * time.Second): // a flush takes 10
		t.Error("no statistics came")
	}
}
