package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// A Guard's refusal in a handler is a whole answer with one call, whatever refuses.
func TestRefuse(t *testing.T) {
	penalty, err := stint.NewPenalty(stint.PenaltySpec{Name: "p", WarnAfter: 2, BanAfter: 3, BanFor: 30 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	hour := stint.MustLimit("load: 1 per 1h")
	guard := func(g stint.Guard[int, int]) func(context.Context, int) (int, error) {
		g.Anonymous = stint.AnonymousShare
		return g.Wrap(func(context.Context, int) (int, error) { return 1, nil })
	}
	punished := guard(stint.Guard[int, int]{Limit: hour, Penalty: penalty, Messages: stint.Messages{
		Limited: "no", Warned: "{violations}/{ban_after}", Banned: "封禁 {ban_left}", StillBanned: "仍在封禁，剩余 {ban_left}"}})
	wrapped := guard(stint.Guard[int, int]{Limit: hour})
	costly := guard(stint.Guard[int, int]{Limit: hour, Cost: func(int) int64 { return 2 }})
	instance := guard(stint.Guard[int, int]{Limit: hour, Limiter: &stint.Limiter{Instance: stint.MustLimit("1 per 5m")}})
	deadline := guard(stint.Guard[int, int]{Limit: hour, Wait: true})
	failed := errors.New("failed")

	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		var err error
		switch r.URL.Path {
		case "/punished":
			_, err = punished(ctx, 0)
		case "/wrapped":
			_, err = wrapped(ctx, 0)
			err = fmt.Errorf("load: %w", errors.Join(err, failed))
		case "/costly":
			_, err = costly(ctx, 0)
		case "/instance":
			_, err = instance(ctx, 0)
		case "/deadline":
			_, err = deadline(ctx, 0)
		case "/failed":
			err = failed
		}
		dialect := httplimit.XRateLimit
		if r.URL.RawQuery == "quiet" {
			dialect = httplimit.NoHeaders
		}
		if !dialect.Refuse(w, r, err) {
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	defer s.Close()
	for i, c := range []struct {
		path           string
		status         int
		from, to       int // of Retry-After, in seconds; 0: it is not set
		outcome, limit string
		detail         string
	}{
		{"/punished", 202, 0, 0, "", "", ""},
		{"/punished", 429, 1, 3600, "limited", "1", "no"},
		{"/punished", 429, 1, 3600, "warned", "1", "2/3"},
		{"/punished?quiet", 429, 1, 3600, "banned", "", "封禁 30 分钟"},
		{"/punished", 429, 1, 3600, "banned", "", "仍在封禁，剩余 "},
		{"/wrapped", 202, 0, 0, "", "", ""},
		{"/wrapped", 429, 1, 3600, "limited", "1", "Too many requests. The limit is 1 per 1h. Retry after"},
		{"/wrapped?quiet", 429, 1, 3600, "limited", "", "Too many requests. Retry after"},
		{"/costly", 429, 0, 0, "limited", "1", "Too many requests. The limit is 1 per 1h. This request costs more"},
		{"/instance", 202, 0, 0, "", "", ""},
		{"/instance", 503, 1, 300, "overloaded", "", "The server is overloaded"},
		{"/deadline", 202, 0, 0, "", "", ""},
		{"/deadline", 429, 61, 3600, "limited", "1", "Too many requests."},
		{"/failed", 202, 0, 0, "", "", ""},
		{"/nothing", 202, 0, 0, "", "", ""},
	} {
		response, err := http.Get(s.URL + c.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != c.status || err != nil {
			t.Errorf("%d, %s: %d %s, %v", i, c.path, response.StatusCode, body, err)
			continue
		}
		var p struct{ Outcome, Detail string }
		var wait int
		if c.status == 202 {
			if len(body) > 0 || response.Header.Get("Retry-After") != "" {
				t.Errorf("%d, %s: %s %v", i, c.path, body, response.Header)
			}
			continue
		}
		if err := json.Unmarshal(body, &p); err != nil || response.Header.Get("Content-Type") != "application/problem+json" || response.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%d, %s: %s, %v", i, c.path, body, response.Header)
		}
		_, _ = fmt.Sscan(response.Header.Get("Retry-After"), &wait)
		if wait < c.from || wait > c.to || p.Outcome != c.outcome || response.Header.Get("X-Ratelimit-Limit") != c.limit || !strings.HasPrefix(p.Detail, c.detail) {
			t.Errorf("%d, %s: retry after %d, %+v, limit %q", i, c.path, wait, p, response.Header.Get("X-Ratelimit-Limit"))
		}
	}
}

// Within a Middleware, the answer is in the format of its context, with the numbers of the Guard's limit in place
// of the Middleware's, for pages of other origins, too.
func TestRefuseWithinMiddleware(t *testing.T) {
	format, err := httplimit.NewErrorFormat(httplimit.ErrorFormatSpec{
		Status: 503, Bodies: []httplimit.ErrorBody{{Type: "application/json", Text: `{"say": "{message}", "in": {retry_after_seconds}}`}}})
	if err != nil {
		t.Fatal(err)
	}
	load := stint.Guard[int, int]{Limit: stint.MustLimit("1 per 1h"), Message: "later", Anonymous: stint.AnonymousShare}.Wrap(
		func(context.Context, int) (int, error) { return 1, nil })
	_, _ = load(t.Context(), 0)
	h := httplimit.Middleware{
		Decide: httplimit.By(nil, stint.MustLimit("9 per 1h"), nil), Errors: format, CORS: &httplimit.CORS{Origins: []string{"https://a.example"}},
	}.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := load(r.Context(), 0)
		httplimit.XRateLimit.Refuse(w, r, err)
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, from("192.0.2.1:1", "Origin", "https://a.example"))
	got := w.Header()
	if w.Code != 503 || w.Body.String() != fmt.Sprintf(`{"say": "later", "in": %s}`, got.Get("Retry-After")) || len(got["X-Ratelimit-Limit"]) != 1 ||
		got.Get("X-Ratelimit-Limit") != "1" || !strings.Contains(got.Get("Access-Control-Expose-Headers"), "Retry-After") {
		t.Errorf("%d %s %v", w.Code, w.Body, got)
	}
}

// With the dialects of OpenAI and Anthropic, the answer has what their clients report, without a Middleware, too.
func TestRefuseForClientsOfModels(t *testing.T) {
	for _, d := range []httplimit.Dialect{httplimit.OpenAI, httplimit.Anthropic, httplimit.XRateLimit} {
		for by, want := range map[stint.Source]string{stint.ByStore: "rate_limit_error", stint.ByInstance: "overloaded_error"} {
			if d == httplimit.XRateLimit {
				want = ""
			}
			w := httptest.NewRecorder()
			d.Refuse(w, httptest.NewRequest("GET", "/", nil), &stint.RefusedError{Decision: stint.Decision{Outcome: stint.Limited, By: by, RetryAfter: time.Second}})
			var body struct{ Error struct{ Type string } }
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || body.Error.Type != want {
				t.Errorf("%d, by %s: %s, %v", d, by, w.Body, err)
			}
		}
	}
}

// A paused key is refused as by a limit, and not as if this instance were overloaded.
func TestPausedIsLimited(t *testing.T) { synctest.Test(t, refusesPaused) }

func refusesPaused(t *testing.T) {
	var l stint.Limiter
	limit := stint.MustLimit("5 per 1h")
	if err := l.Pause(t.Context(), "everyone", time.Minute); err != nil {
		t.Fatal(err)
	}
	budget := httplimit.Budget{Limiter: &l, Asks: func(*http.Request) ([]stint.Ask, error) { return []stint.Ask{{Key: "everyone", Limit: limit}}, nil }}
	refuse := func(w http.ResponseWriter, r *http.Request) {
		d, err := l.Allow(r.Context(), "everyone", limit)
		if err != nil {
			t.Error(err)
		}
		httplimit.XRateLimit.Refuse(w, r, &stint.RefusedError{Decision: d})
	}
	for name, h := range map[string]http.Handler{
		"By":     httplimit.Middleware{Decide: httplimit.By(&l, limit, everyone)}.Wrap(pong),
		"Budget": httplimit.Middleware{Decide: budget.Decide()}.Wrap(pong),
		"Refuse": http.HandlerFunc(refuse),
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, get())
		if w.Code != 429 || w.Header().Get("Retry-After") != "60" || !strings.Contains(w.Body.String(), "Too many requests. Retry after 60 seconds.") {
			t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
		}
	}
}
