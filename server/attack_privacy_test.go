package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// With privacy: hash, neither the address of a client nor its key is in a line of the log, an
// answer of the admin API, an event, a message to a webhook, a span or a metric, beside those that
// docs/logs.md names.
func TestAttackPrivacy(t *testing.T) {
	t.Parallel()
	const addr, user = "198.51.100.77", "customer-77"
	var log logged
	told := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		told <- fmt.Sprint(r.Header, string(body))
	}))
	defer receiver.Close()
	collector := newCollector(t)
	answers := make(chan bool, 2)
	s := newServer(t, `
rules:
  - {name: model, match: 'request.path == "/model"', key: 'request.headers["x-user"]', cost: "5", limits: [1 in_flight, 100 per 1h fixed_window hold]}
  - {name: login, match: 'request.path == "/login"', key: client.ip, limits: [2 per 1h fixed_window], penalty: {warn_after: 1, ban_after: 3, ban_for: 1h}}
  - {name: user, match: 'request.path != "/model"', key: 'request.headers["x-user"]', limits: [3 per 1h], penalty: {on_status: [401], ban_after: 30, ban_for: 1h}}
  - {name: pair, key: '[client.ip, request.headers["x-user"]]', limits: [4 per 1h], mode: shadow}
alerts:
  - {name: near, when: usage >= 50% of login}
  - {name: many, when: 'rate("user", "limited") > 0'}
`, logJSON(&log), collector.sends(), everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/model" {
			<-answers
		}
		w.WriteHeader(401)
	})),
		func(c *server.Config) {
			c.Settings.HashKeys, c.Settings.Log.Access = true, true
			c.Settings.Webhooks = []config.Webhook{{Name: "ops", Kind: config.JSON, URL: receiver.URL, Timeout: 10 * time.Second}}
		})
	o := operator{t, s.Admin()}
	ctx, stop := context.WithCancel(t.Context())
	s.Follow(ctx)
	gateway := s.Gateway()
	ask := func(path string) int {
		r := httptest.NewRequest("GET", path, nil)
		r.RemoteAddr = addr + ":4711"
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		gateway.ServeHTTP(w, r)
		return w.Code
	}
	for i := range 8 {
		ask([]string{"/login", "/other"}[i%2])
	}
	// What one request holds makes another wait, and is released before its end.
	first := make(chan int)
	go func() { first <- ask("/model") }()
	if !await.So(func() bool {
		return strings.Contains(o.want(200, "POST", "/v1/keys/show", `{"rule":"model","key":"`+user+`"}`), `"holds"`)
	}) {
		t.Fatal("nothing is held")
	}
	if code := ask("/model"); code != 429 {
		t.Fatalf("a second request at once: %d", code)
	}
	o.want(200, "POST", "/v1/keys/release", `{"rule":"model","key":"`+user+`","all":true}`)
	answers <- true
	<-first
	both := fmt.Sprintf(`["%s","%s"]`, addr, user)
	for _, c := range [][3]string{
		{"POST", "/v1/bans", `{"rule":"user","key":"` + user + `","for":"1h"}`},
		{"POST", "/v1/bans", `{"rule":"pair","key":` + both + `,"for":"1h"}`},
		{"POST", "/v1/bans/lift", `{"rule":"login","key":"` + addr + `"}`},
		{"POST", "/v1/bans/lift", `{"rule":"pair","key":` + both + `}`},
		{"POST", "/v1/overrides", `{"rule":"user","key":"` + user + `","times":2,"for":"1h"}`},
		{"POST", "/v1/overrides", `{"rule":"user","key":"` + user + `","times":3,"for":"1h"}`}, // replaces it
		{"POST", "/v1/keys/reset", `{"rule":"user","key":"` + user + `"}`},
		{"POST", "/v1/keys/reset", `{"rule":"pair","key":` + both + `}`},
		{"POST", "/v1/keys/refund", `{"rule":"login","key":"` + addr + `","cost":1}`},
	} {
		if code, body := o.call(c[0], c[1], c[2]); code/100 != 2 {
			t.Fatalf("%s %s: %d %s", c[1], c[2], code, body)
		}
	}
	message := <-told
	time.Sleep(20 * time.Millisecond)
	shown := map[string]string{}
	for _, path := range []string{
		"/v1/status", "/v1/rules", "/v1/audit?limit=1000", "/v1/switches", "/v1/series", "/v1/series?rule=login", "/v1/instances", "/v1/alerts", "/v1/silences", "/v1/session",
		"/v1/offenders?of=keys", "/v1/offenders?of=keys&by=use", "/v1/offenders?of=keys&by=violations", "/v1/offenders?of=keys&rule=pair", "/v1/offenders?of=clients", "/v1/offenders?of=clients&by=violations",
		"/v1/offenders?of=rules", "/v1/offenders?of=paths", "/v1/offenders/history?of=clients&name=" + addr, "/v1/offenders/history?of=keys&rule=login&key=" + addr,
	} {
		shown["GET "+path] = o.want(200, "GET", path, "")
	}
	shown["a preview"] = o.want(200, "POST", "/v1/rules/preview", checkText(`rules: [{name: none, key: client.ip, limits: [1 per 1h]}]`))
	live := httptest.NewServer(s.Admin())
	from := openStream(t, live.URL+"/v1/live?rule=login")
	event, err := from.ReadString('}')
	if err != nil {
		t.Error(err)
	}
	shown["an event"] = event
	from.close()
	probes := httptest.NewRecorder()
	s.Probes().ServeHTTP(probes, httptest.NewRequest("GET", "/metrics", nil))
	shown["the metrics"] = probes.Body.String()
	stop()
	s.Close()
	live.Close()
	shown["the log"] = log.taken()
	shown["the webhook"] = message
	var spans strings.Builder
	for _, span := range collector.got() {
		spans.WriteString(span.String())
	}
	shown["spans"] = spans.String()
	for what, text := range shown {
		for _, raw := range []string{addr, user, "198.51.100", "::ffff:c633"} {
			if i := strings.Index(text, raw); i >= 0 {
				t.Errorf("%s shows %s: …%s…", what, raw, text[max(0, i-200):min(len(text), i+100)])
			}
		}
	}
	for _, line := range []string{`"busy":true`, `"held":1`, `"msg":"what a request did cost could not be charged"`, `"action":"release"`} {
		if !strings.Contains(shown["the log"], line) {
			t.Errorf("no line has %s:\n%s", line, shown["the log"])
		}
	}
	for _, what := range []string{"the log", "the webhook", "spans", "a preview", "GET /v1/audit?limit=1000", "GET /v1/alerts", "GET /v1/offenders?of=keys", "GET /v1/offenders?of=clients"} {
		if !regexp.MustCompile(`h:[0-9a-f]{16}`).MatchString(shown[what]) {
			t.Errorf("%s has no hash: %s", what, shown[what])
		}
	}
}
