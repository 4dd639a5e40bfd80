package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stintdev/stint/internal/await"
)

// The settings say how the program logs: here as JSON, a line for each request and each
// refusal, with hashes in place of addresses.
func TestServeLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stint.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(`
server:
  listen: 127.0.0.1:0
  routes: [{upstream: %q}]
  privacy: hash
  log: {format: json, level: info, refusals: 2, access: true}
rules:
  - {name: all, key: client.ip, limits: [1 per 1h]}
`, hello(t))), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serving(t, "--config", file)
	var refused string
	for range 4 {
		resp, err := http.Get(s.gateway + "/path")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		refused = resp.Header.Get("Stint-Decision")
	}
	count := func() map[string]int {
		n := map[string]int{}
		for line := range strings.Lines(s.log.String()) {
			var l map[string]any
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			n[l["msg"].(string)]++
			if l["msg"] == "request" && l["decision"] == refused {
				n["joined"]++
			}
			if client, ok := l["client"].(string); ok && !strings.HasPrefix(client, "h:") {
				t.Errorf("%s", line)
			}
		}
		return n
	}
	await.So(func() bool { return count()["more refusals"] > 0 })
	if n := count(); n["request"] != 4 || n["refused"] != 2 || n["more refusals"] != 1 || n["joined"] != 1 {
		t.Errorf("%v in\n%s", n, s.log)
	}
}
