package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/adminapi"
	"github.com/stintdev/stint/server/config"
)

// Alerts know what requests hold, what was lost of it and what could not be read; an alert about
// usage counts what is used, and not what is held.
func TestAlertsAboutHolds(t *testing.T) {
	h := hook(t)
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
rules:
  - {name: chat, key: '"all"', cost: "90", cost_after: response.json.total, limits: [1000 per 1d fixed_window hold, 3 in_flight]}
alerts:
  - {name: many, when: holds("chat") >= 2}
  - {name: lost, when: hold_lost_rate() > 0.2}
  - {name: unknown, when: cost_unknown_rate("chat") > 0.2}
  - {name: near, when: usage > 80% of chat}
`, over(new(stint.Memory)), func(c *server.Config) { c.Settings.Webhooks = []config.Webhook{h.Webhook} })
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		s.Follow(t.Context())
		next := make(chan string)
		program := s.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			body := <-next
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
		}))
		codes := make(chan int, 10)
		ask := func() {
			go func() {
				w := httptest.NewRecorder()
				program.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/", nil))
				codes <- w.Code
			}()
			synctest.Wait()
		}
		answer := func(body string) {
			t.Helper()
			next <- body
			if code := <-codes; code != 200 {
				t.Fatalf("%d", code)
			}
		}
		expect := func(what, want string) {
			t.Helper()
			time.Sleep(15 * time.Second)
			if got := h.told(); got != want {
				t.Fatalf("%s: told %q, want %q", what, got, want)
			}
		}
		time.Sleep(time.Minute)
		ask()
		expect("one", "")
		ask()
		expect("two", "firing many")
		answer(`{"total": 700}`)
		answer(`{"total": 50}`)
		expect("both have ended", "resolved many")
		ask() // 750 are used, and 90 held
		expect("840 used or held, of 1000", "")
		answer(`{"total": 80}`)
		expect("830 used, but nobody has asked", "")
		ask()
		expect("830 used", "firing near all")
		answer(`{}`)
		expect("one of four that ended did not say what it cost", "firing unknown")

		time.Sleep(5 * time.Minute)
		h.told() // the alerts above are over
		if c := adminDo(s, "POST", "/v1/keys/reset", `{"rule":"chat","key":"all"}`); c.Code != 200 {
			t.Fatalf("%d %s", c.Code, c.Body)
		}
		ask()
		if c := adminDo(s, "POST", "/v1/keys/release", `{"rule":"chat","key":"all","all":true,"reason":"stuck"}`); c.Code != 200 {
			t.Fatalf("%d %s", c.Code, c.Body)
		}
		answer(`{"total": 9}`)
		expect("what one request held was released", "firing lost")
		var all adminapi.Alerts
		if err := json.Unmarshal(adminDo(s, "GET", "/v1/alerts", "").Body.Bytes(), &all); err != nil || len(all.Alerts) != 4 {
			t.Errorf("%v %+v", err, all)
		}
	})
}

func adminDo(s *server.Server, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	s.Admin().ServeHTTP(w, r)
	return w
}
