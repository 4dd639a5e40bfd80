package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/friend"
)

func TestCORSCheck(t *testing.T) {
	origins := func(all ...string) httplimit.CORS { return httplimit.CORS{Origins: all} }
	for _, c := range []struct {
		cors httplimit.CORS
		want string // a part of the error; empty: there is none
	}{
		{origins(), ""},
		{origins("https://app.example.com", "http://localhost:3000", "https://*.example.com", "http://[::1]:8080", "capacitor://localhost", "null"), ""},
		{origins("*"), ""},
		{origins("http://*.localhost:3000"), ""},
		{httplimit.CORS{Origins: []string{"https://a.example"}, Credentials: true, MaxAge: time.Hour, Methods: []string{"PURGE"}, Headers: []string{"X-A"}}, ""},
		{httplimit.CORS{Methods: []string{"*"}, Headers: []string{"*"}}, ""},
		{origins("app.example.com"), "want a scheme and a host"},
		{origins(""), "want a scheme and a host"},
		{origins("https://"), "want a scheme and a host"},
		{origins("https://App.example.com"), "in lower case"},
		{origins("https://a.example b"), "want a scheme and a host"},
		{origins("https://müller.example"), "want a scheme and a host"},
		{origins("https://app.example.com/"), "no slash at its end"},
		{origins("https://app.example.com/a"), "an origin has no path"},
		{origins("https://user@app.example.com"), "an origin has no path"},
		{origins("https://app.example.com:443"), "browsers leave out the port"},
		{origins("http://app.example.com:80"), "browsers leave out the port"},
		{origins("https://a.*.example.com"), "the first label"},
		{origins("https://a*.example.com"), "the first label"},
		{origins("https://*.*.example.com"), "the first label"},
		{origins("https://*"), "the first label"},
		{origins("https://*.com"), "a name under com"},
		{origins("https://*.com:8443"), "a name under com"},
		{origins("https://*.com."), "a name under com."},
		{httplimit.CORS{Origins: []string{"https://a.example", "*"}, Credentials: true}, "any site could read"},
		{httplimit.CORS{Methods: []string{"*"}, Credentials: true}, "list the names"},
		{httplimit.CORS{Headers: []string{"*"}, Credentials: true}, "list the names"},
		{httplimit.CORS{Methods: []string{"GET, PUT"}}, "want a name"},
		{httplimit.CORS{Headers: []string{"X A"}}, "want a name"},
		{httplimit.CORS{MaxAge: -time.Second}, "whole seconds"},
		{httplimit.CORS{MaxAge: time.Millisecond}, "whole seconds"},
	} {
		err := c.cors.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.cors, err, c.want)
		}
		if err != nil {
			for _, make := range []func(){
				func() { httplimit.Middleware{CORS: &c.cors}.Wrap(pong) },
				func() { httplimit.Middleware{CORS: &c.cors}.Gate() },
			} {
				if message := fmt.Sprint(panics(make)); !strings.Contains(message, c.want) {
					t.Errorf("%+v: it panics with %q", c.cors, message)
				}
			}
		}
	}
}

func panics(f func()) (with any) {
	defer func() { with = recover() }()
	f()
	return nil
}

