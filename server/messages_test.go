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
)

// refusalBody is the body of a refusal, of any API.
type refusalBody struct {
	Outcome    string
	Rule       string
	Message    string // of /v1/check
	Detail     string // of the others
	Used       int64
	Violations int64
	WarnAfter  int64 `json:"warn_after"`
	BanAfter   int64 `json:"ban_after"`
	List       string
	Entry      string
}

// apis returns functions that send a request to each API. languages is the Accept-Language.
func apis(t *testing.T, s *server.Server) map[string]func(path, client, languages string) (int, http.Header, refusalBody) {
	ask := func(h http.Handler, r *http.Request) (int, http.Header, refusalBody) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var body refusalBody
		if w.Body.Len() > 0 && strings.Contains(w.Header().Get("Content-Type"), "json") {
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatalf("%s: %v", w.Body, err)
			}
		}
		return w.Code, w.Header(), body
	}
	gateway, checks := s.Gateway(), checkAPI(s)
	return map[string]func(path, client, languages string) (int, http.Header, refusalBody){
		"gateway": func(path, client, languages string) (int, http.Header, refusalBody) {
			r := httptest.NewRequest("GET", path, nil)
			r.RemoteAddr = client + ":1234"
			r.Header.Set("Accept-Language", languages)
			return ask(gateway, r)
		},
		"check": func(path, client, languages string) (int, http.Header, refusalBody) {
			body := fmt.Sprintf(`{"client":%q,"request":{"method":"GET","path":%q,"headers":{"accept-language":%q}}}`, client, path, languages)
			code, h, what := ask(checks, checkRequest(body))
			what.Detail = what.Message
			return code, h, what
		},
		"authorize": func(path, client, languages string) (int, http.Header, refusalBody) {
			r := httptest.NewRequest("GET", "/v1/authorize", nil)
			r.RemoteAddr = "192.0.2.99:1"
			r.Header.Set("X-Original-Method", "GET")
			r.Header.Set("X-Original-Uri", path)
			r.Header.Set("X-Forwarded-For", client)
			r.Header.Set("Accept-Language", languages)
			return ask(checks, r)
		},
	}
}

const speaking = `
trusted_proxies: [192.0.2.99]
safelist: ['request.path == "/safe"']
blocklist: ['request.path == "/blocked"']
rules:
  - name: login
    match: request.path == "/login"
    key: client.ip
    limits: [1 per 1h fixed_window]
    penalty: {warn_after: 2, ban_after: 4, ban_for: 30m}
    messages:
      limited: {en: 'Try again in {retry_after}, the limit is {limit}.', de: 'Wieder in {retry_after}.'}
      warned: {en: '{violations} of {ban_after}.', zh: '第 {violations} 次，共 {ban_after} 次。'}
      banned: 'Banned for {ban_left}.'
      still_banned: {en: 'Still banned for {ban_left}.', zh: '仍在封禁，还有 {ban_left}。'}
`

// Every API refuses in the language of the client, with the number of violations.
func TestMessages(t *testing.T) {
	const next = "192.0.2.%d"
	for name := range apis(t, newServer(t, speaking)) {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, speaking, func(c *server.Config) { c.Settings.ViolationsHeader = true })
			ask := apis(t, s)[name]
			for i, c := range []struct {
				languages, outcome, text string
				violations               int64
				header                   string
			}{
				{"en", "", "", 0, ""},
				{"de-AT,de;q=0.9,en;q=0.8", "limited", "Wieder in 1h.", 1, "1;warn-after=2;ban-after=4"},
				{"zh-CN", "warned", "第 2 次，共 4 次。", 2, "2;warn-after=2;ban-after=4"},
				{"fr", "warned", "3 of 4.", 3, "3;warn-after=2;ban-after=4"},
				{"fr", "banned", "Banned for 30m.", 4, "4;warn-after=2;ban-after=4"},
				{"fr", "banned", "Still banned for 30m.", 0, ""},
				{"zh-CN", "banned", "仍在封禁，还有 30 分钟。", 0, ""},
			} {
				_, h, got := ask("/login", fmt.Sprintf(next, 1), c.languages)
				if i == 0 {
					if h.Get("Stint-Violations") != "" || h.Get("X-RateLimit-Remaining") != "0" {
						t.Errorf("%s: allowed: %v", name, h)
					}
					continue
				}
				if got.Outcome != c.outcome || got.Detail != c.text || got.Violations != c.violations || h.Get("Stint-Violations") != c.header {
					t.Errorf("%s, step %d: %+v and %q", name, i, got, h.Get("Stint-Violations"))
				}
				if of := got.BanAfter*10 + got.WarnAfter; c.violations > 0 && of != 42 || c.violations == 0 && of != 0 {
					t.Errorf("%s, step %d: of %+v", name, i, got)
				}
			}
		})
	}
}

