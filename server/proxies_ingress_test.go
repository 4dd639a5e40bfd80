package server_test

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/stintdev/stint/server"
)

const ingressToken = "one-of-16-characters-or-more"

// asInCluster is a server with the settings and rules of a file in deploy/values, for proxies on this machine
// and 3 requests an hour. It refuses requests other than those that the tests send.
func asInCluster(t *testing.T, file string) *server.Server {
	t.Helper()
	data, err := os.ReadFile("../deploy/values/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var values struct{ Config map[string]any }
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	values.Config["blocklist"] = []string{`request.host != "shop.example" || request.path == "/free" || (request.method == "POST") != (request.path == "/a b")`}
	text, err := yaml.Marshal(values.Config)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, token := filepath.Join(dir, "stint.yaml"), filepath.Join(dir, "token")
	here := strings.NewReplacer("10.0.0.0/8", "127.0.0.1/32", "100 per 1m", "3 per 1h", "/run/secrets/stint-check/ingress", token)
	for name, text := range map[string]string{path: here.Replace(string(text)), token: ingressToken} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := server.Load(path, server.Config{NoFollow: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// With what ingress-nginx writes for deploy/examples/ingress-nginx.yaml, nginx asks about the request that the
// client sent. Without the snippets of that file, the client sees only 403.
func TestRealProxiesIngressNginx(t *testing.T) {
	lies := []string{
		"X-Forwarded-For: 203.0.113.1", "X-Real-IP: 203.0.113.1", "Forwarded: for=203.0.113.1", "Stint-Token: x",
		"X-Original-Method: GET", "X-Original-URI: /free", "X-Original-Host: x", "X-Original-URL: http://x/free",
		"X-Forwarded-Method: GET", "X-Forwarded-Uri: /free", "X-Forwarded-Host: x",
	}
	for _, c := range []struct {
		values, file, token string
		refused             int
	}{
		{"check-ingress.yaml", "ingress-nginx.conf", "", 403},
		{"check-ingress.yaml", "ingress-nginx-snippets.conf", "", 429},
		{"check.yaml", "ingress-nginx.conf", ingressToken, 403},
	} {
		t.Run(c.values+" "+c.file, func(t *testing.T) {
			app := &application{}
			up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Values("Connection"); strings.Contains(strings.ToLower(strings.Join(got, ",")), "upgrade") {
					t.Errorf("the application is asked to upgrade: %q", got)
				}
				app.ServeHTTP(w, r)
			})
			stint := start(t, asInCluster(t, c.values))
			nginx := realProxies[0]
			nginx.folder, nginx.files = "testdata", []string{c.file}
			nginx.swaps = []string{
				"stint-api.default.svc.cluster.local:8082", "127.0.0.1:8082", // nginx asks no DNS
				"'Stint-Token' ''", "'Stint-Token' '" + c.token + "'",
			}
			addr := nginx.start(t, stint.check, up.Host)
			for _, client := range []string{"127.0.0.2", "127.0.0.3"} {
				for i := range 5 {
					got := sendFrom(t, client, addr, "POST", "/a%20b?q=1", "the body", lies...)
					want, seen := 200, strings.Join(app.take(), ", ")
					if i >= 3 {
						want = c.refused
					}
					passed := "POST shop.example /a%20b?q=1 the body " + client
					if got.StatusCode != want || (want == 200) != (seen == passed) || want != 200 && seen != "" {
						t.Errorf("%s, %d: %s %s, want %d; the application saw %q", client, i, got.Status, got.body, want, seen)
					}
					if wait := got.Header["Retry-After"]; aWait(wait) != (want == 429) {
						t.Errorf("%s, %d: Retry-After %q", client, i, wait)
					}
					if json := strings.Contains(got.body, `"status":429`); json != (want == 429) {
						t.Errorf("%s, %d: %s", client, i, got.body)
					}
				}
			}
			if got := sendFrom(t, "127.0.0.4", addr, "GET", "/own", ""); got.StatusCode != 403 || got.body != "the application's own\n" {
				t.Errorf("refused by the application: %s %s", got.Status, got.body)
			}
			if got := sendFrom(t, "127.0.0.4", addr, "GET", "/", "", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"); got.StatusCode != 200 {
				t.Errorf("an upgrade: %s %s", got.Status, got.body)
			}
			app.take()
			if err := stint.stop(); err != nil {
				t.Fatal(err)
			}
			if got := sendFrom(t, "127.0.0.4", addr, "GET", "/", ""); got.StatusCode != 500 || len(app.take()) != 0 {
				t.Errorf("without Stint: %s %s", got.Status, got.body)
			}
		})
	}
}
