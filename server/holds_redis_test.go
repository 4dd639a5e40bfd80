package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
)

// twoGateways are two instances of one file over one Redis, which it also returns a Store of. They
// wait for Redis however slow the machine is, so that every decision is the store's.
func twoGateways(t testing.TB, redis *redistest.Server, file string, up *url.URL, change func(*server.Config)) (urls [2]string, all [2]*server.Server, store *redislimit.Store) {
	for i := range all {
		store = openRedis(t, redis.URL())
		all[i] = newServer(t, file, over(store), everythingTo(up), func(c *server.Config) { c.Settings.DecisionTimeout = 20 * time.Second }, change)
		urls[i] = "http://" + start(t, all[i]).gateway
	}
	return urls, all, store
}

// manyCallers is a client whose callers each keep their connection.
func manyCallers(t testing.TB, n int) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: n}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// crowd is how many requests run at an upstream.
type crowd struct {
	mu             sync.Mutex
	running, most  int
	changed, since time.Time
	area           float64 // of running over the time from since to changed, in seconds
}

func (c *crowd) add(n int) (running int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.area += float64(c.running) * now.Sub(c.changed).Seconds()
	c.running, c.changed = c.running+n, now
	c.most = max(c.most, c.running)
	return c.running
}

// begin forgets what was until now.
func (c *crowd) begin() {
	c.add(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.area, c.since = 0, c.changed
}

// average is how many ran since begin.
func (c *crowd) average() float64 {
	c.add(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.area / c.changed.Sub(c.since).Seconds()
}

// 256 callers of two instances want 100 places, and work for random times: the upstream sees 100 at
// once and never 101, and hardly fewer while so many wait.
func TestInFlightOfTwoInstances(t *testing.T) {
	t.Parallel()
	const places, callers = 100, 256
	last, longest := 30*time.Second, 2*time.Second
	if testing.Short() {
		last, longest = time.Second, 200*time.Millisecond
	}
	var at crowd
	var done atomic.Bool
	full := make(chan bool)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch n := at.add(1); {
		case n == places:
			select {
			case <-full:
			default:
				at.begin()
				close(full)
			}
		case n > places:
			t.Errorf("%d at once", n)
		}
		select { // the first of all wait until every place is taken
		case <-full:
		case <-r.Context().Done():
		}
		time.Sleep(rand.N(longest))
		at.add(-1) // before the end of the response, with which the place is given back
	})
	urls, servers, store := twoGateways(t, redistest.Start(t), fmt.Sprintf(`rules: [{name: busy, key: '"all"', limits: [%d in_flight]}]`, places), up, func(*server.Config) {})
	client := manyCallers(t, callers)
	var served, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for !done.Load() {
				resp, err := client.Get(urls[i%2])
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				switch resp.StatusCode {
				case http.StatusOK:
					served.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
					time.Sleep(rand.N(longest / 10)) // sooner than they are told to
				default:
					t.Error(resp.Status)
					return
				}
			}
		})
	}
	select {
	case <-full:
		time.Sleep(last)
	case <-time.After(time.Minute):
		t.Errorf("only %d run", at.add(0))
	}
	average := at.average()
	done.Store(true)
	wg.Wait()
	wantHeld(t, servers[0], store, 0)
	t.Logf("%d at most and %.1f on average during %s; %d served, %d refused", at.most, average, last, served.Load(), refused.Load())
	if at.most != places || refused.Load() == 0 {
		t.Errorf("%d at most, want %d; %d refused", at.most, places, refused.Load())
	}
	if !testing.Short() && average <= places/2 { // about 99 on a machine that is not busy
		t.Errorf("%.1f on average: places that are given back are not taken again", average)
	}
}

// tokensOf is the traffic of TestBudgetOfTwoInstances in one window.
type tokensOf struct {
	used, excess, running atomic.Int64
	requests              atomic.Int64
}

