package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

func TestHeaderKey(t *testing.T) {
	r := httptest.NewRequest("GET", "http://api.example/x", nil)
	r.Header.Add("X-API-Key", "first")
	r.Header.Add("Accept-Language", "de")
	r.Header.Add("Accept-Language", "en")
	for name, want := range map[string]string{"x-api-key": "first", "X-Other": "", "host": "api.example", "accept-language": "de, en"} {
		if got := httplimit.Header(name)(r); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// A header in two lines, or under two names that some servers take for one, is no key:
// the request is refused, alone and joined with others, and nobody is charged.
func TestAttackRepeatedHeaderKey(t *testing.T) {
	limit := stint.MustLimit("1 per 1h")
	for name, key := range map[string]httplimit.Key{
		"alone": httplimit.Header("X-Api-Key"), "joined": httplimit.Join(httplimit.Header("X-Api-Key"), httplimit.Clients{}.Key),
	} {
		var store stint.Memory
		limiter := stint.NewLimiter(&store)
		penalty, err := stint.NewPenalty(stint.PenaltySpec{Name: "p", BanAfter: 1, BanFor: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for _, decide := range []httplimit.Decide{
			httplimit.By(limiter, limit, key), httplimit.Shape(limiter, stint.MustLimit("1 per 1h leaky_bucket"), key), httplimit.Watch(nil, limiter, key, penalty, 401),
		} {
			h := httplimit.Middleware{Decide: decide}.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%s: it passed", name) }))
			for _, header := range []http.Header{
				{"X-Api-Key": {"a", "b"}}, {"X-Api-Key": {"a", "a"}}, {"X-Api-Key": {"a"}, "X_api_key": {"b"}}, {"X_api_key": {"b"}}, {"X.api.key": {"b"}},
			} {
				r := httptest.NewRequest("GET", "/", nil)
				r.Header = header
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != 400 || !strings.Contains(w.Body.String(), "sent more than once") {
					t.Errorf("%s, %v: %d %s", name, header, w.Code, w.Body)
				}
			}
		}
		if n := store.Len(); n != 0 {
			t.Errorf("%s: %d keys were counted", name, n)
		}
	}
}

// What a mux matched is seen by handlers registered with it, not around it.
func TestRouteAndPathValue(t *testing.T) {
	var got string
	id := httplimit.PathValue("id")
	see := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = httplimit.Route(r) + " id=" + id(r) })
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", see)
	mux.Handle("/any/{id...}", see)
	mux.Handle("POST example.com/{$}", see)
	for _, c := range []struct{ method, url, want string }{
		{"GET", "/items/7", "GET /items/{id} id=7"},
		{"HEAD", "/items/8", "GET /items/{id} id=8"},
		{"GET", "/items/%00%ff", "GET /items/{id} id=\x00\xff"},
		{"GET", "/any/7/x", "GET /any/{id...} id=7/x"},
		{"DELETE", "/any/7", "DELETE /any/{id...} id=7"},
		{"FLOOD-1", "/any/7", "OTHER /any/{id...} id=7"},
		{"FLOOD-2", "/any/7", "OTHER /any/{id...} id=7"},
		{"POST", "http://example.com/", "POST example.com/{$} id="},
	} {
		got = ""
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(c.method, c.url, nil))
		if got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.method, c.url, got, c.want)
		}
	}
	see(nil, httptest.NewRequest("GET", "/items/7", nil))
	if got != "GET  id=" {
		t.Errorf("outside of a mux: got %q", got)
	}
	if got := httplimit.Route(&http.Request{}); got != "GET " {
		t.Errorf("no method: got %q", got)
	}
}

func fixed(s string) httplimit.Key { return func(*http.Request) string { return s } }

func joined(parts ...string) string {
	var keys []httplimit.Key
	for _, p := range parts {
		keys = append(keys, fixed(p))
	}
	return httplimit.Join(keys...)(nil)
}