// answers are Middlewares that answer in every way that there is.
func answers(cors *httplimit.CORS) map[string]httplimit.Middleware {
	limit := stint.MustLimit("api: 1 per 1h")
	full := stint.Decision{Outcome: stint.Limited, Limit: limit, RetryAfter: time.Hour, ResetAfter: time.Hour}
	refused := func(d httplimit.Dialect) httplimit.Middleware {
		return httplimit.Middleware{CORS: cors, Dialect: d, Decide: always(httplimit.Answer{Decision: full, ID: "00", Units: []string{"tokens"}}, nil)}
	}
	own := refused(0)
	own.Refused = func(w http.ResponseWriter, _ *http.Request, a *httplimit.Answer) {
		http.Error(w, "no", http.StatusTooManyRequests)
	}
	canceled := httplimit.Answer{Decision: stint.Decision{Allowed: true, Delay: time.Hour}, Shape: true}
	return map[string]httplimit.Middleware{
		"pass": {CORS: cors, Decide: always(httplimit.Answer{Decision: stint.Decision{Allowed: true, Limit: limit, By: stint.ByLocal}}, nil), Degraded: true},
		"watched": {CORS: cors, Decide: always(httplimit.Answer{Decision: stint.Decision{Allowed: true, Limit: limit},
			OnStatus: func(context.Context, int) {}, OnEnd: func(context.Context, *httplimit.Response) {}}, nil)},
		"unlimited":        {CORS: cors, Decide: always(httplimit.Answer{Unlimited: true}, nil)},
		"429":              refused(0),
		"429 draft-11":     refused(httplimit.Draft11 | httplimit.XRateLimitEpoch),
		"429 openai":       refused(httplimit.OpenAI | httplimit.Anthropic),
		"429 by a handler": own,
		"403":              {CORS: cors, Decide: always(httplimit.Answer{Blocked: true}, nil)},
		"400":              {CORS: cors, Decide: always(httplimit.Answer{}, stint.ErrRequest)},
		"503":              {CORS: cors, Decide: always(httplimit.Answer{}, errors.New("down"))},
		"503 overloaded":   {CORS: cors, Decide: always(httplimit.Answer{}, &httplimit.Overloaded{RetryAfter: time.Second})},
		"undecided":        {CORS: cors, Decide: always(httplimit.Answer{}, errors.New("down")), Undecided: func(*http.Request, error) bool { return true }},
		"canceled":         {CORS: cors, Decide: always(canceled, nil)},
	}
}

// handlers are what Middlewares are put in front of: handlers with ideas of their own about CORS, too.
var handlers = map[string]http.HandlerFunc{
	"plain": pong,
	"adds": func(w http.ResponseWriter, _ *http.Request) { // as a httputil.ReverseProxy does
		w.Header().Add("Access-Control-Allow-Origin", "https://upstream.example")
		w.Header().Add("Access-Control-Allow-Credentials", "true")
		w.Header().Add("Access-Control-Expose-Headers", "X-Own, retry-after")
		w.Header().Add("Vary", "Accept, origin")
		w.Header().Set("X-Own", "1")
		fmt.Fprint(w, "pong")
	},
	"exposes all": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Expose-Headers", "*")
		w.WriteHeader(http.StatusCreated)
	},
	"forgets": func(w http.ResponseWriter, _ *http.Request) {
		clear(w.Header())
		_ = http.NewResponseController(w).Flush()
	},
}

// readableBy reports whether a page of an origin, with or without credentials, may read an answer, as
// browsers decide it, and which of its headers.
func readableBy(h http.Header, origin string, credentials bool) (readable bool, headers func(name string) bool) {
	allowed := h.Values("Access-Control-Allow-Origin")
	ok := len(allowed) == 1 && (allowed[0] == origin || allowed[0] == "*" && !credentials)
	if credentials && !slices.Equal(h.Values("Access-Control-Allow-Credentials"), []string{"true"}) {
		ok = false
	}
	exposed := strings.Split(strings.ToLower(strings.Join(h.Values("Access-Control-Expose-Headers"), ",")), ",")
	return ok, func(name string) bool {
		return slices.ContainsFunc(exposed, func(e string) bool {
			e = strings.TrimSpace(e)
			return e == strings.ToLower(name) || e == "*" && !credentials
		})
	}
}

// wrongCORS is what is wrong with a header in any case; empty: nothing.
func wrongCORS(h http.Header) string {
	allowed := h.Values("Access-Control-Allow-Origin")
	exposed := strings.Split(strings.ToLower(strings.Join(h.Values("Access-Control-Expose-Headers"), ",")), ",")
	for i := range exposed {
		exposed[i] = strings.TrimSpace(exposed[i])
	}
	slices.Sort(exposed)
	varies := strings.Contains(strings.ToLower(strings.Join(h.Values("Vary"), ",")), "origin")
	switch {
	case len(allowed) > 1:
		return "two origins"
	case slices.Contains(allowed, "*") && h.Get("Access-Control-Allow-Credentials") != "":
		return "* with credentials"
	case len(allowed) == 0 && (h.Get("Access-Control-Allow-Credentials") != "" || h.Get("Access-Control-Expose-Headers") != ""):
		return "it allows something to nobody"
	case len(slices.Compact(slices.Clone(exposed))) != len(exposed):
		return "a name is exposed twice"
	case !slices.Equal(allowed, []string{"*"}) && !varies:
		return "no Vary: Origin"
	}
	return ""
}

