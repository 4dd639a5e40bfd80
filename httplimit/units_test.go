package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

var (
	tokensPerMinute = stint.MustLimit("api: 200000 per 1m fixed_window hold")
	tokensPerDay    = stint.MustLimit("api: 1000000 per 24h fixed_window hold")
	requestsPer     = stint.MustLimit("api: 60 per 1m")
	fourInFlight    = stint.MustLimit("api: 4 in_flight")
)

// llm is an answer of four limits, as the rules for an API of language models give.
func llm() httplimit.Answer {
	each := []stint.Decision{
		{Allowed: true, Outcome: stint.Allowed, Limit: tokensPerMinute, Key: "k", Remaining: 150_000, Held: 2000, ResetAfter: 6 * time.Minute},
		{Allowed: true, Outcome: stint.Allowed, Limit: tokensPerDay, Key: "k", Remaining: 160_000, Held: 2000, ResetAfter: 5 * time.Hour},
		{Allowed: true, Outcome: stint.Allowed, Limit: requestsPer, Key: "k", Remaining: 59, ResetAfter: 1000500 * time.Microsecond},
		{Allowed: true, Outcome: stint.Allowed, Limit: fourInFlight, Key: "k", Remaining: 3, Held: 1, ResetAfter: 30 * time.Second},
	}
	return httplimit.Answer{Decision: each[3], Each: each, Units: []string{"tokens", "tokens", "requests", "requests"}}
}

// headersIn are the headers that contain part, sorted, without those that hold an instant.
func headersIn(h http.Header, part string) (all []string) {
	for name, lines := range h {
		if strings.Contains(name, part) && !strings.HasSuffix(name, "-Reset") {
			all = append(all, name+": "+strings.Join(lines, " | "))
		}
	}
	slices.Sort(all)
	return all
}

