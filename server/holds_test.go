package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

const twoInFlight = `rules: [{name: busy, key: '"all"', limits: [2 in_flight]}]`

// heldBy are the units that all requests hold of key "all" under the first rule of s, over store.
func heldBy(t testing.TB, s *server.Server, store stint.Holder) (n int64) {
	t.Helper()
	all, err := store.Held(context.Background(), "all", s.Rules().Rules[0].Limits)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		n += h.Units
	}
	return n
}

// wantHeld waits until requests hold n units.
func wantHeld(t testing.TB, s *server.Server, store stint.Holder, n int64) {
	t.Helper()
	if !await.So(func() bool { return heldBy(t, s, store) == n }) {
		t.Fatalf("%d held, want %d", heldBy(t, s, store), n)
	}
}

// However a request ends, the gateway holds until then and no longer.
func TestGatewayHoldsUntilTheEnd(t *testing.T) {
	end := make(chan bool)
	up := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/quick":
		case "/upgrade":
			echo(w, r)
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
			fallthrough
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-end:
			case <-r.Context().Done():
			}
			if r.URL.Path == "/break" {
				panic(http.ErrAbortHandler)
			}
		}
	}
	var m stint.Memory
	s := newServer(t, twoInFlight, over(&m), routes(config.Route{Path: "/", Upstream: upstream(t, up)}, config.Route{Path: "/gone", Upstream: unreachable(t)}, config.Route{Path: "/h2", Upstream: overH2C(t, up)}))
	g := start(t, s)
	finish := func(net.Conn) { end <- true }
	hangUp := func(c net.Conn) { c.Close() }
	for _, c := range []struct {
		target, protocol string
		headers          []string
		end              func(net.Conn)
	}{
		{"/", "1.1", nil, finish},
		{"/", "1.1", nil, hangUp},
		{"/h2/", "1.1", nil, finish},
		{"/h2/", "1.1", nil, hangUp},
		{"/break", "1.1", nil, finish},
		{"/early", "1.1", nil, finish},
		{"/", "1.0", nil, finish},
		{"/upgrade", "1.1", []string{"Connection: upgrade", "Upgrade: websocket"}, hangUp},
	} {
		var conns []net.Conn
		for n := range int64(2) {
			conn, err := net.Dial("tcp", g.gateway)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "GET %s HTTP/%s\r\nHost: x\r\n%s\r\n\r\n", c.target, c.protocol, strings.Join(c.headers, "\r\n"))
			in := bufio.NewReader(conn)
			for line := ""; !strings.HasPrefix(line, "data: 1") && !strings.HasPrefix(line, "HTTP/1.1 101"); {
				if line, err = in.ReadString('\n'); err != nil {
					t.Fatalf("%s: %v", c.target, err)
				}
			}
			if got := heldBy(t, s, &m); got != n+1 {
				t.Fatalf("%s: %d held by %d requests", c.target, got, n+1)
			}
			conns = append(conns, conn)
		}
		if got := send(t, g.gateway, "GET", "/quick"); got.StatusCode != 429 || got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: a third: %s, Retry-After %q", c.target, got.Status, got.Header.Get("Retry-After"))
		}
		for i, conn := range conns {
			c.end(conn)
			wantHeld(t, s, &m, int64(1-i))
		}
		if got := send(t, g.gateway, "GET", "/quick"); got.StatusCode != 200 {
			t.Errorf("%s: after the end: %s", c.target, got.Status)
		}
	}
	for _, target := range []string{"/gone", "/quick"} {
		for range 5 {
			send(t, g.gateway, "GET", target) // one after another, each has released when it is answered
		}
		if got := heldBy(t, s, &m); got != 0 {
			t.Errorf("%s: %d held", target, got)
		}
	}
}

// unreachable is a server that refuses connections until the end of the test. Its port is taken, so that
// no other test listens there.
func unreachable(t testing.TB) *url.URL {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)}
}

