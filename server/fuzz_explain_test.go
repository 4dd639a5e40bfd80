package server_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stintdev/stint/rules"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

const questioned = `
tiers: {gold: attrs.plan == "gold", odd: int(attrs.size) % 2 == 1}
safelist: ['attrs.vip == true']
blocklist: ['operation == "bad"']
rules:
  - {name: user, key: attrs.user, cost: int(attrs.size), limits: [20 per 24h fixed_window], tiers: {gold: {times: 3}, odd: {limits: [9 per 24h sliding_log]}}, penalty: {ban_after: 3, ban_for: 24h}}
  - {name: client, key: client.ip, limits: [7 per 24h sliding_log, 9 per 24h], penalty: {warn_after: 1, ban_after: 4, ban_for: 48h}}
  - {name: tried, key: client.ip, limits: [1 per 24h], mode: shadow, penalty: {ban_after: 2, ban_for: 1h}}
  - {name: watched, key: operation, penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}
  - {name: list, match: 'request.path.startsWith("/v1/")', key: '[request.method, attrs.user]', limits: [4 per 24h fixed_window]}
`

// Whatever is asked, Explain says what Decide then decides, takes nothing, and says
// the same the next time.
func FuzzExplain(f *testing.F) {
	for _, body := range []string{
		`{}`, `{"client":"192.0.2.1"}`, `{"client":"192.0.2.1","cost":0}`, `{"client":"192.0.2.1","cost":8}`, `{"client":"198.51.100.1"}`, `{"operation":"bad"}`,
		`{"attrs":{"user":"u","size":5,"plan":"gold"},"client":"192.0.2.1"}`, `{"attrs":{"user":"u","size":"x"}}`, `{"attrs":{"user":"u","size":-1}}`, `{"attrs":{"user":"u","size":11}}`,
		`{"attrs":{"user":"banned","size":1}}`, `{"attrs":{"user":"u","vip":true}}`, `{"operation":"op","attrs":{"user":"u"},"request":{"method":"GET","path":"/v1/x"},"cost":3}`,
	} {
		for _, before := range []uint8{0, 4, 9, 16} {
			f.Add([]byte(body), before)
		}
	}
	set, err := rules.Parse("rules.yaml", []byte(questioned))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, before uint8) {
		s := server.New(server.Config{Settings: config.Default(), Rules: set, Log: slog.New(slog.DiscardHandler)})
		h := s.Admin()
		post := func(path, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("POST", "http://127.0.0.1:8090"+path, bytes.NewReader([]byte(body)))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		post("/v1/bans", `{"rule":"user","key":"banned"}`)
		post("/v1/bans", `{"network":"198.51.100.0/24"}`)
		post("/v1/overrides", `{"rule":"user","key":"u","times":2}`)
		for range before % 20 {
			check(s, string(body))
		}
		type told struct{ Outcome, Rule string }
		var said, again, decided told
		first, second := post("/v1/explain", string(body)), post("/v1/explain", string(body))
		w := check(s, string(body))
		if first.Code >= 500 || second.Code != first.Code || (first.Code == http.StatusOK) != (w.Code < 400 || w.Code == 403 || w.Code == 429) {
			t.Fatalf("explain: %d and %d, decide: %d %s", first.Code, second.Code, w.Code, w.Body)
		}
		if first.Code != http.StatusOK {
			return
		}
		for _, a := range []struct {
			to   *told
			from *httptest.ResponseRecorder
		}{{&said, first}, {&again, second}, {&decided, w}} {
			if err := json.Unmarshal(a.from.Body.Bytes(), a.to); err != nil {
				t.Fatal(err)
			}
		}
		if decided.Outcome == "allowed" {
			decided.Rule = "" // the tightest, to be shown; it refused nothing
		}
		if said != decided || again != said {
			t.Errorf("explain: %+v, then %+v; decide: %+v\n%s", said, again, decided, first.Body)
		}
	})
}
