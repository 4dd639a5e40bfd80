package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// stint status --settings says of each setting what is in force and what gave it, and no secret.
func TestStatusSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stint.yaml")
	const file = `server:
  max_delay: 3s
  namespace: shop
  routes:
    - {path: /a, upstream: "http://127.0.0.1:9"}
    - {upstream: "http://${STINT_TEST_UPSTREAM}"}
  webhooks: [{name: ops, kind: json, url: "http://127.0.0.1:9/sesame"}]
  secrets: {pepper: {file: PEPPER}}
rules: [{name: a, key: client.ip, limits: [1 per 1s]}]
`
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(file, "PEPPER", path)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("STINT_TEST_UPSTREAM", "127.0.0.1:9")
	t.Setenv("STINT_SERVER_MAX_KEYS", "12345")
	t.Setenv("STINT_SERVER_LOG_REFUSALS", "9")
	t.Setenv("STINT_SERVER_PRIVACI", "hash")
	s := serving(t, "--config", path, "--namespace", "till")
	code, out, errs := call("", "status", "--settings", "--admin", s.admin)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	out = strings.ReplaceAll(regexp.MustCompile(` {2,}`).ReplaceAllString(out, " "), path, "FILE")
	for _, want := range []string{
		"\nmax_delay 3s (from FILE:2:14)\n",
		"\nnamespace till (from --namespace)\n",
		"\nmax_keys 12345 (from STINT_SERVER_MAX_KEYS)\n",
		"\nlog.refusals 9 (from STINT_SERVER_LOG_REFUSALS)\n",
		"\nroutes[0].path /a (from FILE:5:14)\n",
		"\nroutes[1].upstream http://${STINT_TEST_UPSTREAM} (from FILE:6:18)\n",
		"\nwebhooks[0].url http://127.0.0.1:9/… (from FILE:7:43)\n",
		"\nsecrets.pepper.file FILE (from FILE:8:28)\n",
		"\nprivacy show (by default)\n",
		"\njwt none (by default)\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("not told: %s", want)
		}
	}
	if strings.Contains(out, "sesame") || strings.Contains(out, "jwt.leeway") || t.Failed() {
		t.Errorf("told:\n%s", out)
	}
	if log := s.log.String(); !strings.Contains(log, "STINT_SERVER_PRIVACI (did you mean STINT_SERVER_PRIVACY?)") {
		t.Errorf("not logged:\n%s", log)
	}
}

// A file that needs a variable or a flag to be whole is read with them after the start, too; a change that
// they hide takes no restart.
func TestReloadWithGivenSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stint.yaml")
	put(t, path, "server: {jwt: {issuer: a}, max_delay: 3s}\n"+limited(2, ""))
	t.Setenv("STINT_SERVER_JWT_TRUSTED", "true")
	t.Setenv("STINT_SERVER_MAX_DELAY", "4s")
	s := serving(t, "--config", path)
	put(t, path, "server: {jwt: {issuer: a}, max_delay: 5s}\n"+limited(3, ""))
	s.says(t, "rules taken", "count=1")
	put(t, path, "server: {jwt: {issuer: b}, max_delay: 5s}\n"+limited(4, ""))
	s.says(t, "takes a restart")
	if log := s.log.String(); strings.Contains(log, "not taken") || strings.Count(log, "takes a restart") != 1 {
		t.Errorf("logged:\n%s", log)
	}
}

// The settings in force are those of the start, with what the files of ${file:PATH} had then.
func TestReloadTellsOfChangedReference(t *testing.T) {
	dir := t.TempDir()
	path, proxy := filepath.Join(dir, "stint.yaml"), filepath.Join(dir, "proxy")
	put(t, proxy, "a")
	settings := "server: {upstream_proxy: 'http://${file:" + proxy + "}:3128'}\n"
	put(t, path, settings+limited(2, ""))
	s := serving(t, "--config", path)
	put(t, proxy, "b")
	put(t, path, settings+limited(3, ""))
	s.says(t, "rules taken", "count=1")
	s.says(t, "takes a restart")
}
