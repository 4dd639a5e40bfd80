package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
)

// odd is a Store of another make: it names keys in its own way, or leaves outcomes out.
type odd struct {
	stint.Store
	prefix string
	mute   bool
}

func (s odd) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	d, err := s.Store.Take(ctx, r, out)
	if d.Key = s.prefix + d.Key; s.mute {
		d.Outcome = 0
	}
	return d, err
}

// A refusal whose rule is not known, or that does not say its outcome, is a refusal like others.
func TestKindsOfOddStores(t *testing.T) {
	paused := stint.NewLimiter(new(stint.Memory))
	if err := paused.Pause(t.Context(), "192.0.2.1", time.Hour); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		limiter *stint.Limiter
		series  string
	}{
		"pause":    {paused, `stint_decisions_total{outcome="limited",rule=""}`},
		"prefix":   {stint.NewLimiter(odd{new(stint.Memory), "p:", false}), `stint_decisions_total{outcome="limited",rule=""}`},
		"mute":     {stint.NewLimiter(odd{new(stint.Memory), "", true}), `stint_decisions_total{outcome="limited",rule="one"}`},
		"instance": {&stint.Limiter{Store: new(stint.Memory), Instance: stint.MustLimit("1 per 1h")}, `stint_decisions_total{outcome="limited",rule=""}`},
	} {
		s := newServer(t, "rules: [{name: one, key: client.ip, limits: [1 per 1h]}]", func(c2 *server.Config) { c2.Limiter = c.limiter })
		refused := 0.0
		for range 3 {
			w := check(s, `{"client":"192.0.2.1"}`)
			if w.Code == 429 {
				refused++
			} else if w.Code != 200 {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
		if got := metric(t, s, c.series); got != refused || refused < 2 {
			t.Errorf("%s: %g refused, and %g counted", name, refused, got)
		}
	}
}

// A client cannot hide a refusal, or the ban that follows, behind a body that breaks off.
func TestRefusalBeforeBrokenBodyStands(t *testing.T) {
	s := newServer(t, `rules:
  - {name: look, mode: shadow, match: body.model == "x", key: client.ip, limits: [100 per 1m]}
  - {name: one, key: client.ip, limits: [1 per 1m], penalty: {ban_after: 1, ban_for: 1h}}
`)
	h := s.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	send := func(body io.Reader, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest("POST", "/", body)); w.Code != want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
	send(strings.NewReader(`{"model":"x"}`), 200)
	send(io.MultiReader(strings.NewReader(`{"model`), iotest.ErrReader(io.ErrUnexpectedEOF)), 429)
	if got := metric(t, s, `stint_bans{rule="one"}`); got != 1 {
		t.Errorf("%g bans", got)
	}
}

// The time to decide has no part of the time in which a client sends what is only read when the response ends.
func TestDecisionSecondsWithoutUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `rules: [{name: tokens, key: '"all"', cost: "5", tokens: {api: openai, include_usage: true}, limits: [100000 per 1h fixed_window hold]}]`)
		in, out := io.Pipe()
		go func() {
			_, _ = io.WriteString(out, `{"prompt":"x","stream":true,"a":`)
			time.Sleep(time.Minute)
			_, _ = io.WriteString(out, `"b"}`)
			out.Close()
		}()
		w := httptest.NewRecorder()
		start := time.Now()
		s.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, httptest.NewRequest("POST", "/v1/completions", in))
		if w.Code != 200 || time.Since(start) < time.Minute {
			t.Fatalf("%d after %s: %s", w.Code, time.Since(start), w.Body)
		}
		if got := metric(t, s, "stint_decision_seconds_sum"); got != 0 {
			t.Errorf("%g seconds to decide", got)
		}
	})
}
