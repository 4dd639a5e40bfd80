package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// nowhere is a ResponseWriter that costs nothing.
type nowhere struct{ h http.Header }

func (w nowhere) Header() http.Header         { return w.h }
func (w nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (w nowhere) WriteHeader(int)             {}

var paths = []struct {
	name      string
	limit     string
	dialect   httplimit.Dialect
	xff       string
	maxAllocs float64
}{
	{"pass/none", "1000000 per 1s", httplimit.NoHeaders, "", 1},
	{"pass/x-ratelimit", "1000000 per 1s", httplimit.XRateLimit, "", 4},
	{"pass/x-ratelimit/proxied", "1000000 per 1s", httplimit.XRateLimit, "6.6.6.6, 198.51.100.1, 10.0.0.2", 4},
	{"pass/draft-11", "1000000 per 1s", httplimit.Draft11, "", 10},
	{"refuse/x-ratelimit", "1 per 24h", httplimit.XRateLimit, "", 18},
}

func prepare(i int) (http.Handler, nowhere, *http.Request) {
	p := paths[i]
	m := httplimit.Middleware{
		Decide:  httplimit.By(nil, stint.MustLimit(p.limit), httplimit.Clients{Trusted: behindTen}.Key),
		Dialect: p.dialect,
	}
	r := httptest.NewRequest("GET", "/", nil)
	if p.xff != "" {
		r.RemoteAddr = "10.0.0.1:4000"
		r.Header.Set("X-Forwarded-For", p.xff)
	}
	h, w := m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), nowhere{http.Header{}}
	h.ServeHTTP(w, r)
	return h, w, r
}

func BenchmarkMiddleware(b *testing.B) {
	for i, p := range paths {
		b.Run(p.name, func(b *testing.B) {
			h, w, r := prepare(i)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkMaxInFlight is what the cap costs a request that it does not refuse.
func BenchmarkMaxInFlight(b *testing.B) {
	for name, most := range map[string]int{"none": 0, "cap": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			m := httplimit.Middleware{MaxInFlight: most, Decide: func(*http.Request, time.Duration) (httplimit.Answer, error) {
				return httplimit.Answer{Unlimited: true}, nil
			}}
			h := m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			w, r := nowhere{http.Header{}}, httptest.NewRequest("GET", "/", nil)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
