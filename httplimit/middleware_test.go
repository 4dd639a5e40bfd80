package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

var pong = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "pong") })

// always decides the same.
func always(a httplimit.Answer, err error) httplimit.Decide {
	return func(*http.Request, time.Duration) (httplimit.Answer, error) { return a, err }
}

func serve(m httplimit.Middleware, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	m.Wrap(pong).ServeHTTP(w, r)
	return w
}

func get() *http.Request { return httptest.NewRequest("GET", "/", nil) }

// violation is d as the seventh violation of a penalty.
func violation(d stint.Decision, s stint.PenaltySpec) stint.Decision {
	p, err := stint.NewPenalty(s)
	if err != nil {
		panic(err)
	}
	d.Penalty, d.Violations = p, 7
	return d
}

// The header is told of refusals alone, where it is asked for.
func TestViolationsHeader(t *testing.T) {
	limited := stint.Decision{Outcome: stint.Limited, RetryAfter: time.Second}
	for want, d := range map[string]stint.Decision{
		"":                           limited,
		"7;warn-after=3":             violation(limited, stint.PenaltySpec{WarnAfter: 3}),
		"7;ban-after=9":              violation(limited, stint.PenaltySpec{BanAfter: 9, BanFor: time.Hour}),
		"7;warn-after=3;ban-after=9": violation(limited, stint.PenaltySpec{WarnAfter: 3, BanAfter: 9, BanFor: time.Hour}),
	} {
		for _, on := range []bool{true, false} {
			w := serve(httplimit.Middleware{Decide: always(httplimit.Answer{Decision: d}, nil), Violations: on}, get())
			if got := w.Header().Get("Stint-Violations"); got != want && on || got != "" && !on {
				t.Errorf("%t: %q, want %q", on, got, want)
			}
		}
	}
}

