package server_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// What the tokens of FuzzAdmin may do. Neither may be told to anyone.
const (
	readToken  = "reads-0123456789abcdef"
	writeToken = "writes-0123456789abcdef"
)

// adminViews show all that can be changed by the admin API, but counts.
var adminViews = []string{"/v1/switches", "/v1/overrides", "/v1/lists/safelist", "/v1/lists/blocklist", "/v1/bans", "/v1/rules", "/v1/rules/versions"}

// Whatever is sent to the admin API, it is answered in JSON and as the contract
// says, never with a failure of ours; nothing is changed but where the answer says
// so, and then for those who may.
func FuzzAdmin(f *testing.F) {
	f.Setenv("STINT_FUZZ_READS", readToken)
	f.Setenv("STINT_FUZZ_WRITES", writeToken)
	for _, c := range [][3]string{
		{"GET", "/v1/status", ""}, {"HEAD", "/v1/bans?limit=1&rule=login", ""}, {"OPTIONS", "/v1/bans", ""}, {"POST", "//v1/bans", "{}"},
		{"DELETE", "/v1/bans/%2f..%2f", ""}, {"GET", "/v1/lists/safelist%2f", ""}, {"GET", "/v1/rules/versions/9223372036854775808", ""},
		{"PUT", "/v1/rules", `{"text":"rules: []","after":1,"note":"n"}`}, {"PUT", "/v1/rules", `{"text":"rules: []","after":9223372036854775807}`},
		{"POST", "/v1/rules/check", `{"text":"rules: [{name: x}]"}`}, {"POST", "/v1/rules/rollback", `{"to":1,"after":1}`},
		{"PATCH", "/v1/switches", `{"enabled":null,"rules":{"login":"off","api":null},"reason":"r"}`},
		{"POST", "/v1/overrides", `{"rule":"api","tier":"gold","times":1000000,"until":"9999-12-31T23:59:59-14:00"}`},
		{"POST", "/v1/overrides", `{"rule":"login","key":"192.0.2.1","limits":["1 per 1s sliding_log"],"for":"106751d"}`},
		{"POST", "/v1/lists/blocklist", `{"match":"operation == \"x\"","for":"1ns"}`}, {"POST", "/v1/lists/safelist", `{"network":"::ffff:0:0/90"}`},
		{"POST", "/v1/bans", `{"rule":"login","key":"192.0.2.1","for":"1h","reason":"a\u202eb"}`}, {"POST", "/v1/bans", `{"network":"fe80::1%eth0/64"}`},
		{"POST", "/v1/bans", `{"rule":"api","key":["a","x"]}`}, {"POST", "/v1/bans/lift", `{"rule":"login","key":"192.0.2.1"}`},
		{"POST", "/v1/keys/show", `{"rule":"api","key":["42","x"],"tier":"gold"}`}, {"POST", "/v1/keys/reset", `{"rule":"login","key":"\u0000"}`},
		{"POST", "/v1/keys/release", `{"rule":"login","key":"192.0.2.1","all":true}`}, {"POST", "/v1/keys/release", `{"rule":"login","key":"192.0.2.1","hold":"0123456789abcdef01234567"}`},
		{"POST", "/v1/keys/refund", `{"rule":"login","key":"192.0.2.1","cost":9223372036854775807}`},
		{"POST", "/v1/explain", `{"operation":"api","attrs":{"user":"42","plan":"gold"},"cost":-1}`}, {"POST", "/v1/explain", login},
	} {
		for _, as := range []string{"Bearer " + writeToken, "Bearer " + readToken, "bearer  x"} {
			f.Add(c[0], c[1], "application/json", as, []byte(c[2]))
		}
	}
	set, err := rules.Parse("rules.yaml", []byte(adminRules))
	if err != nil {
		f.Fatal(err)
	}
	before := ""
	f.Fuzz(func(t *testing.T, method, path, kind, as string, body []byte) {
		r, err := http.NewRequest(method, "http://127.0.0.1:8090"+path, strings.NewReader(string(body)))
		if err != nil || !strings.HasPrefix(path, "/") || !utf8.ValidString(path) || r.URL.Fragment != "" { // which clients keep to themselves
			t.Skip()
		}
		r.RemoteAddr = "127.0.0.1:5000"
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Authorization", as)
		o := governed(t, set)
		if state := o.views(); before == "" {
			before = state
		}
		w := httptest.NewRecorder()
		o.h.ServeHTTP(w, r)
		done := w.Code == http.StatusOK || w.Code == http.StatusCreated
		if w.Code >= 500 || w.Code < 400 && !done || !json.Valid(w.Body.Bytes()) || !utf8.Valid(w.Body.Bytes()) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		mayWrite, mayRead := strings.Contains(as, writeToken), strings.Contains(as, readToken)
		if done && !mayRead && !mayWrite {
			t.Errorf("%d for someone unknown: %s", w.Code, w.Body)
		}
		if after := o.views(); after != before && !(done && mayWrite) {
			t.Errorf("answered %d, and changed\n%s\nto\n%s", w.Code, before, after)
		}
		if r.Method == http.MethodHead {
			r.Method = http.MethodGet // the contract knows no HEAD, which is the same
		}
		o.holdsTo(r, string(body), w)
	})
}

// governed is a server of a fleet with something of each kind that can be changed.
func governed(t testing.TB, set *rules.Set) operator {
	s := server.New(server.Config{Settings: governedSettings(), Rules: set, Documents: governedShelf(), Log: slog.New(slog.DiscardHandler)})
	done, cancel := context.WithCancel(t.Context())
	cancel()
	s.Follow(done) // looks once
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	return operator{t, s.Admin()}
}

func governedSettings() config.Settings {
	s := config.Default()
	s.RulesFrom = config.FromFleet
	s.Admin.Tokens = []config.Token{
		{Name: "reader", Scope: config.ReadScope, Env: "STINT_FUZZ_READS"},
		{Name: "writer", Scope: config.WriteScope, Env: "STINT_FUZZ_WRITES"},
	}
	return s
}

func governedShelf() *shelf {
	const controls = `{"author":"x","at":"2026-01-01T00:00:00Z","controls":{
"modes":{"gone":"off","api":"shadow"},
"overrides":[{"id":"o1","at":"2026-01-01T00:00:00Z","rule":"login","key":"192.0.2.7","times":3}],
"safelist":[{"id":"s1","at":"2026-01-01T00:00:00Z","network":"203.0.113.0/24"}],
"blocklist":[{"id":"b1","at":"2026-01-01T00:00:00Z","match":"operation == \"bad\""}],
"bans":[{"id":"n1","at":"2026-01-01T00:00:00Z","network":"198.51.100.0/24"},{"id":"k1","at":"2026-01-01T00:00:00Z","rule":"gone","key":"x"}]}}`
	text, _ := json.Marshal(map[string]string{"author": "x", "at": "2026-01-01T00:00:00Z", "text": adminRules})
	return &shelf{versions: map[string][][]byte{"controls": {[]byte(controls)}, "rules": {text}}}
}

// views is what all of adminViews answer.
func (o operator) views() string {
	var all strings.Builder
	for _, path := range adminViews {
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer "+readToken)
		w := httptest.NewRecorder()
		if o.h.ServeHTTP(w, r); w.Code != http.StatusOK {
			o.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
		}
		all.WriteString(w.Body.String())
	}
	return all.String()
}
