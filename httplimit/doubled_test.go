package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// Where one Middleware wraps another that asks the same, it is told, once for each
// limit.
func TestDoubled(t *testing.T) {
	limiter := new(stint.Limiter)
	key := func(k string) httplimit.Key { return func(*http.Request) string { return k } }
	hour, minute := stint.MustLimit("100 per 1h"), stint.MustLimit("100 per 1m")
	more := stint.MustLimit("200 per 1h") // the same count
	named, err := hour.Named("other")
	if err != nil {
		t.Fatal(err)
	}
	several := always(httplimit.Answer{
		Decision: stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: hour, Key: "a"},
		Each:     []stint.Decision{{Allowed: true, Limit: minute, Key: "a"}, {Allowed: true, Limit: hour, Key: "a"}},
	}, nil)
	by := func(l *stint.Limit, k string) httplimit.Decide { return httplimit.By(limiter, l, key(k)) }
	for _, c := range []struct {
		about        string
		outer, inner httplimit.Decide
		want         []string
	}{
		{"the same", by(hour, "a"), by(hour, "a"), []string{"t1h: a"}},
		{"another amount", by(hour, "a"), by(more, "a"), []string{"t1h: a"}},
		{"another key", by(hour, "a"), by(hour, "b"), nil},
		{"another period", by(hour, "a"), by(minute, "a"), nil},
		{"another name", by(hour, "a"), by(named, "a"), nil},
		{"no key", by(hour, ""), by(hour, ""), nil},
		{"of several", several, by(minute, "a"), []string{"t1m: a"}},
		{"by several", by(minute, "a"), several, []string{"t1m: a"}},
		{"all of several", several, several, []string{"t1m: a", "t1h: a"}},
		{"refused outside", always(httplimit.Answer{Decision: stint.Decision{Limit: hour, Key: "a"}}, nil), by(hour, "a"), nil},
	} {
		var told []string
		tell := func(r *http.Request, l *stint.Limit, k string) { told = append(told, l.ID()+" "+k) }
		between := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
		}
		h := httplimit.Middleware{Decide: c.outer, Doubled: tell}.Wrap(between(httplimit.Middleware{Decide: c.inner}.Wrap(http.HandlerFunc(hello))))
		for range 3 {
			h.ServeHTTP(httptest.NewRecorder(), get())
		}
		if !slices.Equal(told, c.want) {
			t.Errorf("%s: told %q, want %q", c.about, told, c.want)
		}
	}
}

func ExampleMiddleware_doubled() {
	perHour := stint.MustLimit("100 per 1h")
	limited := httplimit.Middleware{Decide: httplimit.By(nil, perHour, httplimit.Clients{}.Key)}
	mux := http.NewServeMux()
	mux.Handle("GET /items", limited.Wrap(http.HandlerFunc(hello))) // here …

	limited.Doubled = func(_ *http.Request, limit *stint.Limit, key string) {
		fmt.Println("counted twice:", limit, "for", key)
	}
	handler := limited.Wrap(mux) // … and here again
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/items", nil))
	// Output:
	// counted twice: 100 per 1h for 192.0.2.1
}
