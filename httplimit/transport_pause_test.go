package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/fleet"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
)

// answering is a Base that answers with its header, and counts.
type answering struct {
	status int
	header http.Header
	sent   int
}

func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	a.sent++
	return &http.Response{StatusCode: a.status, Header: a.header, Body: http.NoBody, Request: r}, nil
}

// Whatever a server answers, the next request of its host waits as long as it asks to, and MaxPause at most;
// other hosts do not.
func TestTransportObeysRetryAfter(t *testing.T) {
	const most = time.Minute
	// The clock of synctest starts at this instant.
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return start.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		status      int
		after, date string
		max, wait   time.Duration
	}{
		{429, "7", "", most, 7 * time.Second},
		{503, "7", "", most, 7 * time.Second},
		{200, "7", "", most, 0},
		{301, "7", "", most, 0},
		{502, "7", "", most, 0},
		{429, "", "", most, 0},
		{429, "0", "", most, 0},
		{429, "-7", "", most, 0},
		{429, "1.5", "", most, 0},
		{429, "soon", "", most, 0},
		{429, "60", "", most, most},
		{429, "61", "", most, most},
		{429, "99999999999999999999999", "", most, most},
		{429, "99999999999999999999999", "", 365 * 24 * time.Hour, 365 * 24 * time.Hour},
		{429, at(9 * time.Second), "", most, 9 * time.Second},
		{503, at(9 * time.Hour), "", most, most},
		{429, at(-9 * time.Second), "", most, 0},
		{429, at(9 * time.Hour), at(9*time.Hour - 4*time.Second), most, 4 * time.Second}, // its clock is ahead
		{429, at(9 * time.Second), at(10 * time.Second), most, 0},
		{429, at(9 * time.Second), "today", most, 9 * time.Second},
		{429, "7", "", 0, 0},
		{429, "7", "", -1, 0},
	} {
		for _, refuse := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				out := &answering{c.status, http.Header{"Retry-After": {c.after}, "Date": {c.date}}, 0}
				tr := &httplimit.Transport{Limit: stint.MustLimit("9 per 1s"), MaxPause: c.max, Refuse: refuse, Base: out}
				send := func(url string) error {
					resp, err := tr.RoundTrip(httptest.NewRequest("GET", url, nil))
					if err == nil && (resp.StatusCode != c.status || resp.Header.Get("Retry-After") != c.after) {
						t.Errorf("%+v: the response changed", c)
					}
					return err
				}
				first, other, second := send("http://a.example/"), send("http://b.example/"), send("http://A.example/x")
				took := time.Since(start)
				var refused *stint.RefusedError
				switch {
				case first != nil || other != nil:
					t.Errorf("%+v: %v, %v", c, first, other)
				case !refuse || c.wait == 0:
					if second != nil || took != c.wait || out.sent != 3 {
						t.Errorf("%+v: %v after %s, %d sent", c, second, took, out.sent)
					}
				case !errors.As(second, &refused) || refused.RetryAfter != c.wait || took != 0 || out.sent != 2:
					t.Errorf("%+v: refused with %v after %s, %d sent", c, second, took, out.sent)
				}
			})
		}
	}
}

// Requests without a key, which are allowed, pause nothing. Those that share a key pause it.
func TestTransportPausesKeys(t *testing.T) {
	nobody := func(*http.Request) string { return "" }
	for anonymous, want := range map[stint.Anonymous]time.Duration{stint.AnonymousAllow: 0, stint.AnonymousShare: 14 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			out := &answering{429, http.Header{"Retry-After": {"7"}}, 0}
			tr := &httplimit.Transport{Limit: stint.MustLimit("9 per 1s"), Anonymous: anonymous, MaxPause: time.Minute, Key: nobody, Base: out}
			for range 3 {
				if _, err := tr.RoundTrip(httptest.NewRequest("GET", "http://a.example/", nil)); err != nil {
					t.Error(err)
				}
			}
			if took := time.Since(start); took != want {
				t.Errorf("%d: it took %s", anonymous, took)
			}
		})
	}
}

// late is a Base that takes a second.
type late struct{ http.RoundTripper }

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(time.Second)
	return l.RoundTripper.RoundTrip(r)
}

// A request that waits for what another one holds does not leave before the pause that the other's
// response asks for.
func TestTransportPausesBeforeItLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		out := &answering{429, http.Header{"Retry-After": {"7"}}, 0}
		// The request that waits runs as soon as the hold has ended.
		limiter := &stint.Limiter{ObserveHold: func(context.Context, *stint.HoldCall) { time.Sleep(time.Millisecond) }}
		tr := &httplimit.Transport{Limit: stint.MustLimit("1 in_flight"), Limiter: limiter, MaxPause: time.Minute, Base: late{out}}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if _, err := tr.RoundTrip(httptest.NewRequest("GET", "http://a.example/", nil)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(start).Truncate(time.Microsecond); took != 9*time.Second+time.Millisecond { // waits are rounded up to 1 µs
			t.Errorf("it took %s", took)
		}
	})
}

// Three processes share a Redis. When a server has asked one to wait, all wait.
func TestTransportsObeyTogether(t *testing.T) {
	var asked atomic.Pointer[time.Time] // when it asked to wait
	var early atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now()
		switch {
		case asked.CompareAndSwap(nil, &now):
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case now.Sub(*asked.Load()) < time.Second:
			early.Add(1)
		}
	}))
	defer server.Close()
	redis := redistest.Start(t)
	var clients []*http.Client
	for range 3 {
		store, err := redislimit.Connect(t.Context(), redis.URL()+"?timeout=30s", redislimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		// A busy machine must not have it decide without the store.
		patient := &fleet.Fallback{Store: store, Deadline: 30 * time.Second, Breaker: fleet.Breaker{Failures: -1}}
		t.Cleanup(patient.Close)
		clients = append(clients, &http.Client{Transport: &httplimit.Transport{
			Limit: stint.MustLimit("upstream: 1000 per 1h"), Limiter: stint.NewLimiter(patient), MaxPause: time.Minute}})
	}
	get := func(c *http.Client) int {
		resp, err := c.Get(server.URL)
		if err != nil {
			t.Error(err)
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if status := get(clients[0]); status != http.StatusTooManyRequests {
		t.Fatalf("the first got %d", status)
	}
	var all sync.WaitGroup
	for i := range 9 {
		all.Go(func() {
			if status := get(clients[i%3]); status != http.StatusOK {
				t.Errorf("client %d got %d", i%3, status)
			}
		})
	}
	all.Wait()
	if n := early.Load(); n > 0 {
		t.Errorf("%d requests came too early", n)
	}
}
