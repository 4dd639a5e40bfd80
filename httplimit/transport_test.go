package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

// sent records what a Transport lets out.
type sent struct {
	urls []string
	idle int
}

func (s *sent) RoundTrip(r *http.Request) (*http.Response, error) {
	s.urls = append(s.urls, r.URL.String())
	if r.Body != nil {
		r.Body.Close()
	}
	return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
}

func (s *sent) CloseIdleConnections() { s.idle++ }

type closing struct {
	io.Reader
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

func TestTransportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sent
		client := http.Client{Transport: &httplimit.Transport{Limit: stint.MustLimit("2 per 10s"), Base: &out}}
		start := time.Now()
		for _, c := range []struct {
			url string
			at  time.Duration
		}{
			{"https://a.example/1", 0},
			{"https://A.example:443/2", 0}, // the same host
			{"https://a.example:8443/3", 0},
			{"http://a.example:443/4", 0},
			{"https://a.example/5", 5 * time.Second},
			{"https://b.example/6", 5 * time.Second},
		} {
			if _, err := client.Get(c.url); err != nil {
				t.Fatal(err)
			}
			if at := time.Since(start); at != c.at {
				t.Errorf("%s went out at %s, want %s", c.url, at, c.at)
			}
		}
		if len(out.urls) != 6 {
			t.Errorf("sent %q", out.urls)
		}
	})
}

func TestTransportRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sent
		limit := stint.MustLimit("1 per 10s")
		fixed := func(key string) httplimit.Key { return func(*http.Request) string { return key } }
		soon, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		gone, leave := context.WithCancel(context.Background())
		leave()
		bg := context.Background()
		var limiter stint.Limiter
		for _, c := range []struct {
			name    string
			tr      *httplimit.Transport
			ctx     context.Context
			refused bool
			is      error
		}{
			{"first", &httplimit.Transport{Refuse: true}, bg, false, nil},
			{"refused", &httplimit.Transport{Refuse: true}, bg, true, nil},
			{"past the deadline", &httplimit.Transport{}, soon, true, context.DeadlineExceeded},
			{"given up", &httplimit.Transport{}, gone, false, context.Canceled},
			{"no key", &httplimit.Transport{Refuse: true, Key: fixed("")}, bg, false, stint.ErrRequest},
			{"no key needed", &httplimit.Transport{Refuse: true, Key: fixed(""), Anonymous: stint.AnonymousAllow}, bg, false, nil},
			{"no key, shared", &httplimit.Transport{Refuse: true, Key: fixed(""), Anonymous: stint.AnonymousShare}, bg, false, nil},
			{"no key, shared again", &httplimit.Transport{Refuse: true, Key: fixed(""), Anonymous: stint.AnonymousShare}, bg, true, nil},
			{"no such key", &httplimit.Transport{Key: fixed(strings.Repeat("k", stint.MaxKey+1))}, bg, false, stint.ErrRequest},
			{"no such key, refusing", &httplimit.Transport{Refuse: true, Key: fixed(strings.Repeat("k", stint.MaxKey+1))}, bg, false, stint.ErrRequest},
		} {
			c.tr.Limit, c.tr.Limiter, c.tr.Base = limit, &limiter, &out
			before := len(out.urls)
			body := &closing{Reader: strings.NewReader("x")}
			r := httptest.NewRequest("POST", "http://a.example/", body).WithContext(c.ctx)
			resp, err := c.tr.RoundTrip(r)
			var refused *stint.RefusedError
			fails := c.refused || c.is != nil
			if errors.As(err, &refused) != c.refused || c.is != nil && !errors.Is(err, c.is) || (err != nil) != fails || (resp == nil) != fails {
				t.Errorf("%s: got %v, %v", c.name, resp, err)
			}
			if fails == (len(out.urls) > before) {
				t.Errorf("%s: sent %q", c.name, out.urls[before:])
			}
			if body.closed != 1 {
				t.Errorf("%s: body closed %d times", c.name, body.closed)
			}
		}
	})
}

func TestTransportPassesOn(t *testing.T) {
	var out sent
	client := http.Client{Transport: &httplimit.Transport{Limit: stint.MustLimit("1 per 1s"), Base: &out}}
	client.CloseIdleConnections()
	if out.idle != 1 {
		t.Error("idle connections stay open")
	}
	s := httptest.NewServer(http.RedirectHandler("/", http.StatusFound))
	defer s.Close()
	limited := http.Client{Transport: &httplimit.Transport{Limit: stint.MustLimit("3 per 1h"), Refuse: true}}
	_, err := limited.Get(s.URL)
	var refused *stint.RefusedError
	if !errors.As(err, &refused) || refused.RetryAfter <= 0 {
		t.Errorf("each redirect counts, but %v", err)
	}
	if _, err := limited.Transport.RoundTrip(&http.Request{}); err == nil || errors.As(err, &refused) {
		t.Errorf("without a URL: %v", err)
	}
	if !slices.Equal(out.urls, nil) {
		t.Errorf("sent %q", out.urls)
	}
}