// The headers of OpenAI and Anthropic are those of the strictest limit of each unit, and say nothing
// of what is in flight.
func TestUnits(t *testing.T) {
	a := llm()
	h := http.Header{}
	(httplimit.OpenAI | httplimit.Anthropic).SetHeaders(h, &a)
	want := []string{
		"X-Ratelimit-Limit-Requests: 60", "X-Ratelimit-Limit-Tokens: 200000",
		"X-Ratelimit-Remaining-Requests: 59", "X-Ratelimit-Remaining-Tokens: 150000",
		"X-Ratelimit-Reset-Requests: 1.001s", "X-Ratelimit-Reset-Tokens: 6m0s",
	}
	if got := headersIn(h, "X-Ratelimit"); !slices.Equal(got, want) {
		t.Errorf("openai:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	want = []string{
		"Anthropic-Ratelimit-Requests-Limit: 60", "Anthropic-Ratelimit-Requests-Remaining: 59",
		"Anthropic-Ratelimit-Tokens-Limit: 200000", "Anthropic-Ratelimit-Tokens-Remaining: 150000",
	}
	if got := headersIn(h, "Anthropic"); !slices.Equal(got, want) {
		t.Errorf("anthropic:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	reset, err := time.Parse(time.RFC3339, h.Get("Anthropic-Ratelimit-Tokens-Reset"))
	if left := time.Until(reset); err != nil || left < 6*time.Minute-time.Second || left > 6*time.Minute+2*time.Second {
		t.Errorf("reset in %v, %v", left, err)
	}
}

// A Budget says what its limits count by Ask.Unit: 100 tokens are not shown as requests.
func TestUnitsOfABudget(t *testing.T) {
	tokens := stint.MustLimit("llm: 100 per 1m fixed_window hold")
	decide := httplimit.Budget{Asks: func(*http.Request) ([]stint.Ask, error) {
		return []stint.Ask{{Key: "ann", Limit: tokens, Cost: 60, Unit: "tokens"}, {Key: "ann", Limit: requestsPer}}, nil
	}}.Decide()
	const want = "X-Ratelimit-Remaining-Requests: 59 X-Ratelimit-Remaining-Tokens: 40"
	for i := range 2 {
		a, err := decide(get(), 0)
		if err != nil || a.Allowed != (i == 0) {
			t.Fatal(a.Decision, err)
		}
		h := http.Header{}
		httplimit.OpenAI.SetHeaders(h, &a)
		if got := strings.Join(headersIn(h, "-Remaining-"), " "); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
}

// The other dialects show what is held, and draft-11 what is counted.
func TestHeldInHeaders(t *testing.T) {
	a := llm()
	h := http.Header{}
	(httplimit.XRateLimit | httplimit.Draft11).SetHeaders(h, &a)
	for name, want := range map[string]string{
		"X-Ratelimit-Limit": "4", "X-Ratelimit-Remaining": "3", "X-Ratelimit-Held": "1", "X-Ratelimit-Reset": "30",
		"Ratelimit-Policy": `"api";q=200000;qu="tokens";w=60, "api-2";q=1000000;qu="tokens";w=86400, "api-3";q=60;qu="requests";w=60, "api-4";q=4;qu="concurrent-requests"`,
		"Ratelimit":        `"api";r=150000;t=360;stint-held=2000, "api-2";r=160000;t=18000;stint-held=2000, "api-3";r=59;t=2, "api-4";r=3;t=30;stint-held=1`,
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
	a = httplimit.Answer{Decision: a.Each[2]}
	h = http.Header{}
	httplimit.XRateLimit.SetHeaders(h, &a)
	if h["X-Ratelimit-Held"] != nil {
		t.Error("a limit that is not held shows what is")
	}
}

// The time to retry of a refusal that is busy is a hint, which differs from client to client, and is
// the same in header and body. Others are exact.
func TestHintsAreJittered(t *testing.T) {
	for _, hint := range []time.Duration{time.Second, 1500 * time.Millisecond, 30 * time.Second} {
		for _, busy := range []bool{true, false} {
			seen := map[int]bool{}
			least, most := int((hint+time.Second-1)/time.Second), 0
			most = least
			if busy {
				most = least + least/2 + 1
			}
			for range 200 {
				a := httplimit.Answer{Units: []string{"requests"}}
				a.Decision = stint.Decision{Outcome: stint.Limited, Limit: fourInFlight, RetryAfter: hint, ResetAfter: 20 * time.Second, Held: 4, Busy: busy}
				w := serve(httplimit.Middleware{Decide: always(a, nil), Dialect: httplimit.XRateLimit}, get())
				retry, err := strconv.Atoi(w.Header().Get("Retry-After"))
				if err != nil || retry < least || retry > most {
					t.Fatalf("%v, busy %t: Retry-After %q, want %d to %d", hint, busy, w.Header().Get("Retry-After"), least, most)
				}
				if !strings.Contains(w.Body.String(), fmt.Sprintf(`"retry_after":%d,`, retry)) && !strings.Contains(w.Body.String(), fmt.Sprintf(`"retry_after":%d}`, retry)) {
					t.Fatalf("Retry-After %d, body %s", retry, w.Body)
				}
				seen[retry] = true
			}
			if want := most - least + 1; len(seen) != want {
				t.Errorf("%v, busy %t: %v, want all %d values", hint, busy, seen, want)
			}
		}
	}
}

// A refusal says what is counted, and that requests in flight are to blame.
func TestProblemsOfHeldLimits(t *testing.T) {
	a := llm()
	a.Decision = a.Each[0]
	a.Allowed, a.Outcome, a.RetryAfter, a.Busy = false, stint.Limited, time.Second, true
	a.Each[0] = a.Decision
	body := serve(httplimit.Middleware{Decide: always(a, nil)}, get()).Body.String()
	for _, want := range []string{`"unit":"tokens"`, "Requests in flight hold what is left. The limit is 200000 per 1m fixed_window hold", ", in tokens."} {
		if !strings.Contains(body, want) {
			t.Errorf("%s\nlacks %s", body, want)
		}
	}
	a = llm()
	a.Allowed, a.Outcome, a.RetryAfter, a.Busy = false, stint.Limited, time.Second, true
	a.Each[3] = a.Decision
	if body := serve(httplimit.Middleware{Decide: always(a, nil)}, get()).Body.String(); !strings.Contains(body, "Too many requests are in flight. The limit is 4 in_flight. Retry") {
		t.Error(body)
	}
}

// The clients of OpenAI and Anthropic are told when to retry in milliseconds, and not to retry where
// it would be in vain or take long. They find the error where these APIs have it.
func TestRetriesOfAPIClients(t *testing.T) {
	for _, c := range []struct {
		wait        time.Duration
		busy        bool
		least, most int // Retry-After-Ms; 0: none
		retries     bool
		header      string
	}{
		{wait: 1234567 * time.Microsecond, least: 1235, most: 1235, retries: true, header: "2"},
		{wait: 0, least: 1, most: 1, retries: true, header: "1"},
		{wait: time.Minute, least: 60000, most: 60000, retries: true, header: "60"},
		{wait: time.Minute + 1, least: 60001, most: 60001, header: "61"},
		{wait: 31 * 24 * time.Hour, least: 2678400000, most: 2678400000, header: "2678400"},
		{wait: stint.Never},
		{wait: time.Second, busy: true, least: 1000, most: 2000, retries: true},
	} {
		for _, d := range []httplimit.Dialect{httplimit.OpenAI, httplimit.Anthropic, httplimit.Draft11} {
			seen := map[string]bool{}
			for range 50 {
				a := httplimit.Answer{Decision: stint.Decision{Outcome: stint.Limited, Limit: tokensPerMinute, RetryAfter: c.wait, Busy: c.busy}}
				w := serve(httplimit.Middleware{Decide: always(a, nil), Dialect: d}, get())
				h := w.Header()
				text := h.Get("Retry-After-Ms")
				seen[text] = true
				if d == httplimit.Draft11 {
					if text != "" || h.Get("X-Should-Retry") != "" || strings.Contains(w.Body.String(), `"error"`) {
						t.Fatalf("%v: %v %s", d, h, w.Body)
					}
					continue
				}
				ms, _ := strconv.Atoi(text)
				seconds, _ := strconv.Atoi(h.Get("Retry-After"))
				if ms < c.least || ms > c.most || ms > seconds*1000 || (h.Get("X-Should-Retry") == "") != c.retries || c.header != "" && c.header != h.Get("Retry-After") {
					t.Fatalf("%v, busy %t, %v: %v", c.wait, c.busy, d, h)
				}
				if want := `"error":{"type":"rate_limit_error","code":"rate_limit_exceeded","message":"`; !strings.Contains(w.Body.String(), want) {
					t.Fatalf("%s lacks %s", w.Body, want)
				}
			}
			if c.busy && d != httplimit.Draft11 && len(seen) < 10 {
				t.Errorf("%d different hints", len(seen))
			}
		}
	}
}

// Other problems have an error, too, with the type that fits the status.
func TestErrorsOfAPIClients(t *testing.T) {
	for status, want := range map[int]string{
		400: "invalid_request_error", 403: "permission_error", 404: "not_found_error", 502: "api_error", 503: "overloaded_error", 504: "timeout_error",
	} {
		m := httplimit.Middleware{Decide: always(httplimit.Answer{Unlimited: true}, nil), Dialect: httplimit.Anthropic}
		h := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { httplimit.Problem(w, r, status, "It is so.") }))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, get())
		if want := `"error":{"type":"` + want + `","message":"It is so."}`; !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s lacks %s", w.Body, want)
		}
	}
}
