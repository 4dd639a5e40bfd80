package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// Requests without a key are refused, share one count or pass, under limits of every kind.
func TestAnonymous(t *testing.T) {
	nobody := func(*http.Request) string { return "" }
	for text, by := range map[string]func(*stint.Limiter, *stint.Limit, httplimit.Key, ...stint.Anonymous) httplimit.Decide{
		"a: 1 per 1h": httplimit.By, "a: 1 in_flight": httplimit.By, "a: 1 per 1h leaky_bucket burst 1": httplimit.Shape,
		"a: 1 per 1h fixed_window hold": httplimit.By,
	} {
		limit := stint.MustLimit(text)
		statuses := func(anonymous ...stint.Anonymous) [2]int {
			var got [2]int
			var h http.Handler
			h = httplimit.Middleware{MaxDelay: -1, Decide: by(nil, limit, nobody, anonymous...)}.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if got[1] == 0 { // the second comes while the first runs
					got[1] = 1
					got[1] = statusOf(h, r)
				}
			}))
			got[0] = statusOf(h, get())
			return got
		}
		for anonymous, want := range map[stint.Anonymous][2]int{
			stint.AnonymousRefuse: {400, 0}, stint.AnonymousShare: {200, 429}, stint.AnonymousAllow: {200, 200},
		} {
			if got := statuses(anonymous); got != want {
				t.Errorf("%s, %s: %v, want %v", text, anonymous, got, want)
			}
		}
		if got := statuses(); got != [2]int{400, 0} {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func statusOf(h http.Handler, r *http.Request) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}