func TestJoin(t *testing.T) {
	for _, parts := range [][]string{nil, {""}, {"", ""}} {
		if got := joined(parts...); got != "" {
			t.Errorf("%q: got %q, want nothing", parts, got)
		}
	}
	seen := map[string][]string{}
	for _, parts := range [][]string{
		{"a", "b"}, {"a", "", "b"}, {"ab"}, {"ab", ""}, {"", "ab"}, {"a:b"}, {"1:a1:b"}, {"a", "b", ""}, {"1:a", "b"}, {"\x00", "b"}, {"\xff"}, {":"}, {"0:"},
	} {
		key := joined(parts...)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q are both %q", parts, other, key)
		}
		seen[key] = parts
	}
	// Moving the border between two parts must always show.
	if err := quick.Check(func(a, b, c string) bool {
		same := a == b && b == c
		return same || joined(a, b+c) != joined(a+b, c) || slices.Equal([]string{a, b + c}, []string{a + b, c})
	}, nil); err != nil {
		t.Error(err)
	}
	if got := joined(strings.Repeat("x", 12), ""); got != "12:xxxxxxxxxxxx0:" {
		t.Errorf("got %q: the form must not change, for stores keep it", got)
	}
}

// HTTP/2 leaves spaces around a value: they make no other key.
func TestHeaderKeySpaces(t *testing.T) {
	key := httplimit.Header("x-api-key")
	for _, value := range []string{"k", " k", "k\t", "  k  "} {
		if got := key(&http.Request{Header: http.Header{"X-Api-Key": {value}}}); got != "k" {
			t.Errorf("%q: %q", value, got)
		}
	}
}

// Subject counts by who was verified, whatever the client says of itself; without one, the request says
// nothing to count by.
func TestSubject(t *testing.T) {
	h := httplimit.Middleware{Decide: httplimit.By(nil, stint.MustLimit("1 per 1h"), httplimit.Subject, stint.AnonymousAllow)}.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(subject string) int {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Subject", "ann")
		ctx := stint.WithClient(r.Context(), "192.0.2.1")
		if subject != "" {
			ctx = stint.WithSubject(ctx, subject)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(ctx))
		return w.Code
	}
	for i, c := range []struct {
		subject string
		want    int
	}{{"ann", 200}, {"ann", 429}, {"bob", 200}, {"client=192.0.2.1", 200}, {"bob", 429}, {"", 200}, {"", 200}} {
		if got := ask(c.subject); got != c.want {
			t.Errorf("%d: %q gets %d", i, c.subject, got)
		}
	}
}

// A credential is one key however it is written, and what servers read in different ways is none.
func TestCredentialKey(t *testing.T) {
	const k = "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a" // printf k | sha256sum
	key, named := httplimit.Credential(), httplimit.Credential("x-key")
	for _, test := range []struct {
		header      http.Header
		want, named string
	}{
		{nil, "", ""},
		{http.Header{"Authorization": {"Bearer k"}}, k, ""},
		{http.Header{"Authorization": {"bearer \tk "}}, k, ""},
		{http.Header{"Authorization": {"Bearer k"}, "X-Api-Key": {"k"}}, k, ""},
		{http.Header{"Api-Key": {"k"}, "X-Key": {" k"}}, k, k},
		{http.Header{"Authorization": {`Digest nonce="1"`}}, "", ""},
		{http.Header{"Authorization": {"Bearer k"}, "X-Api-Key": {"l"}}, "400", ""},
		{http.Header{"Authorization": {"Bearer k", "Bearer k"}}, "400", ""},
		{http.Header{"Authorization": {"Bearer k, l"}}, "400", ""},
		{http.Header{"X_key": {"k"}, "X_api_key": {"k"}}, "400", "400"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header = test.header
		for _, pair := range [][2]string{{key(r), test.want}, {named(r), test.named}} {
			got, want := pair[0], pair[1]
			if len(got) > stint.MaxKey {
				got = "400"
			}
			if got != want {
				t.Errorf("%v: %q, want %q", test.header, got, want)
			}
		}
	}
}

func TestCookieKey(t *testing.T) {
	const k = "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
	key := httplimit.Cookie("SESSION")
	for header, want := range map[string]string{
		"": "", "a=b": "", "SESSION=": "", "SESSION=k": k, `a=b; SESSION="k"`: k, "SESSION=%6b": k, "SESSION=k; SESSION=%6B": k,
		"SESSION=k; SESSION=l": "400", "session=k": "400", "SESSION=k; a=b,SESSION=l": "400",
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", header)
		got := key(r)
		if len(got) > stint.MaxKey {
			got = "400"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header["Cookie"] = []string{"SESSION=k", "a=b"}
	if got := key(r); len(got) <= stint.MaxKey {
		t.Errorf("in two lines: %q", got)
	}
}