// policies are policies, and which origins they allow.
var policies = []struct {
	cors     httplimit.CORS
	allows   []string
	refuses  []string
	anything bool // * is allowed
}{
	{cors: httplimit.CORS{}, refuses: []string{"https://a.example", "null"}},
	{cors: httplimit.CORS{Origins: []string{"https://a.example", "http://localhost:3000"}}, allows: []string{"https://a.example", "http://localhost:3000"},
		refuses: []string{"https://b.example", "http://a.example", "https://a.example:8443", "https://a.example.evil", "https://A.example", "http://localhost", "null", "*", "https://a.example, https://a.example"}},
	{cors: httplimit.CORS{Origins: []string{"https://a.example"}, Credentials: true}, allows: []string{"https://a.example"}, refuses: []string{"https://b.example", "null"}},
	{cors: httplimit.CORS{Origins: []string{"https://*.a.example", "null"}, Credentials: true}, allows: []string{"https://x.a.example", "https://x-1_y.a.example", "null"},
		refuses: []string{"https://a.example", "https://.a.example", "https://x.y.a.example", "https://x.a.example.evil", "https://evil/.a.example", "https://evil:1.a.example",
			"https://u@x.a.example", "http://x.a.example", "https://*.a.example", "https://X.a.example", "https://evila.example"}},
	{cors: httplimit.CORS{Origins: []string{"https://*.a.example:8443"}}, allows: []string{"https://x.a.example:8443"}, refuses: []string{"https://x.a.example"}},
	{cors: httplimit.CORS{Origins: []string{"*"}}, allows: []string{"https://a.example", "null"}, anything: true},
}

// about are the headers about limits in h.
func about(h http.Header) (names []string) {
	for name := range h {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-ratelimit") || strings.HasPrefix(lower, "ratelimit") || strings.HasPrefix(lower, "anthropic-") ||
			strings.HasPrefix(lower, "stint-") || strings.HasPrefix(lower, "retry-after") || lower == "x-should-retry" {
			names = append(names, name)
		}
	}
	return names
}

// Whatever answers, the pages that may read it can, with its headers about limits, and others cannot; and so
// do a Gate and a Middleware around one that knows nothing of CORS.
func TestCORS(t *testing.T) {
	for _, p := range policies {
		for kind, m := range answers(&p.cors) {
			inner := m
			inner.CORS = nil
			outside := httplimit.Middleware{CORS: &p.cors, Decide: always(httplimit.Answer{Unlimited: true}, nil)}
			for what, h := range handlers {
				pass := func(r *http.Request) (int, string) { return 200, "pong" }
				for how, behind := range map[string]http.Handler{"middleware": m.Wrap(h), "around": outside.Wrap(inner.Wrap(h)), "gate": framework(pass).behind(m.Gate())} {
					if how == "gate" && what != "plain" {
						continue
					}
					for _, origin := range slices.Concat(p.allows, p.refuses, []string{""}) {
						r := get()
						if origin != "" {
							r.Header.Set("Origin", origin)
						}
						if kind == "canceled" {
							ctx, cancel := context.WithCancel(r.Context())
							cancel()
							r = r.WithContext(ctx)
						}
						w := httptest.NewRecorder()
						behind.ServeHTTP(w, r)
						header := w.Result().Header
						name := fmt.Sprintf("%+v, %s, %s, %s, origin %q: %d %v", p.cors, kind, what, how, origin, w.Code, header)
						if origin == "" {
							continue
						}
						if wrong := wrongCORS(header); wrong != "" {
							t.Fatalf("%s: %s", name, wrong)
						}
						for _, credentials := range []bool{false, true} {
							may := slices.Contains(p.allows, origin) && (!credentials || p.cors.Credentials)
							readable, exposed := readableBy(header, origin, credentials)
							if readable != may {
								t.Fatalf("%s: readable %t with credentials %t", name, readable, credentials)
							}
							for _, n := range about(header) {
								if may && !exposed(n) {
									t.Fatalf("%s: %s cannot be read", name, n)
								}
							}
						}
					}
				}
			}
		}
	}
}

