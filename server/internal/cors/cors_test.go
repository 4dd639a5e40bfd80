package cors

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/server/config"
)

// request is one of a page of an origin.
func request(origin, path string) *http.Request {
	r := httptest.NewRequest("GET", path, nil)
	r.Host = "example.com"
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	return r
}

// learning is a Policy that learns, and its two routes.
func learning() (p *Policy, first, second *config.Route) {
	first, second = &config.Route{Path: "/a", Upstream: &url.URL{}}, &config.Route{Path: "/b", Upstream: &url.URL{}}
	p = New(&config.CORS{Upstream: true}, []*config.Route{first, second}, func(host, path string) *config.Route {
		switch {
		case host != "example.com":
			return nil
		case strings.HasPrefix(path, "/a"):
			return first
		}
		return second
	})
	return p, first, second
}

// problem is who may read a refusal by p.
func problem(p *Policy, r *http.Request) http.Header {
	w := httptest.NewRecorder()
	p.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { httplimit.Problem(w, r, 429, "Wait.") })).ServeHTTP(w, r)
	return w.Result().Header
}

// allows is an answer of an upstream.
func allows(origin, credentials string) http.Header {
	h := http.Header{}
	if origin != "" {
		h.Set("Access-Control-Allow-Origin", origin)
	}
	if credentials != "" {
		h.Set("Access-Control-Allow-Credentials", credentials)
	}
	return h
}

// What an upstream last allowed to an origin is repeated for the same route and origin, and nothing else is.
func TestLearns(t *testing.T) {
	const page = "https://a.example"
	longest := "https://" + strings.Repeat("a", longestOrigin-len("https://"))
	for _, c := range []struct {
		what             string
		origin           string
		answers          []http.Header
		want, credential string
	}{
		{"nothing", page, nil, "", ""},
		{"no CORS", page, []http.Header{{}}, "", ""},
		{"the origin", page, []http.Header{allows(page, "")}, page, ""},
		{"with credentials", page, []http.Header{allows(page, "true")}, page, "true"},
		{"no longer with credentials", page, []http.Header{allows(page, "true"), allows(page, "")}, page, ""},
		{"then an error without CORS", page, []http.Header{allows(page, "true"), {}}, page, "true"},
		{"all", page, []http.Header{allows("*", "")}, "*", ""},
		{"all with credentials, which browsers refuse", page, []http.Header{allows("*", "true")}, "*", ""},
		{"the origin before all", page, []http.Header{allows(page, "true"), allows("*", "")}, page, "true"},
		{"another origin", page, []http.Header{allows("https://b.example", "true")}, "", ""},
		{"a list, which browsers refuse", page, []http.Header{allows(page+" https://b.example", "")}, "", ""},
		{"two", page, []http.Header{{"Access-Control-Allow-Origin": {page, page}}}, "", ""},
		{"credentials that are not true", page, []http.Header{allows(page, "True")}, page, ""},
		{"null", "null", []http.Header{allows("null", "")}, "null", ""},
		{"the longest origin", longest, []http.Header{allows(longest, "")}, longest, ""},
		{"a long origin", "https://" + strings.Repeat("a", 300) + ".example", []http.Header{allows("https://"+strings.Repeat("a", 300)+".example", "")}, "", ""},
	} {
		p, first, _ := learning()
		for _, h := range c.answers {
			p.Passed(first, request(c.origin, "/a"), h, http.Header{"Retry-After": {"1"}})
		}
		h := problem(p, request(c.origin, "/a/x"))
		if got, credential := h.Get("Access-Control-Allow-Origin"), h.Get("Access-Control-Allow-Credentials"); got != c.want || credential != c.credential {
			t.Errorf("%s: %q %q, want %q %q", c.what, got, credential, c.want, c.credential)
		}
		for what, r := range map[string]*http.Request{"another route": request(c.origin, "/b"), "no route": request(c.origin, "/a"), "no origin": request("", "/a")} {
			if what == "no route" {
				r.Host = "other.example"
			}
			if got := problem(p, r).Get("Access-Control-Allow-Origin"); got != "" {
				t.Errorf("%s: %s: %q", c.what, what, got)
			}
		}
	}
}

// Whatever clients send, little is remembered, and an origin in use becomes known and stays.
func TestLearnsLittle(t *testing.T) {
	p, first, _ := learning()
	const page, rare = "https://app.example", "https://rare.example"
	pass := func(origin string) { p.Passed(first, request(origin, "/a"), allows(origin, ""), nil) }
	pass(rare)
	pass(rare)
	for i := range 20_000 {
		if pass(fmt.Sprintf("https://%d.example", i)); i%40 == 0 {
			pass(page)
		}
	}
	for i := range 1000 {
		pass(fmt.Sprintf("https://x%d.example", i))
		if got := problem(p, request(page, "/a")).Get("Access-Control-Allow-Origin"); got != page {
			t.Fatalf("after %d more: %q", i, got)
		}
	}
	if got := problem(p, request(rare, "/a")).Get("Access-Control-Allow-Origin"); got != rare {
		t.Errorf("an origin that was allowed twice is displaced by those that were once: %q", got)
	}
	if n := len(p.learned[first].origins); n != maxOrigins {
		t.Errorf("%d origins", n)
	}
}

// What the upstream exposes stays, and the headers about limits are added where a page can read them.
func TestExposes(t *testing.T) {
	const page = "https://a.example"
	for _, c := range []struct {
		what, allow, credentials, expose, want string
		preflight                              bool
	}{
		{"none", page, "", "", "Retry-After, Stint-Decision", false},
		{"none, to all", "*", "", "", "Retry-After, Stint-Decision", false},
		{"some", page, "true", "X-A, retry-after", "X-A, retry-after, Stint-Decision", false},
		{"all", page, "", "*", "*", false},
		{"all with credentials, where * is a name", page, "true", "*", "*, Retry-After, Stint-Decision", false},
		{"not allowed", "", "", "X-A", "X-A", false},
		{"allowed to another", "https://b.example", "", "", "", false},
		{"a preflight", page, "", "", "", true},
	} {
		p, first, _ := learning()
		h := allows(c.allow, c.credentials)
		if c.expose != "" {
			h.Set("Access-Control-Expose-Headers", c.expose)
		}
		r := request(page, "/a")
		if c.preflight {
			r.Method = "OPTIONS"
			r.Header.Set("Access-Control-Request-Method", "PUT")
		}
		p.Passed(first, r, h, http.Header{"Retry-After": {"1"}, "Stint-Decision": {"0"}, "Other": {"x"}})
		if got := h.Get("Access-Control-Expose-Headers"); got != c.want || len(h.Values("Access-Control-Allow-Origin")) > 1 {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// Without settings, nothing is added to a request, and nothing allocated.
func TestNoPolicy(t *testing.T) {
	var p *Policy
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r := request("https://a.example", "/")
	if h := p.Handler(next); fmt.Sprintf("%p", h) != fmt.Sprintf("%p", next) {
		t.Error("Handler wraps")
	}
	if h := p.Refusals(next); fmt.Sprintf("%p", h) != fmt.Sprintf("%p", next) {
		t.Error("Refusals wraps")
	}
	if n := testing.AllocsPerRun(100, func() {
		if p.IsPreflight(r.Method, r.Header) || p.Answers(r) || p.Stated() != nil {
			t.Error("it has a policy")
		}
		p.Passed(nil, r, nil, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
