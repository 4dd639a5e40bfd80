package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/server"
)

// Workers that ask again and again while all places are taken are never banned, and the place that
// becomes free is theirs at once.
func TestAttackPollingWorkersAreNotBanned(t *testing.T) {
	eachStore(t, func(t *testing.T, store holdingStore) {
		end := make(chan bool)
		s := newServer(t, `rules:
  - {name: busy, key: '"all"', penalty: {ban_after: 3, warn_after: 1, ban_for: 1h}, limits: [1 in_flight, 1000 per 1h fixed_window, 500 per 2h fixed_window hold]}
  - {name: other, key: '"all"', penalty: {ban_after: 3, warn_after: 1, ban_for: 1h}, limits: [1000 per 1h fixed_window]}`,
			over(store), everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
				w.(http.Flusher).Flush()
				select {
				case <-end:
				case <-r.Context().Done():
				}
			})))
		g := start(t, s)
		done := make(chan int)
		go func() {
			resp, err := http.Get("http://" + g.gateway)
			if err != nil {
				done <- 0
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			done <- resp.StatusCode
		}()
		wantHeld(t, s, store, 2) // one under each
		checks := "[" + strings.Repeat(`{"hold":"60s"},`, 20) + `{"hold":"60s"}]`
		for range 20 {
			if got := send(t, g.gateway, "GET", "/"); got.StatusCode != 429 || !strings.Contains(got.body, "limited") || strings.Contains(got.body, "violations") {
				t.Fatalf("%s %s", got.Status, got.body)
			}
			if w := callCheck(s, "/v1/check", checks); strings.Contains(w.Body.String(), "violations") || strings.Contains(w.Body.String(), "banned") || strings.Count(w.Body.String(), `"busy":true`) < 21 {
				t.Fatalf("%s", w.Body)
			}
		}
		end <- true
		if got := <-done; got != 200 {
			t.Errorf("the first: %d", got)
		}
		wantHeld(t, s, store, 0)
		go func() { end <- true }()
		if got := send(t, g.gateway, "GET", "/"); got.StatusCode != 200 {
			t.Errorf("%s %s", got.Status, got.body)
		}
	})
}

// A stop settles what requests hold that it cuts off, also over upgraded connections.
func TestAttackStopSettles(t *testing.T) {
	eachStore(t, func(t *testing.T, store holdingStore) {
		s := newServer(t, `rules: [{name: busy, key: '"all"', cost: "10", limits: [1000 per 24h fixed_window hold]}]`, over(store),
			func(c *server.Config) { c.Settings.StopTimeout = 100 * time.Millisecond },
			everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Upgrade") == "" {
					w.Header().Set("Content-Type", "text/event-stream")
					w.(http.Flusher).Flush()
					<-r.Context().Done()
					return
				}
				echo(w, r)
			})))
		g := start(t, s)
		for i := range 20 {
			conn, err := net.Dial("tcp", g.gateway)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			upgrade := ""
			if i%2 == 0 {
				upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n"
			}
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n", upgrade)
			if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		wantHeld(t, s, store, 200)
		if err := g.stop(); err != nil {
			t.Fatal(err)
		}
		if n := heldBy(t, s, store); n != 0 {
			t.Errorf("%d held after the stop", n)
		}
		if got := left(t, s, store); got != 800 {
			t.Errorf("%d left, want 800", got)
		}
	})
}

// unsettling is a Store that fails the first settlements.
type unsettling struct {
	stint.Memory
	failures atomic.Int64
}

func (u *unsettling) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	if u.failures.Add(-1) >= 0 {
		for i := range calls {
			calls[i].Err = errors.New("away")
		}
		return
	}
	u.Memory.Holds(ctx, at, calls)
}

// A stop waits for settlements that the store has not answered yet.
func TestAttackStopWaitsForSettlements(t *testing.T) {
	var store unsettling
	store.failures.Store(3)
	s := newServer(t, `rules: [{name: r, key: '"all"', cost: "10", limits: [1000 per 24h fixed_window hold]}]`, over(&store),
		everythingTo(upstream(t, func(http.ResponseWriter, *http.Request) {})))
	g := start(t, s)
	send(t, g.gateway, "GET", "/")
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if held, free := heldBy(t, s, &store), left(t, s, &store); held != 0 || free != 990 {
		t.Errorf("%d held and %d left after the stop", held, free)
	}
}