// The header is there only where it is asked for.
func TestViolationsHeaderIsOff(t *testing.T) {
	for name, ask := range apis(t, newServer(t, speaking)) {
		client := "198.51.100.1"
		for range 3 {
			if _, h, _ := ask("/login", client, ""); h["Stint-Violations"] != nil {
				t.Errorf("%s: %v", name, h)
			}
		}
	}
}

// What the server says by itself fits why it refuses.
func TestCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const file = `
blocklist: ['request.path == "/blocked"']
rules:
  - {name: watch, match: request.path == "/watch", key: client.ip, penalty: {on_status: [401], ban_after: 1, ban_for: 1m}}
  - {name: both, match: request.path == "/both", key: client.ip, limits: [1 per 1h], penalty: {on_status: [401], ban_after: 1, ban_for: 1m}}
  - {name: limit, match: request.path == "/limit", key: client.ip, limits: [1 per 1h], penalty: {warn_after: 2, ban_after: 3, ban_for: 1m}}
  - {name: warns, match: request.path == "/warns", key: client.ip, limits: [1 per 1h], penalty: {warn_after: 1}}
  - {name: spoken, match: request.path == "/spoken", key: client.ip, limits: [1 per 1h], messages: {banned_by_hand: 'By hand, for {ban_left}.'}}
`
		store := new(stint.Memory)
		s := newServer(t, file, over(store))
		o := operator{t, s.Admin()}
		for _, rule := range []string{"limit", "spoken"} {
			o.want(201, "POST", "/v1/bans", `{"rule":"`+rule+`","key":"192.0.2.2","for":"1m","reason":"they know why"}`)
		}
		o.want(201, "POST", "/v1/bans", `{"rule":"limit","key":"192.0.2.4"}`)
		o.want(201, "POST", "/v1/bans", `{"network":"192.0.2.3","for":"1m","reason":"they know why"}`)
		for _, rule := range s.Rules().Rules[:2] {
			if _, err := stint.NewLimiter(store).Violate(t.Context(), "192.0.2.1", rule.Penalty); err != nil {
				t.Fatal(err)
			}
		}
		ask := apis(t, s)["gateway"]
		for _, c := range []struct{ path, client, want string }{
			{"/watch", "192.0.2.1", "Banned because of the responses to earlier requests. Retry after 60 seconds."},
			{"/both", "192.0.2.1", "Banned because of earlier requests. Retry after 60 seconds."},
			{"/limit", "192.0.2.1", ""},
			{"/limit", "192.0.2.1", "Too many requests. The limit is 1 per 1h. Retry after 3600 seconds."},
			{"/limit", "192.0.2.1", "Too many requests. If this continues, you will be banned. The limit is 1 per 1h. Retry after 3600 seconds."},
			{"/limit", "192.0.2.1", "Banned because of too many requests. The limit is 1 per 1h. Retry after 3600 seconds."},
			{"/limit", "192.0.2.1", "Banned because of too many requests. Retry after 3600 seconds."},
			{"/warns", "192.0.2.1", ""},
			{"/warns", "192.0.2.1", "Too many requests. This is a warning. The limit is 1 per 1h. Retry after 3600 seconds."},
			{"/limit", "192.0.2.2", "Banned by the operator of this service. Retry after 60 seconds."},
			{"/limit", "192.0.2.4", "Banned by the operator of this service."},
			{"/spoken", "192.0.2.2", "By hand, for 1m."},
			{"/watch", "192.0.2.3", "This network is banned by the operator of this service. Retry after 60 seconds."},
			{"/blocked", "192.0.2.1", "This request is not accepted."},
		} {
			_, _, got := ask(c.path, c.client, "")
			if c.want == "" && got.Outcome == "" {
				continue
			}
			if got.Detail != c.want {
				t.Errorf("%s from %s: %q, want %q", c.path, c.client, got.Detail, c.want)
			}
		}
	})
}

