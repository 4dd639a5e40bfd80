package alerts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/internal/live"
)

// requirePrometheus is the environment variable that turns the want of Prometheus' programs
// from a skipped test into a failed one.
const requirePrometheus = "STINT_REQUIRE_MONITORING"

// alertmanager starts a real Alertmanager, which notifies a webhook, and returns its URL.
func alertmanager(t *testing.T, notify string) string {
	t.Helper()
	for _, program := range []string{"prometheus-alertmanager", "amtool"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv(requirePrometheus) != "" {
				t.Fatalf("no %s, and %s is set", program, requirePrometheus)
			}
			t.Skipf("no %s: install the package prometheus-alertmanager", program)
		}
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "alertmanager.yml")
	text := fmt.Sprintf("route: {receiver: test, group_wait: 100ms, group_interval: 200ms, group_by: ['...']}\nreceivers: [{name: test, webhook_configs: [{url: %q, send_resolved: true}]}]\n", notify)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprint("127.0.0.1:", redistest.FreePort(t))
	var out bytes.Buffer
	c := exec.Command("prometheus-alertmanager", "--config.file="+conf, "--storage.path="+dir, "--cluster.listen-address=", "--web.listen-address="+address)
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("alertmanager:\n%s", out.String())
		}
	})
	await.Until(t, "it is ready", func() bool {
		resp, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return "http://" + address
}

type queried struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

// query asks amtool which alerts fire.
func query(t *testing.T, at string) []queried {
	t.Helper()
	out, err := exec.Command("amtool", "--alertmanager.url="+at, "alert", "query", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []queried
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return all
}

// A real Alertmanager takes what is sent: an alert that fires, again and again, keys, and the
// end; and it notifies others of them.
func TestAlertmanager(t *testing.T) {
	notified := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m struct {
			Alerts []struct {
				Status string
				Labels map[string]string
			}
		}
		if json.Unmarshal(body, &m) == nil {
			for _, a := range m.Alerts {
				notified <- a.Status + " " + a.Labels["alertname"] + " " + a.Labels["key"]
			}
		}
	}))
	defer receiver.Close()
	at := alertmanager(t, receiver.URL)
	f := newFleet(t, `
rules: [{name: login, limits: [10 per 1h]}]
alerts:
  - {name: blocked, when: block_rate("login") > 0.1, severity: critical, message: 'Too "many"', labels: {team: web}}
  - {name: near, when: usage > 80% of login}
`)
	a := f.instance(t, "a")
	w := NewWebhook(config.Webhook{Name: "am", Kind: config.Alertmanager, URL: at + "/", Timeout: 10 * time.Second}, nil, "shop")
	a.webhooks = []*delivery{{to: w}}
	measured := time.Now()
	a.o.Totals = func() live.Totals { f.totals.At = measured; return f.totals }
	round := func(allowed, refused int64) {
		measured = measured.Add(30 * time.Second)
		r := f.totals.Rules["login"]
		r[live.Allowed] += allowed
		r[live.Limited] += refused
		f.totals.Rules["login"] = r
		a.Round(t.Context())
		a.sending.Wait()
		if why := a.webhooks[0].failing(); why != "" {
			t.Fatal(why)
		}
	}
	await := func(want string) {
		t.Helper()
		select {
		case got := <-notified:
			if got != want {
				t.Fatalf("notified %q, want %q", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("not notified: %s", want)
		}
	}
	round(100, 0)
	round(50, 50)
	await("firing blocked ")
	all := query(t, at)
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	got := all[0]
	for name, want := range map[string]string{"alertname": "blocked", "severity": "critical", "team": "web", "service": "shop"} {
		if got.Labels[name] != want {
			t.Errorf("label %s: %q", name, got.Labels[name])
		}
	}
	if got.Annotations["summary"] != `Too "many"` || !strings.Contains(got.Annotations["description"], "block_rate") || got.Annotations["value"] != "0.5" {
		t.Errorf("annotations %q", got.Annotations)
	}
	if left := time.Until(got.EndsAt); left < alertmanagerEnds-time.Minute || left > alertmanagerEnds {
		t.Errorf("it ends in %s", left)
	}
	later := time.Now().Add(2 * alertmanagerAgain)
	a.o.Now = func() time.Time { return later }
	round(50, 50) // it is sent again, for a later end
	if again := query(t, at); len(again) != 1 || !again[0].StartsAt.Equal(got.StartsAt) || !again[0].EndsAt.After(got.EndsAt) {
		t.Errorf("sent again: %+v, was %+v", again, got)
	}
	a.o.Now = time.Now
	a.Decided(&f.set.Alerts[1], decision(t, f, "ann\x00<b>\x00", 0))
	round(50, 50)
	await("firing near ann, <b>")
	if out, err := exec.Command("amtool", "--alertmanager.url="+at, "alert", "query", "alertname=near", "rule=login", "-o", "json").Output(); err != nil || !strings.Contains(string(out), "10 per 1h") {
		t.Errorf("%s, %v", out, err)
	}
	for range 3 {
		round(1000, 0)
	}
	await("resolved blocked ")
	if all := query(t, at); len(all) != 1 || all[0].Labels["alertname"] != "near" {
		t.Errorf("after the end: %+v", all)
	}
}