// Requests that the gateway answers itself hold nothing afterwards.
func TestRefusedRequestsHoldNothing(t *testing.T) {
	var m stint.Memory
	s := newServer(t, twoInFlight, over(&m), func(c *server.Config) {
		c.Settings.Instance.Limit = stint.MustLimit("1 per 24h")
	})
	g := start(t, s)
	for i, want := range []int{404, 503, 503, 503, 503} { // no route, then the limit of the instance
		if got := send(t, g.gateway, "GET", "/"); got.StatusCode != want {
			t.Errorf("request %d: %s, want %d", i, got.Status, want)
		}
		if got := heldBy(t, s, &m); got != 0 {
			t.Errorf("request %d: %d held", i, got)
		}
	}
}

// A request that a rule in shadow mode holds for, and that cannot be decided by another or has a
// broken body, holds nothing afterwards: it does not take place.
func TestFailedRequestsHoldNothing(t *testing.T) {
	const watched = "- {name: watched, %s key: '\"all\"', limits: [3 in_flight]}"
	for _, c := range []struct {
		about, held, other string
		body               bool
		want               int
	}{
		{"the store does not answer, and a rule has on_store_error: deny", "mode: shadow,", `{name: other, key: client.ip, limits: [9 per 1h], on_store_error: deny}`, false, 503},
		{"a body that does not come as it says", "", `{name: other, mode: shadow, match: 'has(body.model)', key: client.ip, limits: [9 per 1h]}`, true, 400},
	} {
		store := &failsAbout{key: "127.0.0.1"}
		s := newServer(t, "rules:\n  "+fmt.Sprintf(watched, c.held)+"\n  - "+c.other, over(store), unhurried, everythingTo(upstream(t, who("up"))))
		g := start(t, s)
		const requests = 4
		for range requests {
			headers := []string{"Content-Length: 0"}
			if c.body {
				headers = []string{"Host: x", "Content-Type: application/json", "Transfer-Encoding: chunked\r\n\r\nzz"}
			}
			if got := send(t, g.gateway, "POST", "/", headers...); got.StatusCode != c.want {
				t.Fatalf("%s: %s %s", c.about, got.Status, got.body)
			}
		}
		if !await.So(func() bool {
			return seriesOf(t, g, `stint_holds_ended_total{result="given_back",rule="watched"}`) == fmt.Sprint(requests)
		}) {
			t.Errorf("%s: not all is given back", c.about)
		}
		wantHeld(t, s, store, 0)
	}
}

// unhurried lets a store answer late, as on a busy machine, so that nothing else decides.
func unhurried(c *server.Config) { c.Settings.DecisionTimeout = 20 * time.Second }

// failsAbout is a Memory that cannot decide about one key.
type failsAbout struct {
	stint.Memory
	key string
}

// Take implements stint.Store.
func (f *failsAbout) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if slices.ContainsFunc(r.Asks, func(a stint.Ask) bool { return a.Key == f.key }) {
		return stint.Decision{}, limittest.ErrFault
	}
	return f.Memory.Take(ctx, r, out)
}

// TakeBatch implements stint.BatchTaker.
func (f *failsAbout) TakeBatch(ctx context.Context, rs []stint.Request, answers []stint.Answer) {
	for i := range rs {
		answers[i].Decision, answers[i].Err = f.Take(ctx, &rs[i], answers[i].Each)
	}
}

// Requests that end well leave nothing in the log. If what one did cost cannot be charged, because its
// hold was released meanwhile, the log says by which rule.
func TestUnchargedIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		s := newServer(t, `rules: [{name: budget, key: '"all"', cost: "10", limits: [100 per 24h fixed_window hold]}]`, over(new(stint.Memory)), logTo(&log))
		o := operator{t, s.Admin()}
		h := s.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/release" {
				o.want(200, "POST", "/v1/keys/release", `{"rule":"budget","key":"all","all":true}`)
			}
		}))
		const uncharged = `level=ERROR msg="what a request did cost could not be charged" rule=budget`
		for _, path := range []string{"/", "/release", "/"} {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
			if text := log.taken(); strings.Contains(text, uncharged) != (path == "/release") || strings.Count(text, "level=ERROR") > 1 {
				t.Errorf("%s: logged: %s", path, text)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A request that is refused does not wait until what a rule in shadow mode holds for it is given back.
func TestRefusedDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(slowHolder)
		s := newServer(t, `rules:
  - {name: watched, mode: shadow, key: '"all"', limits: [9 in_flight]}
  - {name: rate, key: '"all"', limits: [1 per 24h fixed_window]}`, over(store))
		h := s.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for _, want := range []int{200, 429, 429} {
			time.Sleep(time.Minute)
			start, w := time.Now(), httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if took := time.Since(start); w.Code != want || want == 429 && took != 10*time.Millisecond {
				t.Errorf("%d after %s, want %d", w.Code, took, want)
			}
		}
		time.Sleep(time.Minute)
		if got := heldBy(t, s, store); got != 0 {
			t.Errorf("%d held", got)
		}
	})
}

