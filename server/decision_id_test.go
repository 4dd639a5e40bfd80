package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

var decisionID = regexp.MustCompile(`^[0-9a-f]{16}$`)

var (
	idHeader = regexp.MustCompile(`Stint-Decision:\[[0-9a-f]{16}\]`)
	idMember = regexp.MustCompile(`"decision_id":"[0-9a-f]{16}",`)
)

// withoutID is a text of an answer without the ID of its decision, in which two equal answers
// differ.
func withoutID(text string) string {
	return idMember.ReplaceAllString(idHeader.ReplaceAllString(text, "Stint-Decision:[id]"), "")
}

// A refusal has an ID, in the header of each API, and its own; what is allowed has none there.
func TestDecisionHeader(t *testing.T) {
	target := upstream(t, func(http.ResponseWriter, *http.Request) {})
	s := newServer(t, "trusted_proxies: [192.0.2.1]\nblocklist: ['request.path == \"/blocked\"']\nrules:\n- {name: one, limits: [1 per 1h], key: request.path}\n", everythingTo(target))
	check := func(body string) *http.Request {
		r := httptest.NewRequest("POST", "/v1/check", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		return r
	}
	ask := httptest.NewRequest("GET", "/v1/authorize", nil)
	ask.Header = http.Header{"X-Original-Uri": {"/ask"}, "X-Original-Method": {"GET"}, "X-Forwarded-For": {"198.51.100.7"}}
	seen := map[string]bool{}
	for _, c := range []struct {
		name string
		h    http.Handler
		r    func() *http.Request
	}{
		{"gateway", s.Gateway(), func() *http.Request { return httptest.NewRequest("GET", "/gateway", nil) }},
		{"gateway, blocked", s.Gateway(), func() *http.Request { return httptest.NewRequest("GET", "/blocked", nil) }},
		{"check", checkAPI(s), func() *http.Request { return check(`{"request":{"path":"/check"}}`) }},
		{"authorize", checkAPI(s), func() *http.Request { return ask.Clone(t.Context()) }},
	} {
		for i := range 3 {
			w := httptest.NewRecorder()
			c.h.ServeHTTP(w, c.r())
			id, allowed := w.Header().Get("Stint-Decision"), w.Code == http.StatusOK
			if allowed != (i == 0 && c.name != "gateway, blocked") {
				t.Fatalf("%s: request %d: %d %s", c.name, i, w.Code, w.Body)
			}
			if allowed && id != "" || !allowed && !decisionID.MatchString(id) || seen[id] && id != "" {
				t.Errorf("%s: request %d: %d with the ID %q", c.name, i, w.Code, id)
			}
			seen[id] = true
		}
	}
	w := httptest.NewRecorder()
	one := `{"request":{"path":"/list"}}`
	checkAPI(s).ServeHTTP(w, check("["+one+","+one+"]"))
	var list []struct {
		Status int
		ID     string `json:"decision_id"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list) != 2 || list[0].ID != "" || list[1].Status != 429 || !decisionID.MatchString(list[1].ID) {
		t.Errorf("%v: %s", err, w.Body)
	}
}

// A simulation has no IDs: it answers the same each time.
func TestDecisionIDOfSimulation(t *testing.T) {
	s := newServer(t, "rules:\n- {name: one, limits: [1 per 1h], key: client.ip}\n")
	for i := range 2 {
		v, err := s.Decide(t.Context(), from("192.0.2.1"), time.Unix(1_700_000_000, 0))
		if err != nil || v.Allowed != (i == 0) || v.ID != "" {
			t.Errorf("%+v, %v", v, err)
		}
	}
	v, err := s.Decide(t.Context(), from("192.0.2.9"), time.Time{})
	if err != nil || !v.Allowed || v.ID != "" {
		t.Errorf("allowed: %+v, %v", v, err)
	}
	if v, _ = s.Decide(t.Context(), from("192.0.2.9"), time.Time{}); !decisionID.MatchString(v.ID) {
		t.Errorf("refused: %+v", v)
	}
}