// If two rules refuse, and both count violations, the text is that of the rule whose numbers it shows.
func TestMessageOfTwoPenalties(t *testing.T) {
	s := newServer(t, `
rules:
  - {name: short, match: operation != "long", key: client.ip, limits: [1 per 1m fixed_window], penalty: {warn_after: 7, ban_after: 8, ban_for: 1m}, message: 'short, {violations}'}
  - {name: none, match: operation != "long", key: client.ip, limits: [9 per 1h fixed_window], message: none}
  - {name: long, match: operation != "short", key: client.ip, limits: [1 per 1h fixed_window], penalty: {warn_after: 5, ban_after: 9, ban_for: 1m}, message: 'long, {violations}'}
`)
	for i, c := range []struct{ operation, want, text string }{
		{"both", "allowed by short, 0 left", ""},
		{"short", "limited by short, 0 left, retry 1m0s", "short, 1"},
		{"both", "limited by short, 0 left, retry 1h0m0s", "short, 2"},
		{"long", "limited by long, 0 left, retry 1h0m0s", "long, 2"},
		{"both", "limited by short, 0 left, retry 1h0m0s", "short, 3"},
		{"long", "limited by long, 0 left, retry 1h0m0s", "long, 4"},
		{"both", "warned by long, 0 left, retry 1h0m0s", "long, 5"}, // the graver of the two
	} {
		in := from("192.0.2.1")
		in.Operation = c.operation
		v, err := s.Decide(t.Context(), in, noon)
		if got := say(&v, err); got != c.want || v.Message != c.text {
			t.Errorf("request %d: %s, %q, want %s, %q", i, got, v.Message, c.want, c.text)
		}
	}
}

// A request that cannot be held is told so in the words of its rule, too.
func TestMessageOfHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServer(t, `
rules:
  - name: shaped
    key: '"all"'
    limits: [1 per 1s leaky_bucket burst 5]
    shape: true
    messages: {limited: {en: 'Again in {retry_after}.', de: 'Wieder in {retry_after}.'}}
`, func(c *server.Config) { c.Settings.MaxDelay = time.Second })
		ask := apis(t, g)["gateway"]
		for range 2 {
			go ask("/", "192.0.2.1", "")
		}
		synctest.Wait()
		if _, _, got := ask("/", "192.0.2.1", "de"); got.Detail != "Wieder in 1s." || got.Outcome != "limited" {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Minute)
	})
}

// A check answer, and an explanation, name the list that decided, and the entry.
func TestListsAreNamed(t *testing.T) {
	s := newServer(t, speaking)
	o := operator{t, s.Admin()}
	ask := apis(t, s)["check"]
	added := o.want(201, "POST", "/v1/lists/blocklist", `{"network":"203.0.113.0/24"}`)
	for _, c := range []struct{ path, client, outcome, list, entry string }{
		{"/safe", "192.0.2.1", "allowed", "safelist", `safelist entry 1: request.path == "/safe"`},
		{"/blocked", "192.0.2.1", "blocked", "blocklist", `blocklist entry 1: request.path == "/blocked"`},
		{"/x", "203.0.113.9", "blocked", "blocklist", `blocklist entry "` + o.id(added) + `", added at run time: 203.0.113.0/24`},
		{"/x", "192.0.2.1", "allowed", "", ""},
	} {
		_, _, got := ask(c.path, c.client, "")
		if got.Outcome != c.outcome || got.List != c.list || got.Entry != c.entry {
			t.Errorf("%s from %s: %+v", c.path, c.client, got)
		}
		var x refusalBody
		body := fmt.Sprintf(`{"client":%q,"request":{"method":"GET","path":%q}}`, c.client, c.path)
		if err := json.Unmarshal([]byte(o.want(200, "POST", "/v1/explain", body)), &x); err != nil {
			t.Fatal(err)
		}
		if x.Outcome != c.outcome || x.List != c.list || x.Entry != c.entry {
			t.Errorf("explained, %s from %s: %+v", c.path, c.client, x)
		}
	}
}
