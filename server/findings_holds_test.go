package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/rules"
)

// A rule whose costs no response has is found after 20 responses, once; errors are no responses of that
// kind, and one response with the cost is enough.
func TestNoResponseHasTheCost(t *testing.T) {
	const file = `rules: [{name: export, key: '"all"', cost_after: response.json.usage.rows, limits: [100000 per 1h fixed_window hold]}]`
	found := func(s *server.Server) (n int) {
		for _, f := range s.Findings() {
			if f.Code == rules.CodeNoCost {
				n++
			}
		}
		return n
	}
	for name, c := range map[string]struct {
		bodies []string // of responses; the last repeats
		status int
		want   []int // findings after 19, 20 and 60 responses
	}{
		"never":  {[]string{`{"rows": 3}`}, 200, []int{0, 1, 1}},
		"once":   {[]string{`{"usage": {"rows": 3}}`, `{"rows": 3}`}, 200, []int{0, 0, 0}},
		"errors": {[]string{`{"error": "down"}`}, 502, []int{0, 0, 0}},
		"none":   {[]string{""}, 0, []int{0, 0, 0}}, // the upstream hangs up
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			s := newServer(t, file, everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.bodies[min(n, len(c.bodies)-1)])
			})))
			gateway, got := s.Gateway(), []int(nil)
			for n = range 60 {
				gateway.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
				if n == 18 || n == 19 || n == 59 {
					got = append(got, found(s))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v findings after 19, 20 and 60 responses, want %v", got, c.want)
			}
		})
	}
}

// A request that holds nothing, because its end is not seen, is found once for a set of rules; but not in
// a simulation, nor if its rule is in shadow mode or it is malformed.
func TestUnheldIsFound(t *testing.T) {
	s := newServer(t, `rules: [{name: busy, match: operation != "try", key: attrs.user, limits: [5 in_flight]}, {name: tried, mode: shadow, key: attrs.user, limits: [5 in_flight]}]`)
	for i, c := range []struct {
		body string
		want int
	}{
		{`{"operation":"try","attrs":{"user":"ann"}}`, 0},
		{`{"operation":"ask","attrs":{"user":""}}`, 0},
		{`{"operation":"ask","hold":"60s","attrs":{"user":"ann"}}`, 0},
		{`{"operation":"ask","attrs":{"user":"ann"}}`, 1},
		{`{"operation":"ask","attrs":{"user":"ann"}}`, 1},
	} {
		if err := s.Simulate(t.Context(), strings.NewReader(`{"t_us":1770000000000000,"operation":"ask","attrs":{"user":"ann"}}`), io.Discard); err != nil {
			t.Fatal(err)
		}
		callCheck(s, "/v1/check", c.body)
		n := 0
		for _, f := range s.Findings() {
			if f.Code == rules.CodeNoEnd {
				n++
			}
		}
		if n != c.want {
			t.Errorf("step %d: %d findings, want %d", i, n, c.want)
		}
	}
}