// 64 callers of two instances stream, and estimate wildly. In each window they use at most the
// budget and what single requests used above their estimates, and at least 90 % of it. Some streams
// begin in one window and end in the next, where they are charged.
func TestBudgetOfTwoInstances(t *testing.T) {
	t.Parallel()
	const budget, callers, across, largest, windows = 100_000, 64, 16, 4000, 3
	crossing := make(chan chan bool, 1) // has a channel for the requests that wait for the next window
	crossing <- make(chan bool)
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct{ True, Across int64 }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for part := range int64(4) {
			fmt.Fprintf(w, "data: {\"choices\":[{}],\"usage\":{\"total_tokens\":%d}}\n\n", body.True*(part+1)/4)
			w.(http.Flusher).Flush()
			if body.Across > 0 && part == 1 {
				c := <-crossing
				crossing <- c
				<-c
			}
			time.Sleep(rand.N(2 * time.Millisecond))
		}
	})
	redis, clock := redistest.StartWithClock(t)
	urls, servers, store := twoGateways(t, redis, `rules: [{name: chat, key: '"all"', unit: tokens, cost: body.max_tokens,
  cost_after: response.json.usage.total_tokens, limits: [100000 per 1m fixed_window hold 10m]}]`, up, func(c *server.Config) {
		c.Settings.RememberedDenials = 0 // they last by the machine's clock, which does not jump
	})
	client := manyCallers(t, callers)
	limit := servers[0].Rules().Rules[0].Limits[0]
	// ask sends a request. begun is called when it is allowed.
	ask := func(i int, estimate, cost, across int64, begun func()) (status int) {
		body := fmt.Sprintf(`{"max_tokens":%d,"true":%d,"across":%d}`, estimate, cost, across)
		resp, err := client.Post(urls[i%2], "application/json", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			begun()
		}
		if all, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode == http.StatusOK && !bytes.Contains(all, fmt.Appendf(nil, ":%d}", cost)) {
			t.Errorf("%s, %v", all, err)
		}
		return resp.StatusCode
	}
	draw := func() (estimate, cost int64) {
		estimate = 1 + rand.Int64N(largest)
		return estimate, []int64{0, 1, estimate / 3, estimate, estimate + rand.Int64N(1000), 2 * estimate}[rand.IntN(6)]
	}
	nextWindow := func() {
		now := redis.Now(t)
		_, end := limit.Window(now)
		clock.Jump(t, end.Sub(now)+time.Second)
	}
	nextWindow()
	var leftOver sync.WaitGroup // requests of the window before
	window := new(tokensOf)
	for n := range windows {
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for refused := 0; refused < 20; {
					estimate, cost := draw()
					window.running.Add(1)
					status := ask(i, estimate, cost, 0, func() {})
					running := window.running.Add(-1)
					switch {
					case status == http.StatusOK:
						window.used.Add(cost)
						window.excess.Add(max(0, cost-estimate))
						window.requests.Add(1)
						refused = 0
					case status != http.StatusTooManyRequests:
						t.Errorf("status %d", status)
						return
					case running == 0 || window.used.Load() > budget*9/10:
						refused++
					default: // what others hold may be free soon
						time.Sleep(rand.N(5 * time.Millisecond))
					}
				}
			})
		}
		wg.Wait()
		leftOver.Wait()
		wantHeld(t, servers[0], store, 0)
		used, most := window.used.Load(), budget+window.excess.Load()
		t.Logf("window %d: %d used by %d requests, %d above estimates", n, used, window.requests.Load(), window.excess.Load())
		if used > most || used < budget*9/10 {
			t.Errorf("window %d: %d used, want from %d to %d", n, used, budget*9/10, most)
		}
		d, err := stint.NewLimiter(store).Peek(t.Context(), "all", limit)
		if err != nil || d.By != stint.ByStore || d.Remaining != max(0, budget-used) {
			t.Errorf("window %d: %+v, %v, and %d were used", n, d, err, used)
		}
		nextWindow()
		if n == windows-1 {
			break
		}
		window = new(tokensOf)
		waits := make(chan bool)
		<-crossing
		crossing <- waits
		var begun sync.WaitGroup
		begun.Add(across)
		for i := range across {
			leftOver.Go(func() {
				estimate, cost := draw()
				if status := ask(i, estimate, cost, 1, begun.Done); status != http.StatusOK {
					t.Errorf("status %d", status)
					begun.Done()
				}
				window.used.Add(cost)
				window.excess.Add(max(0, cost-estimate))
			})
		}
		begun.Wait()
		nextWindow()
		time.AfterFunc(50*time.Millisecond, func() { close(waits) })
	}
}

// Requests per second stay a rate beside a limit of requests in flight: 1,000 requests of 10 s start
// in 100 s. Where there are fewer places than the rate would fill, the places decide, and what they
// refuse does not count as a start.
func TestRateBesideInFlight(t *testing.T) {
	const work, requests = 10 * time.Second, 1000
	for _, c := range []struct {
		places, most int
		last         time.Duration // when the last of them starts
	}{
		{200, 109, 99 * time.Second}, // 10 at once and then 10 a second, until those of the start end
		{50, 50, 194 * time.Second},  // 50 in each 10 s, 10 of them at once and then 10 a second
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, fmt.Sprintf(`rules: [{name: both, key: '"all"', limits: [10 per 1s, %d in_flight]}]`, c.places), over(new(stint.Memory)))
			var at crowd
			var started atomic.Int64
			var last time.Duration
			began := time.Now()
			h := s.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				at.add(1)
				if started.Add(1) == requests {
					last = time.Since(began)
				}
				time.Sleep(work)
				at.add(-1)
			}))
			var wg sync.WaitGroup
			for started.Load() < requests { // 50 a second ask
				wg.Go(func() { through(h, "GET", "/") })
				time.Sleep(20 * time.Millisecond)
			}
			wg.Wait()
			if last < c.last || last > c.last+time.Second {
				t.Errorf("%d places: the last of %d requests starts after %s, want %s", c.places, requests, last, c.last)
			}
			if at.most > c.most+1 || at.most < c.most { // one may start in the instant in which another ends
				t.Errorf("%d places: %d at once, want %d", c.places, at.most, c.most)
			}
			s.Close()
		})
	}
}
