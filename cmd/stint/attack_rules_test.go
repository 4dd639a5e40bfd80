package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
)

// A caller with the scope read cannot bring an instance down by rules to be checked:
// memory stays bounded, the work ends when the caller leaves, and callers with the scope
// write are not held up.
func TestAttackRulesCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "read"), "0123456789abcdef-read\n")
	put(t, filepath.Join(dir, "write"), "0123456789abcdef-write\n")
	put(t, filepath.Join(dir, "stint.yaml"), "server:\n  admin: {tokens: [{name: reader, scope: read, file: "+dir+
		"/read}, {name: writer, scope: write, file: "+dir+"/write}]}\nrules:\n  - {name: r, key: client.ip, match: '"+
		"true"+strings.Repeat(" && operation != \"x\"", 150)+"', limits: [1 per 1h]}\n")
	victim, at := process(t, "--config", filepath.Join(dir, "stint.yaml"))
	ask := func(ctx context.Context, scope, path string, body any) (int, error) {
		encoded, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(ctx, "POST", at.admin+path, bytes.NewReader(encoded))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer 0123456789abcdef-"+scope)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		return resp.StatusCode, nil
	}
	list := func(expression string, n int) map[string]string {
		return map[string]string{"text": "blocklist:\n" + strings.Repeat("  - '"+expression+"'\n", n)}
	}
	constant := `"` + strings.Repeat("a", 9) + `".replace("","` + strings.Repeat("b", 40) + `").replace("","` + strings.Repeat("b", 100) + `").replace("","`
	bombs := map[string]map[string]string{
		"constants of a megabyte": list(constant+strings.Repeat("b", 20)+`")==client.ip`, 500),
		"a search of minutes":     list(constant+strings.Repeat("b", 20)+`").indexOf("`+strings.Repeat("b", 500)+`c")==1`, 3),
		"lists of lists":          list("[1]"+strings.Repeat(".map(x,[x,x])", 40)+"==[client.ip]", 500),
		"patterns":                list(`client.ip.matches("`+strings.Repeat("(a{1000})", 300)+`")`, 300),
		"long expressions":        list("cost==1"+strings.Repeat("||cost==1", 440), 800),
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, body := range bombs {
		for range 2 {
			all.Go(func() { _, _ = ask(short, "read", "/v1/rules/check", body) })
		}
	}
	all.Go(func() {
		if code, err := ask(t.Context(), "write", "/v1/rules/check", list("true", 1)); code != 200 {
			t.Errorf("rules to check by who may write, meanwhile: %d %v", code, err)
		}
	})
	all.Wait()
	quiet := func() bool {
		_, before := ofProcess(t, victim.pid(), "VmRSS")
		time.Sleep(300 * time.Millisecond)
		_, after := ofProcess(t, victim.pid(), "VmRSS")
		return after-before < 100*time.Millisecond
	}
	await.Until(t, "the work has ended with the calls", quiet)
	if code, err := ask(t.Context(), "read", "/v1/rules/check", list("client.ip == operation", 1)); code != 200 {
		t.Errorf("rules to check, afterwards: %d %v", code, err)
	}
	if code, err := ask(t.Context(), "read", "/v1/explain", map[string]string{"operation": "x"}); code != 200 {
		t.Errorf("to explain, afterwards: %d %v", code, err)
	}
	most, _ := ofProcess(t, victim.pid(), "VmHWM")
	now, _ := ofProcess(t, victim.pid(), "VmRSS")
	t.Logf("RSS at most %d MiB, afterwards %d MiB", most>>10, now>>10)
	if most > 600<<10 {
		t.Errorf("RSS of %d MiB", most>>10)
	}
}

// Whatever a rules file is for a moment, a pipe that nobody writes to among it, the
// program answers by the rules of before, says what is wrong, and takes the next file
// that is one.
func TestAttackRulesPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.yaml")
	rules := func(amount string) string {
		return "rules: [{name: client, key: client.ip, limits: [" + amount + " per 24h]}]\n"
	}
	if err := os.WriteFile(path, []byte(rules("1000")), 0o600); err != nil {
		t.Fatal(err)
	}
	_, s := process(t, "--config", path, "--admin-listen", "off")
	for i, put := range []func(string) error{
		func(at string) error { return syscall.Mkfifo(at, 0o600) },
		func(at string) error { return os.Symlink(filepath.Join(dir, "none"), at) },
		func(at string) error { return os.Mkdir(at, 0o700) },
	} {
		_ = os.RemoveAll(path)
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the log tells of it", func() bool { return strings.Count(s.log.String(), "rules not taken") > i })
		if status := checked(t, s, `{"client":"192.0.2.1"}`); status != 200 {
			t.Errorf("%d: status %d", i, status)
		}
		next := filepath.Join(dir, "next")
		if err := os.WriteFile(next, []byte(rules("100"+string(rune('1'+i)))), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.RemoveAll(path)
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "it is watched again", func() bool { return strings.Count(s.log.String(), `msg="rules taken"`) > i })
	}
}
