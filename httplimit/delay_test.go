package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
)

func refundTo(c chan<- bool) func(context.Context) {
	return func(ctx context.Context) {
		c <- ctx.Err() == nil
	}
}

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx, cancel
}

// arrivals sends requests with the given contexts at once, in order, and returns
// for each its status, Retry-After and when it was answered.
func arrivals(m httplimit.Middleware, contexts ...context.Context) []string {
	start := time.Now()
	got := make([]string, len(contexts))
	var passed sync.Map
	h := m.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { passed.Store(r.URL.Path, true) }))
	var wg sync.WaitGroup
	for i, ctx := range contexts {
		path := fmt.Sprintf("/%d", i)
		wg.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", path, nil).WithContext(ctx))
			got[i] = fmt.Sprint(w.Code)
			if retry := w.Header().Get("Retry-After"); retry != "" {
				got[i] += " retry " + retry
			}
			if _, ok := passed.Load(path); ok != (w.Code == 200) {
				got[i] += " AND CALLED"
			}
			got[i] += " at " + time.Since(start).String()
		})
		synctest.Wait() // one after another, so that the bucket fills in order
	}
	wg.Wait()
	return got
}

func TestShaping(t *testing.T) {
	bg := context.Background()
	five := []context.Context{bg, bg, bg, bg, bg}
	// One each 2 s, and four fit.
	limit := stint.MustLimit("30 per 1m leaky_bucket burst 4")
	for _, c := range []struct {
		name     string
		m        httplimit.Middleware
		contexts func(*testing.T) []context.Context
		want     []string
		left     int64 // units at once when all is over, at an instant of its own
		after    time.Duration
	}{
		{name: "at an even pace, and one too many",
			want: []string{"200 at 0s", "200 at 2s", "200 at 4s", "200 at 6s", "429 retry 2 at 0s"},
			left: 3}, // at 6 s, the last one's unit is still draining
		{name: "two places",
			m:    httplimit.Middleware{MaxDelayed: 2},
			want: []string{"200 at 0s", "200 at 2s", "200 at 4s", "429 retry 6 at 0s", "429 retry 6 at 0s"},
			left: 3},
		{name: "no place",
			m:    httplimit.Middleware{MaxDelayed: -1},
			want: []string{"200 at 0s", "429 retry 2 at 0s", "429 retry 2 at 0s", "429 retry 2 at 0s", "429 retry 2 at 0s"},
			left: 3},
		{name: "no longer than 3 s",
			m:    httplimit.Middleware{MaxDelay: 3 * time.Second},
			want: []string{"200 at 0s", "200 at 2s", "429 retry 1 at 0s", "429 retry 1 at 0s", "429 retry 1 at 0s"},
			left: 3},
		{name: "not at all",
			m:    httplimit.Middleware{MaxDelay: -1},
			want: []string{"200 at 0s", "429 retry 2 at 0s", "429 retry 2 at 0s", "429 retry 2 at 0s", "429 retry 2 at 0s"},
			left: 3},
		{name: "the third leaves after a second: the one behind it takes its turn",
			contexts: func(t *testing.T) []context.Context {
				ctx, cancel := contextWithCancel(t)
				time.AfterFunc(time.Second, cancel)
				return []context.Context{bg, bg, ctx, bg}
			},
			want: []string{"200 at 0s", "200 at 2s", "503 retry 1 at 1s", "200 at 4s"},
			left: 2}, // the bucket still counts the turn that is left over
		{name: "a deadline that cannot be met",
			contexts: func(t *testing.T) []context.Context {
				ctx, cancel := context.WithTimeout(bg, 3*time.Second)
				t.Cleanup(cancel)
				return []context.Context{bg, ctx, ctx}
			},
			want: []string{"200 at 0s", "200 at 2s", "429 retry 1 at 0s"},
			left: 3},
		{name: "gone before it began",
			contexts: func(t *testing.T) []context.Context {
				ctx, cancel := contextWithCancel(t)
				cancel()
				return []context.Context{bg, ctx}
			},
			want: []string{"200 at 0s", "503 retry 1 at 0s"},
			left: 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var limiter stint.Limiter
				c.m.Decide = httplimit.Shape(&limiter, limit, everyone)
				contexts := five
				if c.contexts != nil {
					contexts = c.contexts(t)
				}
				if got := arrivals(c.m, contexts...); !slices.Equal(got, c.want) {
					t.Errorf("got  %q\nwant %q", got, c.want)
				}
				d, err := limiter.Peek(bg, "everyone", limit)
				if err != nil || d.Remaining != c.left {
					t.Errorf("%d left, want %d (%v)", d.Remaining, c.left, err)
				}
			})
		})
	}
}

