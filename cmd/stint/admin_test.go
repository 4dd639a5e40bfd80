package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stintdev/stint/internal/redistest"
)

// The admin API is there for this machine without being asked for, in a demo, too,
// unless it is switched off.
func TestServeAdmin(t *testing.T) {
	t.Setenv("STINT_SERVER_LOG_LEVEL", "info") // the demo says less
	for _, args := range [][]string{{"--demo"}, {"--limit", "1 per 1h"}} {
		s := serving(t, args...)
		if got := get(t, "GET", s.admin+"/v1/status"); got != "200 " {
			t.Errorf("%v: %s", args, got)
		}
		off := serving(t, append(args, "--admin-listen", "off")...)
		if off.admin != "" {
			t.Errorf("%v: switched off, it listens at %s", args, off.admin)
		}
	}
}

// serveTLS writes a configuration with TLS at the check API and a token for the
// admin API, and serves it.
func serveTLS(t *testing.T) (s *served, dir string, connect func() *tls.Conn) {
	t.Helper()
	dir = t.TempDir()
	_, cert, key := redistest.Certificate(t)
	copyFile(t, cert, filepath.Join(dir, "cert.pem"))
	copyFile(t, key, filepath.Join(dir, "key.pem"))
	put(t, filepath.Join(dir, "token"), "0123456789abcdef-one\n")
	put(t, filepath.Join(dir, "stint.yaml"), "server:\n  check_tls: {cert: "+dir+"/cert.pem, key: "+dir+"/key.pem}\n"+
		"  admin: {listen: ':1', tokens: [{name: ops, scope: write, file: "+dir+"/token}]}\n"+limited(2, ""))
	s = serving(t, "--config", filepath.Join(dir, "stint.yaml"))
	return s, dir, func() *tls.Conn {
		t.Helper()
		roots := x509.NewCertPool()
		text, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
		if err != nil || !roots.AppendCertsFromPEM(text) {
			t.Fatal("no certificate", err)
		}
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.check, "http://"), &tls.Config{RootCAs: roots, ServerName: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	put(t, to, string(text))
}

// SIGHUP makes it read certificates and tokens again, at once.
func TestServeHangup(t *testing.T) {
	s, dir, connect := serveTLS(t)
	connect()
	_, cert, key := redistest.Certificate(t)
	copyFile(t, cert, filepath.Join(dir, "cert.pem"))
	copyFile(t, key, filepath.Join(dir, "key.pem"))
	put(t, filepath.Join(dir, "token"), "0123456789abcdef-two\n")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.says(t, "certificate taken", "listener=check")
	s.says(t, "tokens taken")
	connect() // trusts the new one alone
	for token, want := range map[string]string{"0123456789abcdef-one": "401 ", "0123456789abcdef-two": "200 "} {
		if got := get(t, "GET", s.admin+"/v1/status", "Authorization", "Bearer "+token); got != want {
			t.Errorf("%s: %s, want %s", token, got, want)
		}
	}
	if strings.Contains(s.log.String(), "0123456789abcdef") {
		t.Errorf("it logs tokens:\n%s", s.log)
	}
}

// Tokens that others could read on their way are warned of.
func TestServeTokensInTheClear(t *testing.T) {
	for listen, want := range map[string]bool{"127.0.0.1:0": false, ":0": true} {
		t.Setenv("STINT_TEST_TOKEN", "0123456789abcdef")
		path := configured(t, "server: {admin: {listen: '"+listen+"', tokens: [{name: ops, scope: read, env: STINT_TEST_TOKEN}]}}\n"+limited(2, ""))
		s := serving(t, "--config", path, "--admin-listen", listen)
		if got := get(t, "GET", s.check+"/healthz"); got != "200 " { // it runs, so it has warned
			t.Error(got)
		}
		s.stop()
		if said := strings.Contains(s.log.String(), "tokens are sent unencrypted"); said != want {
			t.Errorf("%s:\n%s", listen, s.log)
		}
	}
}

// The same goes for the headers of traces and webhooks.
func TestServeHeadersInTheClear(t *testing.T) {
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("Authorization: Bearer geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{"127.0.0.1": 0, "192.0.2.1": 2} {
		path := configured(t, fmt.Sprintf(`server:
  traces: {endpoint: 'http://%[1]s:1', sample: 0, headers_file: %[2]s}
  webhooks: [{name: ops, kind: json, url: 'http://%[1]s:1', headers_file: %[2]s}]
`, host, headers)+limited(2, ""))
		s := serving(t, "--config", path)
		if got := get(t, "GET", s.check+"/healthz"); got != "200 " { // it runs, so it has warned
			t.Error(got)
		}
		s.stop()
		if n := strings.Count(s.log.String(), "are sent unencrypted"); n != want || strings.Contains(s.log.String(), "geheim") {
			t.Errorf("%s:\n%s", host, s.log)
		}
	}
}
