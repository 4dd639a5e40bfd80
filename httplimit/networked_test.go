package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/limittest"
)

// away is a Store over a network that is down.
type away struct{ fallback stint.Store }

func (away) Take(context.Context, *stint.Request, []stint.Decision) (stint.Decision, error) {
	return stint.Decision{}, errors.New("down")
}

func (a away) WithFallback() stint.Store { return a.fallback }

// All that asks a Limiter here asks it through its fallback.
func TestNetworked(t *testing.T) {
	l := stint.NewLimiter(away{new(stint.Memory)})
	limit := stint.MustLimit("1 per 1h")
	for i, want := range []int{200, 429} {
		if w := serve(httplimit.Middleware{Decide: httplimit.By(l, limit, everyone)}, get()); w.Code != want {
			t.Errorf("By, %d: %d, want %d", i, w.Code, want)
		}
	}
	penalty, err := stint.NewPenalty(stint.PenaltySpec{BanAfter: 1, BanFor: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	watched := httplimit.Middleware{Decide: httplimit.Watch(nil, l, everyone, penalty, 401)}.Wrap(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }))
	for i, want := range []int{401, 429} {
		w := httptest.NewRecorder()
		if watched.ServeHTTP(w, get()); w.Code != want {
			t.Errorf("Watch, %d: %d, want %d", i, w.Code, want)
		}
	}
	server := httptest.NewServer(pong)
	defer server.Close()
	client := http.Client{Transport: &httplimit.Transport{Limit: limit, Limiter: l, Refuse: true}}
	for i := range 2 {
		resp, err := client.Get(server.URL)
		var refused *stint.RefusedError
		if i == 0 && err != nil || i == 1 && !errors.As(err, &refused) {
			t.Errorf("Transport, %d: %v", i, err)
		}
		if err == nil {
			resp.Body.Close()
		}
	}
}

// What counts in a store that others may use says once if its limit has no name.
func TestUnnamedLimits(t *testing.T) {
	named, unnamed := stint.MustLimit("api: 9 per 1m"), stint.MustLimit("9 per 1m")
	remote := func() *stint.Limiter { return stint.NewLimiter(&limittest.Faulty{Store: new(stint.Memory)}) }
	for name, c := range map[string]struct {
		limiter *stint.Limiter
		limit   *stint.Limit
		warns   bool
	}{
		"no name":              {remote(), unnamed, true},
		"the default":          {remote(), nil, true},
		"named":                {remote(), named, false},
		"in memory of its own": {nil, unnamed, false},
		"in a Memory":          {stint.NewLimiter(new(stint.Memory)), unnamed, false},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			before := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			t.Cleanup(func() { slog.SetDefault(before) })
			check := func(what string, use func()) {
				t.Helper()
				log.Reset()
				use()
				if n := strings.Count(log.String(), "without a name"); (n == 1) != c.warns || n > 1 {
					t.Errorf("%s: the log: %q", what, &log)
				}
			}
			check("By", func() {
				m := httplimit.Middleware{Decide: httplimit.By(c.limiter, c.limit, everyone)}
				serve(m, get())
				serve(m, get())
			})
			check("Shape", func() { httplimit.Shape(c.limiter, c.limit, everyone) })
			if c.limit == nil {
				return
			}
			check("Transport", func() {
				t := httplimit.Transport{Limiter: c.limiter, Limit: c.limit, Base: dead{}}
				_, _ = t.RoundTrip(httptest.NewRequest("GET", "http://example.com/", nil))
				_, _ = t.RoundTrip(httptest.NewRequest("GET", "http://example.com/", nil))
			})
		})
	}
}

type dead struct{}

func (dead) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("nowhere") }
