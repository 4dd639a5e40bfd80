package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A caller with the scope read cannot bring an instance down by rules to be checked:
// memory stays bounded, the work ends when the caller leaves, and callers with the scope
// write are not held up.
func TestAttackRulesCheck(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "read"), "0123456789abcdef-read\n")
	put(t, filepath.Join(dir, "write"), "0123456789abcdef-write\n")
	put(t, filepath.Join(dir, "stint.yaml"), "server:\n  admin: {tokens: [{name: reader, scope: read, file: "+dir+
		"/read}, {name: writer, scope: write, file: "+dir+"/write}]}\nrules:\n  - {name: r, key: client.ip, match: '"+
		"true"+strings.Repeat(" && operation != \"x\"", 150)+"', limits: [1 per 1h]}\n")
	victim, at := process(t, "--config", filepath.Join(dir, "stint.yaml"), "--check-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
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
		_, before := ofProcess(t, victim.Process.Pid, "VmRSS")
		time.Sleep(300 * time.Millisecond)
		_, after := ofProcess(t, victim.Process.Pid, "VmRSS")
		return after-before < 100*time.Millisecond
	}
	until(t, "the work has ended with the calls", 30*time.Second, quiet)
	if code, err := ask(t.Context(), "read", "/v1/rules/check", list("client.ip == operation", 1)); code != 200 {
		t.Errorf("rules to check, afterwards: %d %v", code, err)
	}
	if code, err := ask(t.Context(), "read", "/v1/explain", map[string]string{"operation": "x"}); code != 200 {
		t.Errorf("to explain, afterwards: %d %v", code, err)
	}
	most, _ := ofProcess(t, victim.Process.Pid, "VmHWM")
	now, _ := ofProcess(t, victim.Process.Pid, "VmRSS")
	t.Logf("RSS at most %d MiB, afterwards %d MiB", most>>10, now>>10)
	if most > 600<<10 {
		t.Errorf("RSS of %d MiB", most>>10)
	}
}
