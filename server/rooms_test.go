package server_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
	"github.com/stintdev/stint/server/rules"
)

// Defects that can arise where the decision, those who watch and the doors meet.

// absent is a Store that fails, and replaces whole answers, as a Store of a program may.
type absent struct{ *stint.Memory }

func (absent) TakeBatch(_ context.Context, _ []stint.Request, answers []stint.Answer) {
	for i := range answers {
		answers[i] = stint.Answer{Err: errors.New("away")}
	}
}

func (absent) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, errors.New("away")
}

func TestListOfHoldsOverStoreWithoutDecisions(t *testing.T) {
	s := newServer(t, `rules: [{name: a, key: client.ip, on_store_error: deny, limits: [5 in_flight]}]`, over(absent{new(stint.Memory)}))
	for _, answer := range checkEach(t, s, `{"client": "192.0.2.1", "hold": "10s"}`, `{"client": "192.0.2.2", "hold": "10s"}`) {
		if !strings.Contains(string(answer), `"status":503`) {
			t.Errorf("%s", answer)
		}
	}
}

// aware is a log whose lines know the context that they were written with.
type aware struct{ lines chan string }

func (aware) Enabled(context.Context, slog.Level) bool { return true }
func (l aware) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l aware) WithGroup(string) slog.Handler          { return l }
func (l aware) Handle(ctx context.Context, r slog.Record) error {
	if ctx.Err() == nil {
		l.lines <- r.Message
	}
	return nil
}

// A log that honours its context has the violations of clients that hang up, too.
func TestViolationsOfThoseWhoLeave(t *testing.T) {
	l := aware{make(chan string, 100)}
	s := newServer(t, `rules: [{name: watch, key: client.ip, penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}]`, func(c *server.Config) { c.Log = slog.New(l) })
	ctx, leave := context.WithCancel(t.Context())
	h := s.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { leave(); w.WriteHeader(http.StatusUnauthorized) }))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	close(l.lines)
	var lines []string
	for line := range l.lines {
		lines = append(lines, line)
	}
	if !slices.Contains(lines, "violation by a response") {
		t.Errorf("%q", lines)
	}
}

// A rule whose cost is never found is a finding of the rules in force, also if others decided the requests.
func TestFindingsOfRequestsDuringAReload(t *testing.T) {
	const text = `
rules:
  - {name: export, key: '"all"', cost_after: response.json.usage.rows, limits: [100000 per 1h fixed_window hold]}
`
	s := newServer(t, text)
	n := 0
	h := s.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n++; n == 20 { // the last one that is needed
			set, err := rules.Parse("rules.yaml", []byte(text+"  - {name: other, key: client.ip, limits: [9 per 1s]}\n"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.SetRules(set); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"rows": 3}`))
	}))
	for range 20 {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	if !slices.ContainsFunc(s.Findings(), func(f rules.Finding) bool { return f.Code == rules.CodeNoCost }) {
		t.Error("not found")
	}
}

// The series of webhooks and listeners are there before anything happens.
func TestSeriesOfNames(t *testing.T) {
	s := newServer(t, `rules: []`, func(c *server.Config) { c.Settings.Webhooks = []config.Webhook{{Name: "ops"}} })
	metric(t, s, `stint_alert_messages_total{result="accepted",webhook="ops"}`)
	metric(t, s, `stint_connections_refused_total{listener="gateway"}`)
}