func TestAnswers(t *testing.T) {
	login := named("5 per 1m", "login")
	allowed := stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: login, Remaining: 3, ResetAfter: 24 * time.Second}
	limited := stint.Decision{Outcome: stint.Limited, Limit: login, RetryAfter: 11500 * time.Millisecond, ResetAfter: time.Minute}
	as := func(o stint.Outcome, d stint.Decision) stint.Decision {
		d.Outcome = o
		return d
	}
	for _, c := range []struct {
		name    string
		a       httplimit.Answer
		err     error
		dialect httplimit.Dialect
		status  int
		shown   string
		body    string
	}{
		{"allowed", httplimit.Answer{Decision: allowed}, nil, 0, 200, "Limit=5 Remaining=3 Reset=24", "pong"},
		{"unlimited", httplimit.Answer{Unlimited: true}, nil, 0, 200, "", "pong"},
		{"limited", httplimit.Answer{Decision: limited}, nil, 0, 429, "Limit=5 Remaining=0 Reset=60 Retry-After=12",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many requests. The limit is 5 per 1m. Retry after 12 seconds.","outcome":"limited","limit_name":"login","limit":"5 per 1m","retry_after":12}`},
		{"limited for a second", httplimit.Answer{Decision: stint.Decision{Outcome: stint.Limited, RetryAfter: 1}}, nil, 0, 429, "Retry-After=1",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many requests. Retry after 1 second.","outcome":"limited","retry_after":1}`},
		{"limited, in words of its own", httplimit.Answer{Decision: limited, Message: "<slow> \"down\"\x00\xff"}, nil, 0, 429, "Limit=5 Remaining=0 Reset=60 Retry-After=12",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"\u003cslow\u003e \"down\"\u0000\ufffd","outcome":"limited","limit_name":"login","limit":"5 per 1m","retry_after":12}`},
		{"limited, and it is nobody's business by what", httplimit.Answer{Decision: limited}, nil, httplimit.NoHeaders, 429, "Retry-After=12",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many requests. Retry after 12 seconds.","outcome":"limited","retry_after":12}`},
		{"warned", httplimit.Answer{Decision: as(stint.Warned, limited)}, nil, 0, 429, "Limit=5 Remaining=0 Reset=60 Retry-After=12",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many requests. If this continues, you will be banned. The limit is 5 per 1m. Retry after 12 seconds.","outcome":"warned","limit_name":"login","limit":"5 per 1m","retry_after":12}`},
		{"banned", httplimit.Answer{Decision: stint.Decision{Outcome: stint.Banned, Key: "mallory", RetryAfter: time.Hour, BanLeft: time.Hour}}, nil, 0, 429, "Retry-After=3600",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Banned because of too many requests. Retry after 3600 seconds.","outcome":"banned","retry_after":3600}`},
		{"warned, by a penalty that never bans", httplimit.Answer{Decision: violation(as(stint.Warned, limited), stint.PenaltySpec{WarnAfter: 1})}, nil, 0, 429, "Limit=5 Remaining=0 Reset=60 Retry-After=12",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many requests. This is a warning. The limit is 5 per 1m. Retry after 12 seconds.","outcome":"warned","limit_name":"login","limit":"5 per 1m","retry_after":12,"violations":7,"warn_after":1}`},
		{"a violation", httplimit.Answer{Decision: violation(limited, stint.PenaltySpec{WarnAfter: 8, BanAfter: 9, BanFor: time.Hour})}, nil, 0, 429, "Limit=5 Remaining=0 Reset=60 Retry-After=12",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many requests. The limit is 5 per 1m. Retry after 12 seconds.","outcome":"limited","limit_name":"login","limit":"5 per 1m","retry_after":12,"violations":7,"warn_after":8,"ban_after":9}`},
		{"a violation that is nobody's business", httplimit.Answer{Decision: violation(limited, stint.PenaltySpec{WarnAfter: 8})}, nil, httplimit.NoHeaders, 429, "Retry-After=12",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many requests. Retry after 12 seconds.","outcome":"limited","retry_after":12}`},
		{"banned for a cause", httplimit.Answer{Decision: stint.Decision{Outcome: stint.Banned, RetryAfter: time.Hour, BanLeft: time.Hour}, Cause: "Banned by hand."}, nil, 0, 429, "Retry-After=3600",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Banned by hand. Retry after 3600 seconds.","outcome":"banned","retry_after":3600}`},
		{"banned for good", httplimit.Answer{Decision: stint.Decision{Outcome: stint.Banned, RetryAfter: stint.Never, BanLeft: stint.Never}}, nil, 0, 429, "",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Banned because of too many requests.","outcome":"banned"}`},
		{"never", httplimit.Answer{Decision: stint.Decision{Outcome: stint.Limited, Limit: login, Remaining: 5, RetryAfter: stint.Never}}, nil, 0, 429, "Limit=5 Remaining=5 Reset=0",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many requests. The limit is 5 per 1m. This request costs more than the limit allows at once.","outcome":"limited","limit_name":"login","limit":"5 per 1m"}`},
		{"the zero answer", httplimit.Answer{}, nil, 0, 429, "Retry-After=1",
			`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"Too many requests. Retry after 1 second.","retry_after":1}`},
		{"blocked", httplimit.Answer{Blocked: true}, nil, 0, 403, "",
			`{"type":"about:blank","title":"Forbidden","status":403,"detail":"This request is not accepted.","outcome":"blocked"}`},
		{"blocked goes before all", httplimit.Answer{Blocked: true, Unlimited: true, Decision: allowed, Message: "go away"}, nil, 0, 403, "",
			`{"type":"about:blank","title":"Forbidden","status":403,"detail":"go away","outcome":"blocked"}`},
		{"undecidable", httplimit.Answer{}, fmt.Errorf("redis at 10.0.0.9 for key mallory: %w", context.DeadlineExceeded), 0, 503, "Retry-After=1",
			`{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"The server cannot check the limits of this request right now.","retry_after":1}`},
		{"malformed", httplimit.Answer{}, fmt.Errorf("key mallory: %w", stint.ErrRequest), 0, 400, "",
			`{"type":"about:blank","title":"Bad Request","status":400,"detail":"The request cannot be counted: the value that it is counted by is missing, too long, or sent more than once."}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := serve(httplimit.Middleware{Decide: always(c.a, c.err), Dialect: c.dialect}, get())
			if w.Code != c.status || shown(w.Header()) != c.shown {
				t.Errorf("got %d %s, want %d %s", w.Code, shown(w.Header()), c.status, c.shown)
			}
			if got := strings.TrimSuffix(w.Body.String(), "\n"); got != c.body {
				t.Errorf("body\ngot  %s\nwant %s", got, c.body)
			}
			if w.Code == 200 {
				return
			}
			if !json.Valid(w.Body.Bytes()) {
				t.Error("the body is no JSON")
			}
			h := w.Header()
			if h.Get("Content-Type") != "application/problem+json" || h.Get("Cache-Control") != "no-store" || h.Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
				t.Errorf("headers %v for %d bytes", h, w.Body.Len())
			}
		})
	}
}

func TestOnError(t *testing.T) {
	down := errors.New("store is down")
	var told error
	m := httplimit.Middleware{
		Decide:    always(httplimit.Answer{}, down),
		Undecided: func(r *http.Request, err error) bool { told = err; return r.Method == "GET" },
	}
	if w := serve(m, get()); w.Code != 200 || w.Body.String() != "pong" || shown(w.Header()) != "" || told != down {
		t.Errorf("let pass: %d %s, told %v", w.Code, shown(w.Header()), told)
	}
	if w := serve(m, httptest.NewRequest("POST", "/", nil)); w.Code != 503 || shown(w.Header()) != "Retry-After=1" {
		t.Errorf("not let pass: %d %s", w.Code, shown(w.Header()))
	}
	told = nil
	m.Decide = always(httplimit.Answer{}, stint.ErrRequest)
	if w := serve(m, get()); w.Code != 400 || told != nil {
		t.Errorf("malformed: %d, told %v", w.Code, told)
	}
}

func TestRefusalReplacesWhatWasSaidOfTheResponse(t *testing.T) {
	w := httptest.NewRecorder()
	h := w.Header()
	for _, n := range []string{"Content-Type", "Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Cache-Control"} {
		h.Set(n, "stale")
	}
	h.Set("Strict-Transport-Security", "max-age=1")
	httplimit.Middleware{Decide: always(httplimit.Answer{}, nil)}.Wrap(pong).ServeHTTP(w, get())
	for n, v := range h {
		if v[0] == "stale" {
			t.Errorf("%s is stale", n)
		}
	}
	if h.Get("Strict-Transport-Security") == "" {
		t.Error("what is not of the response is lost")
	}
}

func TestRefusalOfHead(t *testing.T) {
	w := serve(httplimit.Middleware{Decide: always(httplimit.Answer{}, nil)}, httptest.NewRequest("HEAD", "/", nil))
	if w.Body.Len() > 0 || w.Header().Get("Content-Length") == "0" {
		t.Errorf("%d bytes of body, Content-Length %s", w.Body.Len(), w.Header().Get("Content-Length"))
	}
}

// What a client sends never comes back: not in headers, not in the body.
func TestNothingIsReflected(t *testing.T) {
	const mark = "mallory"
	limit := stint.MustLimit("1 per 1m")
	both := httplimit.XRateLimit | httplimit.Draft11
	for _, size := range []int{1, stint.MaxKey, 1 << 20} {
		m := httplimit.Middleware{Decide: httplimit.By(nil, limit, httplimit.Header("X-User")), Dialect: both}.Wrap(pong)
		for _, want := range []int{200, 429} {
			if size > stint.MaxKey/len(mark) {
				want = 400
			}
			r := get()
			r.Header.Set("X-User", strings.Repeat(mark, size))
			w := httptest.NewRecorder()
			m.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%d marks: got %d, want %d", size, w.Code, want)
			}
			if text := fmt.Sprint(w.Header()) + w.Body.String(); strings.Contains(text, mark) {
				t.Errorf("%d marks: came back in %.300s", size, text)
			}
		}
	}
}

// Keys may be any bytes; only their number is bounded.
func TestKeysOfAnyBytes(t *testing.T) {
	limit := stint.MustLimit("1 per 1m")
	var key string
	m := httplimit.Middleware{Decide: httplimit.By(new(stint.Limiter), limit, func(*http.Request) string { return key })}.Wrap(pong)
	for _, c := range []struct {
		key    string
		status int
	}{
		{"\x00", 200}, {"\x00", 429}, {"\x00\x00", 200}, {"\xff\xfe", 200}, {"\xff\xfe", 429}, {"\r\nSet-Cookie: x", 200}, {"}{", 200},
		{strings.Repeat("k", stint.MaxKey), 200}, {strings.Repeat("k", stint.MaxKey+1), 400},
		{"", 400},
	} {
		key = c.key
		w := httptest.NewRecorder()
		m.ServeHTTP(w, get())
		if w.Code != c.status {
			t.Errorf("%.20q: got %d, want %d", key, w.Code, c.status)
		}
	}
}

func TestLimitsByClient(t *testing.T) {
	clients := httplimit.Clients{Trusted: behindTen}
	m := httplimit.Middleware{Decide: httplimit.By(nil, stint.MustLimit("1 per 1m"), clients.Key)}.Wrap(pong)
	for _, c := range []struct {
		forwarded string
		status    int
	}{
		{"198.51.100.1", 200}, {"198.51.100.1", 429}, {"6.6.6.6, 198.51.100.1", 429}, {"::ffff:198.51.100.1", 429},
		{"198.51.100.2", 200}, {"::ffff:198.51.100.3", 200},
		{"2001:db8::1", 200}, {"2001:db8::2", 429}, {"2001:db8:0:1::1", 200},
	} {
		r := from("10.0.0.1:1", "X-Forwarded-For", c.forwarded)
		w := httptest.NewRecorder()
		m.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s: got %d, want %d", c.forwarded, w.Code, c.status)
		}
	}
}

// The zero Middleware limits each address that connects to 100 a minute; with Clients,
// each client of a proxy.
func TestZeroMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			clients *httplimit.Clients
			want    int // of two clients behind one proxy
		}{
			"none":    {nil, 100},
			"clients": {&httplimit.Clients{Trusted: behindTen}, 200},
		} {
			m := httplimit.Middleware{Clients: c.clients}.Wrap(pong)
			got := 0
			for i := range 300 {
				w := httptest.NewRecorder()
				m.ServeHTTP(w, from("10.0.0.1:1", "X-Forwarded-For", []string{"198.51.100.1", "198.51.100.2"}[i%2]))
				if w.Code == 200 {
					got++
				} else if w.Code != 429 || w.Header().Get("Retry-After") == "" {
					t.Fatalf("%s: %d %v", name, w.Code, w.Header())
				}
			}
			if got != c.want {
				t.Errorf("%s: %d passed, want %d", name, got, c.want)
			}
		}
	})
}

// A Guard within counts by the client that the Middleware found.
func TestGuardWithinMiddleware(t *testing.T) {
	clients := &httplimit.Clients{Trusted: behindTen}
	for name, m := range map[string]httplimit.Middleware{
		"decided":   {Clients: clients},
		"undecided": {Clients: clients, Decide: always(httplimit.Answer{}, errors.New("down")), Undecided: func(*http.Request, error) bool { return true }},
	} {
		load := stint.Guard[int, int]{Limit: stint.MustLimit("1 per 1h")}.Wrap(func(context.Context, int) (int, error) { return 0, nil })
		h := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := load(r.Context(), 0); err != nil {
				w.WriteHeader(http.StatusTeapot)
			}
		}))
		for i, c := range []struct {
			client string
			want   int
		}{{"198.51.100.1", 200}, {"198.51.100.2", 200}, {"198.51.100.2", http.StatusTeapot}, {"198.51.100.3", 200}} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, from("10.0.0.1:1", "X-Forwarded-For", c.client))
			if w.Code != c.want {
				t.Errorf("%s, %d: %s: %d, want %d", name, i, c.client, w.Code, c.want)
			}
		}
	}
}

// A Limiter's own Instance refuses as the server's does: the client is not to blame.
func TestByInstance(t *testing.T) {
	l := &stint.Limiter{Instance: stint.MustLimit("1 per 1h")}
	m := httplimit.Middleware{Decide: httplimit.By(l, nil, nil)}.Wrap(pong)
	for i, want := range []int{200, 503} {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, get())
		if w.Code != want || (want == 503) != (w.Header().Get("Retry-After") == "3600") {
			t.Errorf("%d: %d %v", i, w.Code, w.Header())
		}
	}
}

func TestMistakesOfTheProgrammerPanic(t *testing.T) {
	for name, f := range map[string]func(){
		"dialects": func() { httplimit.Middleware{Decide: always(httplimit.Answer{}, nil), Dialect: 3}.Wrap(pong) },
		"dialect":  func() { httplimit.Middleware{Decide: always(httplimit.Answer{}, nil), Dialect: 128}.Wrap(pong) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "httplimit: ") {
					t.Errorf("panicked with %v", s)
				}
			}()
			f()
		})
	}
}
