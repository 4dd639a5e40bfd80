package server_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/redistest"
	"github.com/stintdev/stint/redislimit"
	"github.com/stintdev/stint/server"
)

// fleetOf are gateways to up that share a Redis. They wait for it for as long as a slow machine
// needs: what instances decide without the store is another matter.
func fleetOf(t *testing.T, n int, file string, up http.HandlerFunc) (servers []*server.Server, gateways []string, store *redislimit.Store) {
	redis, u := redistest.Start(t), upstream(t, up)
	for range n {
		var err error
		store, err = redislimit.Connect(t.Context(), redis.URL(), redislimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		s := newServer(t, file, over(store), everythingTo(u), func(c *server.Config) { c.Settings.DecisionTimeout = 20 * time.Second })
		servers, gateways = append(servers, s), append(gateways, start(t, s).gateway)
	}
	return servers, gateways, store
}

// callers sends requests from n goroutines to the gateways in turn until the time is over, and
// counts the statuses.
func callers(t *testing.T, n int, gateways []string, d time.Duration, request func(url string) (*http.Request, error)) map[int]int {
	transport := &http.Transport{MaxIdleConnsPerHost: n}
	defer transport.CloseIdleConnections()
	var mu sync.Mutex
	statuses := map[int]int{}
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for i := range n {
		wg.Go(func() {
			for time.Now().Before(end) {
				r, err := request("http://" + gateways[i%len(gateways)])
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := transport.RoundTrip(r)
				if err != nil {
					continue // the caller has hung up
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				mu.Lock()
				statuses[resp.StatusCode]++
				mu.Unlock()
				if resp.StatusCode == http.StatusTooManyRequests {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	return statuses
}

// Two instances with one Redis never have more requests in flight than the limit, measured at the
// upstream, although callers hang up.
func TestFleetInFlight(t *testing.T) {
	const most = 10
	var running, peak atomic.Int64
	servers, gateways, store := fleetOf(t, 2, `rules: [{name: busy, key: '"all"', limits: [10 in_flight]}]`, func(w http.ResponseWriter, r *http.Request) {
		n := running.Add(1)
		defer running.Add(-1)
		for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
		}
		select {
		case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
		case <-r.Context().Done():
		}
		fmt.Fprint(w, "done")
	})
	statuses := callers(t, 32, gateways, 2*time.Second, func(url string) (*http.Request, error) {
		ctx := context.Background()
		if rand.IntN(10) == 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 5*time.Millisecond)
			time.AfterFunc(time.Second, cancel)
		}
		return http.NewRequestWithContext(ctx, "GET", url, nil)
	})
	if p := peak.Load(); p > most+1 { // a caller that hung up may be gone before the upstream has noticed
		t.Errorf("%d in flight at once", p)
	}
	if statuses[200] == 0 || statuses[429] == 0 || peak.Load() < most {
		t.Errorf("statuses %v, at most %d in flight at once", statuses, peak.Load())
	}
	for code := range statuses {
		if code != 200 && code != 429 {
			t.Errorf("statuses %v", statuses)
		}
	}
	wantHeld(t, servers[0], store, 0)
}

// A budget that two instances share is used up to the limit, and not beyond what requests cost more
// than they held.
func TestFleetBudget(t *testing.T) {
	const budget = 20_000
	var used, excess atomic.Int64
	servers, gateways, store := fleetOf(t, 2, `rules: [{name: tokens, key: '"all"', cost: body.max_tokens, cost_after: response.json.usage.total_tokens, limits: [20000 per 24h fixed_window hold]}]`, func(w http.ResponseWriter, r *http.Request) {
		var estimate int64
		body, _ := io.ReadAll(r.Body)
		if _, err := fmt.Sscanf(string(body), `{"max_tokens": %d}`, &estimate); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		cost := rand.Int64N(2 * estimate)
		used.Add(cost)
		excess.Add(max(0, cost-estimate))
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			fmt.Fprint(w, "data: {\"usage\": null}\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
		fmt.Fprintf(w, "data: {\"usage\": {\"total_tokens\": %d}}\n\ndata: [DONE]\n\n", cost)
	})
	statuses := callers(t, 16, gateways, 2*time.Second, func(url string) (*http.Request, error) {
		return http.NewRequest("POST", url, strings.NewReader(fmt.Sprintf(`{"max_tokens": %d}`, 1+rand.IntN(200))))
	})
	wantHeld(t, servers[0], store, 0)
	if n := used.Load(); n > budget+excess.Load() || n < budget*9/10 {
		t.Errorf("%d used of %d, with an excess of %d", n, budget, excess.Load())
	}
	if statuses[200] == 0 || statuses[429] == 0 || statuses[200]+statuses[429] != sum(statuses) {
		t.Errorf("statuses %v", statuses)
	}
	for _, s := range servers {
		if n := heldBy(t, s, store); n != 0 {
			t.Errorf("%d held", n)
		}
	}
}

func sum(all map[int]int) (n int) {
	for _, m := range all {
		n += m
	}
	return n
}