// A cache that kept an answer for nobody's page does not give it to a page, unless all may read it, whatever
// the handler says of that.
func TestCORSVariesWithoutOrigin(t *testing.T) {
	for _, p := range policies {
		for what, handler := range handlers {
			w := httptest.NewRecorder()
			httplimit.Middleware{CORS: &p.cors}.Wrap(handler).ServeHTTP(w, get())
			h := w.Result().Header
			varies := strings.Contains(strings.ToLower(strings.Join(h.Values("Vary"), ",")), "origin")
			if !varies && !p.anything {
				t.Errorf("%+v, %s: Vary %q", p.cors, what, h.Values("Vary"))
			}
			if got := h.Values("Access-Control-Allow-Origin"); len(got) > 0 && !p.anything {
				t.Errorf("%+v, %s: allows %q", p.cors, what, got)
			}
		}
		w := serve(httplimit.Middleware{CORS: &p.cors}, get())
		if got := w.Header().Values("Vary"); slices.Equal(got, []string{"Origin"}) == p.anything {
			t.Errorf("%+v: Vary %q", p.cors, got)
		}
		if got := w.Header().Get("Access-Control-Allow-Origin"); (got == "*") != p.anything || got != "" && got != "*" {
			t.Errorf("%+v: allows %q", p.cors, got)
		}
	}
}

// Pages can read the headers of the formats of refusals and of other answers, where these have them.
func TestCORSExposesFormats(t *testing.T) {
	format := newFormat(t, httplimit.ErrorFormatSpec{Headers: map[string]string{"X-Error-Code": "{outcome}", "x-limit": "{limit}"}})
	for _, p := range policies {
		for kind, m := range answers(&p.cors) {
			m.Refusals, m.Errors = format, format
			for _, origin := range slices.Concat(p.allows, p.refuses) {
				r := get()
				r.Header.Set("Origin", origin)
				if kind == "canceled" {
					ctx, cancel := context.WithCancel(r.Context())
					cancel()
					r = r.WithContext(ctx)
				}
				h := serve(m, r).Result().Header
				readable, exposed := readableBy(h, origin, false)
				for _, name := range []string{"X-Error-Code", "X-Limit"} {
					if want := readable && h[name] != nil; exposed(name) != want {
						t.Errorf("%+v, %s, origin %q: %s exposed %t: %v", p.cors, kind, origin, name, !want, h)
					}
				}
				if wrong := wrongCORS(h); wrong != "" {
					t.Errorf("%+v, %s, origin %q: %s", p.cors, kind, origin, wrong)
				}
			}
		}
	}
}

