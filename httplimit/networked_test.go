package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
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