// slowHolder is a Memory that takes half a second for calls about holds, and 10 ms for requests that hold
// nothing.
type slowHolder struct{ stint.Memory }

// Take implements stint.Store.
func (s *slowHolder) Take(ctx context.Context, r *stint.Request, out []stint.Decision) (stint.Decision, error) {
	if !r.Asks[0].Limit.IsHeld() {
		time.Sleep(10 * time.Millisecond)
	}
	return s.Memory.Take(ctx, r, out)
}

// Holds implements stint.Holder.
func (s *slowHolder) Holds(ctx context.Context, at time.Time, calls []stint.HoldCall) {
	select {
	case <-time.After(500 * time.Millisecond):
		s.Memory.Holds(ctx, at, calls)
	case <-ctx.Done():
		for i := range calls {
			calls[i].Err = ctx.Err()
		}
	}
}

// A program's handler holds as the gateway does, and a rule in shadow mode holds without
// refusing.
func TestWrapHolds(t *testing.T) {
	for _, mode := range []string{"enforce", "shadow"} {
		var m stint.Memory
		s := newServer(t, strings.Replace(twoInFlight, "name: busy", "name: busy, mode: "+mode, 1), over(&m))
		begun, end := make(chan bool), make(chan bool)
		h := httptest.NewServer(s.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun <- true
			<-end
		})))
		defer h.Close()
		get := func() int {
			resp, err := http.Get(h.URL)
			if err != nil {
				t.Error(err)
				return 0
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		statuses := make(chan int, 3)
		for range 2 {
			go func() { statuses <- get() }()
			<-begun
		}
		wantHeld(t, s, &m, 2)
		if mode == "enforce" {
			if got := get(); got != 429 {
				t.Errorf("a third: %d", got)
			}
		} else {
			go func() { statuses <- get() }()
			<-begun
			end <- true
			if got := <-statuses; got != 200 {
				t.Errorf("a third in shadow mode: %d", got)
			}
		}
		for range 2 {
			end <- true
		}
		if a, b := <-statuses, <-statuses; a != 200 || b != 200 {
			t.Errorf("%d and %d", a, b)
		}
		wantHeld(t, s, &m, 0)
	}
}

// /v1/authorize does not see the end of a request, so it asks whether it would fit and holds
// nothing.
func TestAuthorizeHoldsNothing(t *testing.T) {
	var m stint.Memory
	s := newServer(t, "trusted_proxies: [127.0.0.1]\n"+twoInFlight, over(&m))
	g := start(t, s)
	limit := s.Rules().Rules[0].Limits[0]
	ask := func(want int) {
		t.Helper()
		if got := send(t, g.check, "GET", "/v1/authorize", "X-Original-Uri: /", "X-Original-Method: GET", "X-Original-Host: x", "X-Forwarded-For: 192.0.2.1"); got.StatusCode != want {
			t.Errorf("%s, want %d: %s", got.Status, want, got.body)
		}
	}
	ask(200)
	ask(200)
	ask(200)
	if got := heldBy(t, s, &m); got != 0 {
		t.Errorf("%d held", got)
	}
	l := stint.NewLimiter(&m)
	for range 2 {
		if _, d, err := l.Acquire(context.Background(), "all", limit); !d.Allowed || err != nil {
			t.Fatal(d, err)
		}
	}
	ask(429)
}