// Without Shape a leaky bucket only counts.
func TestPolicing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := httplimit.Middleware{Decide: httplimit.By(nil, stint.MustLimit("30 per 1m leaky_bucket burst 2"), everyone)}
		bg := context.Background()
		if got := arrivals(m, bg, bg, bg); !slices.Equal(got, []string{"200 at 0s", "200 at 0s", "429 retry 2 at 0s"}) {
			t.Errorf("got %q", got)
		}
	})
}

// A place is free again however its request left it.
func TestPlacesAreFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delay := time.Second
		back := make(chan bool, 10)
		m := httplimit.Middleware{MaxDelayed: 1, Decide: func(*http.Request, time.Duration) (httplimit.Answer, error) {
			a := httplimit.Answer{Shape: true, Refund: refundTo(back)}
			a.Allowed, a.Outcome, a.Delay = true, stint.Allowed, delay
			return a, nil
		}}
		h := m.Wrap(pong)
		status := func(ctx context.Context) int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, get().WithContext(ctx))
			return w.Code
		}
		bg := context.Background()
		cancelled, cancel := context.WithCancel(bg)
		time.AfterFunc(500*time.Millisecond, cancel)
		if got := status(cancelled); got != 503 {
			t.Errorf("cancelled: %d", got)
		}
		if alive := <-back; !alive {
			t.Error("refunded with a context that is over")
		}
		delay = time.Hour
		if got := status(bg); got != 429 {
			t.Errorf("too long: %d", got)
		}
		<-back
		delay = time.Second
		held := make(chan int)
		go func() { held <- status(bg) }()
		synctest.Wait()
		for range 3 {
			if got := status(bg); got != 429 {
				t.Errorf("no room: %d", got)
			}
			<-back
		}
		if got := <-held; got != 200 {
			t.Errorf("held: %d", got)
		}
		for range 3 {
			if got := status(bg); got != 200 {
				t.Errorf("then: %d", got)
			}
		}
		if len(back) != 0 {
			t.Error("refunded what was used")
		}
	})
}

// A refusal for want of a place names the limit that asked for the delay, which
// need not be the strictest.
func TestRefusedHoldNamesItsLimit(t *testing.T) {
	tight := stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: named("2 per 1m", "tight"), Remaining: 0, ResetAfter: 40 * time.Second}
	even := stint.Decision{Allowed: true, Outcome: stint.Allowed, Limit: named("30 per 1m leaky_bucket", "even"), Remaining: 25, ResetAfter: 30 * time.Second, Delay: 20 * time.Second}
	a := httplimit.Answer{Shape: true, Each: []stint.Decision{tight, even}}
	a.Decision = stint.Strictest(a.Each)
	w := serve(httplimit.Middleware{Decide: always(a, nil), Dialect: httplimit.XRateLimit | httplimit.Draft11}, get())
	const want = `Limit=30 Remaining=25 Reset=30 Policy="tight";q=2;w=60, "even";q=30;w=60 State="tight";r=0;t=10, "even";r=25;t=10 Retry-After=10`
	if got := shown(w.Header()); w.Code != 429 || got != want {
		t.Errorf("%d\ngot  %s\nwant %s", w.Code, got, want)
	}
}

// Requests whose clients leave give their turns to the next: it waits for the first of them, and the
// pace is kept.
func TestTurnsOfThoseThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var passed []time.Duration
		start := time.Now()
		h := httplimit.Middleware{Decide: httplimit.Shape(nil, stint.MustLimit("10 per 1s leaky_bucket burst 100"), everyone)}.
			Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				passed = append(passed, time.Since(start))
			}))
		var wg sync.WaitGroup
		come := func(ctx context.Context) {
			wg.Go(func() { h.ServeHTTP(httptest.NewRecorder(), get().WithContext(ctx)) })
			synctest.Wait()
		}
		gone, leave := contextWithCancel(t)
		come(t.Context())
		for range 60 {
			come(gone)
		}
		time.Sleep(150 * time.Millisecond)
		leave()
		synctest.Wait()
		come(t.Context())
		come(t.Context())
		wg.Wait()
		const pace = 100 * time.Millisecond
		if want := []time.Duration{0, pace, 2 * pace, 3 * pace}; !slices.Equal(passed, want) { // one of the 60 was in time
			t.Errorf("passed at %v, want %v", passed, want)
		}
	})
}
