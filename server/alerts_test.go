package server_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
)

// hooked is a webhook over TLS, which runs outside of a test's bubble.
type hooked struct {
	config.Webhook
	mu  sync.Mutex
	got []string
}

func hook(t *testing.T) *hooked {
	h := &hooked{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			Alerts []struct {
				Name, State string
				Keys        []struct{ Key string }
			}
		}
		_ = json.Unmarshal(body, &m)
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, a := range m.Alerts {
			text := a.State + " " + a.Name
			for _, k := range a.Keys {
				text += " " + k.Key
			}
			h.got = append(h.got, text)
		}
	}))
	t.Cleanup(s.Close)
	s.Config.SetKeepAlivesEnabled(false) // an open connection would stop the bubble's clock
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Webhook = config.Webhook{Name: "ops", Kind: config.JSON, URL: s.URL, TLS: &config.UpstreamTLS{CA: ca}, Timeout: 10 * time.Second}
	return h
}

func (h *hooked) told() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.Join(h.got, "; ")
	h.got = nil
	return text
}

func checkOne(t *testing.T, s *server.Server, client string) {
	t.Helper()
	r := httptest.NewRequest("POST", "http://localhost/v1/check", strings.NewReader(fmt.Sprintf(`{"client":%q}`, client)))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	if checkAPI(s).ServeHTTP(w, r); w.Code != 200 && w.Code != 429 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
}

// Alerts of a file, as a user has them: requests decide, the webhook is told, and the admin API
// shows and silences them.
func TestAlerts(t *testing.T) {
	h := hook(t)
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
rules:
  - {name: login, key: client.ip, limits: [10 per 1h fixed_window]}
alerts:
  - {name: blocked, when: block_rate("login") > 0.5, severity: critical}
  - {name: near, when: usage > 80% of login}
`, func(c *server.Config) { c.Settings.Webhooks = []config.Webhook{h.Webhook} })
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		s.Follow(t.Context())
		check := func(client string, n int) {
			for range n {
				checkOne(t, s, client)
			}
		}
		admin := func(method, path, body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
			r.RemoteAddr = "127.0.0.1:1"
			if body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			s.Admin().ServeHTTP(w, r)
			return w
		}
		state := func(name string) (a adminapi.Alert) {
			var all adminapi.Alerts
			if err := json.Unmarshal(admin("GET", "/v1/alerts", "").Body.Bytes(), &all); err != nil {
				t.Fatal(err)
			}
			for _, a = range all.Alerts {
				if a.Name == name {
					break
				}
			}
			return a
		}
		expect := func(what, want string) {
			t.Helper()
			if got := h.told(); got != want {
				t.Fatalf("%s: told %q, want %q", what, got, want)
			}
		}
		if a := state("blocked"); a.State != "unknown" {
			t.Fatalf("at the start: %+v", a)
		}
		time.Sleep(time.Minute)
		if a := state("blocked"); a.State != "ok" {
			t.Fatalf("without requests: %+v", a)
		}
		check("192.0.2.1", 8)
		time.Sleep(10 * time.Second)
		expect("at 80 %", "")
		check("192.0.2.1", 1)
		time.Sleep(10 * time.Second)
		expect("at 90 %", "firing near 192.0.2.1")
		if a := state("near"); a.State != "ok" || len(a.Keys) != 1 || a.Keys[0].Key != "192.0.2.1" || a.Keys[0].Usage != 0.9 {
			t.Errorf("%+v", a)
		}
		check("192.0.2.1", 41)
		time.Sleep(10 * time.Second)
		expect("40 of 50 refused", "firing blocked")
		if a := state("blocked"); a.State != "firing" || a.Value == nil || *a.Value != 0.8 || a.Since == nil {
			t.Errorf("%+v", a)
		}
		w := admin("POST", "/v1/silences", `{"alert":"blocked","for":"10m","reason":"known"}`)
		var silence adminapi.Silence
		if err := json.Unmarshal(w.Body.Bytes(), &silence); err != nil || w.Code != 201 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		time.Sleep(3 * time.Minute)
		expect("while it is silenced", "")
		if a := state("blocked"); a.State != "ok" || a.Silence != silence.ID {
			t.Errorf("%+v", a)
		}
		if w := admin("DELETE", "/v1/silences/"+silence.ID+"?reason=fixed", ""); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		time.Sleep(10 * time.Second)
		expect("after the silence", "resolved blocked")
		if w := admin("POST", "/v1/alerts/test", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `{"webhooks":[{"name":"ops"}]}`) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		expect("a test", "resolved stint-test")
		if w := admin("POST", "/v1/silences", `{"alert":"blocked"}`); w.Code != 422 {
			t.Errorf("a silence without an end: %d %s", w.Code, w.Body)
		}
	})
}

// Under privacy: hash, no key leaves in a message or an answer.
func TestAlertsHashKeys(t *testing.T) {
	h := hook(t)
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, "rules: [{name: login, key: client.ip, limits: [2 per 1h]}]\nalerts: [{name: near, when: usage >= 50% of login}]",
			func(c *server.Config) { c.Settings.Webhooks, c.Settings.HashKeys = []config.Webhook{h.Webhook}, true })
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		s.Follow(t.Context())
		checkOne(t, s, "192.0.2.1")
		time.Sleep(20 * time.Second)
		if got := h.told(); !strings.HasPrefix(got, "firing near h:") || strings.Contains(got, "192.0.2.1") {
			t.Errorf("told %q", got)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "http://localhost/v1/alerts", nil)
		r.RemoteAddr = "127.0.0.1:1"
		s.Admin().ServeHTTP(w, r)
		if body := w.Body.String(); !strings.Contains(body, `"key":"h:`) || strings.Contains(body, "192.0.2.1") {
			t.Error(body)
		}
	})
}

// A file of a webhook that is wrong is an error of the start, and alerts without webhooks are a
// finding.
func TestAlertSettings(t *testing.T) {
	const alert = "rules: [{name: login, limits: [10 per 1h]}]\nalerts: [{name: near, when: usage > 80% of login}]"
	s := newServer(t, alert, func(c *server.Config) {
		c.Settings.Webhooks = []config.Webhook{{Name: "ops", Kind: config.JSON, URLFile: "/does/not/exist", Timeout: time.Second}}
	})
	if err := s.Open(); err == nil || !strings.Contains(err.Error(), `webhook "ops": url_file: `) {
		t.Errorf("%v", err)
	}
	if found := newServer(t, alert).Findings(); len(found) != 1 || found[0].Code != "ST017" {
		t.Errorf("%v", found)
	}
	if found := s.Findings(); len(found) != 0 {
		t.Errorf("%v", found)
	}
}

// The upstream_timeout is for upstreams, and a webhook has a timeout of its own.
func TestWebhookWithoutUpstreamTimeout(t *testing.T) {
	h := hook(t)
	s := newServer(t, "rules: []", func(c *server.Config) {
		c.Settings.Webhooks, c.Settings.UpstreamTimeout = []config.Webhook{h.Webhook}, 1
	})
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "http://localhost/v1/alerts/test", nil)
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	s.Admin().ServeHTTP(w, r)
	if got := w.Body.String(); w.Code != 200 || got != `{"webhooks":[{"name":"ops"}]}`+"\n" {
		t.Errorf("%d %s", w.Code, got)
	}
}