// A preflight is answered before anything is counted, and does not reach the handler.
func TestPreflight(t *testing.T) {
	preflight := func(origin string) *http.Request {
		r := httptest.NewRequest("OPTIONS", "/", nil)
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", "PUT")
		r.Header.Set("Access-Control-Request-Headers", "content-type,x-user")
		return r
	}
	full := httplimit.CORS{Origins: []string{"https://*.a.example"}, Credentials: true, MaxAge: 10 * time.Minute, Methods: []string{"GET", "PURGE"}, Headers: []string{"X-User", "X-B"}}
	for _, c := range []struct {
		cors   httplimit.CORS
		origin string
		want   string
	}{
		{httplimit.CORS{Origins: []string{"https://a.example"}}, "https://a.example", "https://a.example |  | GET, HEAD, POST, PUT, PATCH, DELETE | content-type,x-user | "},
		{httplimit.CORS{Origins: []string{"*"}}, "https://b.example", "* |  | GET, HEAD, POST, PUT, PATCH, DELETE | content-type,x-user | "},
		{full, "https://x.a.example", "https://x.a.example | true | GET, PURGE | X-User, X-B | 600"},
		{httplimit.CORS{Origins: []string{"null"}, Methods: []string{"PURGE"}, Headers: []string{"X-A"}, MaxAge: time.Second}, "null", "null |  | PURGE | X-A | 1"},
		{full, "https://b.example", " |  |  |  | "},
		{full, "null", " |  |  |  | "},
	} {
		for _, decides := range []bool{false, true} {
			decided := 0
			m := httplimit.Middleware{CORS: &c.cors, Decide: func(*http.Request, time.Duration) (httplimit.Answer, error) {
				decided++
				return httplimit.Answer{Blocked: true}, nil
			}}
			m.CORS.DecidePreflights = decides
			unreachable := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it reaches the handler") })
			gate := framework(func(*http.Request) (int, string) { t.Error("it reaches the handler"); return 200, "" }).behind(m.Gate())
			for how, h := range map[string]http.Handler{"middleware": m.Wrap(unreachable), "gate": gate} {
				w := httptest.NewRecorder()
				decided = 0
				h.ServeHTTP(w, preflight(c.origin))
				var got []string
				for _, name := range []string{"Origin", "Credentials", "Methods", "Headers"} {
					got = append(got, strings.Join(w.Header().Values("Access-Control-Allow-"+name), "; "))
				}
				got = append(got, w.Header().Get("Access-Control-Max-Age"))
				if w.Code != http.StatusNoContent || strings.Join(got, " | ") != c.want || w.Body.Len() > 0 || decided == 1 != decides {
					t.Errorf("%s, %+v, %s: %d %q, %d decided", how, c.cors, c.origin, w.Code, got, decided)
				}
				if vary := w.Header().Values("Vary"); !slices.Contains(vary, "Access-Control-Request-Method") || !slices.Contains(vary, "Access-Control-Request-Headers") {
					t.Errorf("%s: Vary %q", how, vary)
				}
			}
		}
	}
	for what, r := range map[string]*http.Request{"no origin": preflight(""), "no method": preflight("https://a.example"), "another method": preflight("https://a.example")} {
		switch what {
		case "no origin":
			delete(r.Header, "Origin")
		case "no method":
			r.Header.Del("Access-Control-Request-Method")
		default:
			r.Method = "GET"
		}
		if w := serve(httplimit.Middleware{CORS: &full}, r); w.Body.String() != "pong" {
			t.Errorf("%s: it is taken for a preflight", what)
		}
	}
}

// What a decided preflight holds is settled, and its place is free again.
func TestDecidedPreflightEnds(t *testing.T) {
	ended := 0
	m := httplimit.Middleware{CORS: &httplimit.CORS{Origins: []string{"*"}, DecidePreflights: true}, MaxInFlight: 1,
		Decide: always(httplimit.Answer{Unlimited: true, OnEnd: func(_ context.Context, r *httplimit.Response) {
			if ended++; r.Status != http.StatusNoContent {
				t.Errorf("status %d", r.Status)
			}
		}}, nil)}
	h := m.Wrap(pong)
	for range 3 {
		r := httptest.NewRequest("OPTIONS", "/", nil)
		r.Header.Set("Origin", "https://a.example")
		r.Header.Set("Access-Control-Request-Method", "PUT")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if ended != 3 {
		t.Errorf("%d of 3 ended", ended)
	}
}

// With changes only requests whose answers it changes.
func TestCORSWith(t *testing.T) {
	without, with := httptest.NewRequest("GET", "/", nil), httptest.NewRequest("GET", "/", nil)
	with.Header.Set("Origin", "https://a.example")
	var none *httplimit.CORS
	some := &httplimit.CORS{Origins: []string{"*"}}
	if none.With(with) != with || none.With(without) != without || some.With(without) != without {
		t.Error("With has made another request without need")
	}
	if once := some.With(with); once == with || some.With(once) != once {
		t.Error("With has not made one request")
	}
}

// A policy that Check refuses, and that is used nevertheless, never sends * with credentials.
func TestCORSUnchecked(t *testing.T) {
	c := httplimit.CORS{Origins: []string{"*"}, Credentials: true}
	for _, origin := range []string{"", "*", "null", "https://a.example"} {
		h := http.Header{"Access-Control-Allow-Origin": {"*"}}
		httplimit.Internal(friend.Of{}).SetCORS(&c, h, origin, h)
		if len(h["Access-Control-Allow-Origin"]) > 0 {
			t.Errorf("%q: %v", origin, h)
		}
	}
}
