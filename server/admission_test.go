package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stintdev/stint"
	"github.com/stintdev/stint/httplimit"
	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/limittest"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

func bounded(i config.Instance) func(*server.Config) {
	return func(c *server.Config) { c.Settings.Instance = i }
}

// gate is an upstream whose requests come in and wait.
type gate struct{ came, goOn chan bool }

func newGate() *gate { return &gate{make(chan bool, 100), make(chan bool)} }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.came <- true
	select {
	case <-g.goOn:
	case <-r.Context().Done():
	}
}

const noRoom = "503 Service Unavailable: The server is overloaded and accepts no more requests right now. overloaded"

// With as many requests under way as a listener has room for, one more is refused
// there at once: it asks no store and its body is not waited for. The other listener, what
// tells how the instance is, and the admin API answer all the same.
func TestInFlight(t *testing.T) {
	wait := newGate()
	store := &limittest.Faulty{Store: new(stint.Memory)}
	s := newServer(t, generous+"\ntrusted_proxies: [127.0.0.1]", over(store), everythingTo(upstream(t, wait.ServeHTTP)), bounded(config.Instance{InFlight: 2}))
	g := start(t, s)
	for range 2 {
		c := dial(t, g.gateway)
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		<-wait.came
	}
	if got := send(t, g.check, "POST", "/v1/check", "Host: x", "Content-Type: application/json", "Content-Length: 2\r\n\r\n{}"); got.StatusCode != 200 {
		t.Errorf("a check beside a full gateway: %s %s", got.Status, got.body)
	}
	for range 2 {
		c := dial(t, g.check)
		defer c.Close()
		fmt.Fprint(c, "POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
	}
	if !await.So(func() bool {
		return strings.Contains(send(t, g.check, "GET", "/metrics").body, `stint_in_flight{listener="check"} 2`+"\n")
	}) {
		t.Fatal("two unfinished checks are not under way")
	}
	calls := store.Calls()
	for _, c := range []struct{ addr, method, target string }{
		{g.gateway, "GET", "/"},
		{g.gateway, "POST", "/"},
		{g.gateway, "HEAD", "/"},
		{g.check, "POST", "/v1/check"},
		{g.check, "GET", "/v1/authorize"},
	} {
		var headers []string
		if c.method == "POST" {
			headers = []string{"Content-Length: 1000"} // of which nothing comes
		}
		got := send(t, c.addr, c.method, c.target, headers...)
		if got.StatusCode != 503 || got.Header.Get("Retry-After") != "1" || c.method != "HEAD" && got.problem(t) != noRoom || got.Close != (c.method == "POST") {
			t.Errorf("%s %s: %s %v %s", c.method, c.target, got.Status, got.Header, got.body)
		}
	}
	if got := send(t, g.check, "GET", "/v1/authorize?deny_status=403"); got.StatusCode != 403 || got.Header.Get("X-Stint-Status") != "503" {
		t.Errorf("authorize for nginx: %s %v", got.Status, got.Header)
	}
	if n := store.Calls() - calls; n != 0 {
		t.Errorf("%d calls of the store", n)
	}
	for addr, target := range map[string]string{g.check: "/healthz", g.admin: "/v1/status"} {
		if got := send(t, addr, "GET", target, "Host: localhost"); got.StatusCode != 200 {
			t.Errorf("%s: %s", target, got.Status)
		}
	}
	if got := send(t, g.check, "GET", "/readyz"); got.StatusCode != 200 {
		t.Errorf("readyz: %s", got.Status)
	}
	page := send(t, g.check, "GET", "/metrics").body
	for _, want := range []string{
		`stint_in_flight{listener="gateway"} 2`, `stint_in_flight{listener="check"} 2`,
		`stint_overload_refusals_total{reason="in_flight"} 6`, `stint_overload_refusals_total{reason="share"} 0`, `stint_overload_refusals_total{reason="limit"} 0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	close(wait.goOn)
	if !await.So(func() bool { return send(t, g.gateway, "GET", "/").StatusCode == 200 }) {
		t.Error("the room is not free again")
	}
}

// While many requests are under way, the memory of the headers of others is counted, and is free again
// when they end. One whose headers find no room is refused at once, and takes no place.
func TestBytesOfHeaders(t *testing.T) {
	wait := newGate()
	s := newServer(t, generous, everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			wait.ServeHTTP(w, r)
		}
	})), bounded(config.Instance{InFlight: 10, Bytes: 200 << 10})) // half of them for headers of one request
	g := start(t, s)
	busy := dial(t, g.gateway)
	defer busy.Close()
	fmt.Fprint(busy, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
	<-wait.came
	for name, ask := range map[string]func(headers string) answer{
		"gateway": func(headers string) answer { return send(t, g.gateway, "GET", "/", headers+"X: x") },
		"check": func(headers string) answer {
			return send(t, g.check, "POST", "/v1/check", headers+"X: x", "Host: x", "Content-Type: application/json", "Content-Length: 2\r\n\r\n{}")
		},
	} {
		before := s.Holds()
		for _, c := range []struct{ lines, status int }{{150, 200}, {3000, 503}, {150, 200}, {150, 200}, {150, 200}, {150, 200}} {
			got := ask(strings.Repeat("X: x\r\n", c.lines))
			if got.StatusCode != c.status || c.status == 503 && got.problem(t) != noRoom {
				t.Errorf("%s: %d lines of headers: %s %s, want %d", name, c.lines, got.Status, got.body, c.status)
			}
			if !await.So(func() bool { return maps.Equal(s.Holds(), before) }) {
				t.Fatalf("%s: %v, and %v before", name, s.Holds(), before)
			}
		}
	}
	close(wait.goOn)
	if !await.So(func() bool { return s.Holds()["gateway"] == 0 }) {
		t.Error("a request still counts")
	}
}

// Room is free again however a request ends: a client that leaves, an upstream that
// breaks off in the middle, or a connection that is upgraded and lives on.
func TestInFlightIsReleased(t *testing.T) {
	wait := newGate()
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/wait":
			wait.ServeHTTP(w, r)
		case "/break":
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/chat":
			echo(w, r)
		}
	})
	g := start(t, newServer(t, generous, everythingTo(up), bounded(config.Instance{InFlight: 1})))
	free := func(after string) {
		t.Helper()
		if !await.So(func() bool { return send(t, g.gateway, "GET", "/").StatusCode == 200 }) {
			t.Fatalf("no room after %s", after)
		}
	}
	left := dial(t, g.gateway)
	fmt.Fprint(left, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
	<-wait.came
	left.Close()
	free("a client that left")
	broken := dial(t, g.gateway)
	fmt.Fprint(broken, "GET /break HTTP/1.1\r\nHost: x\r\n\r\n")
	_, _ = io.Copy(io.Discard, broken)
	free("an upstream that broke off")
	chat := dial(t, g.gateway)
	defer chat.Close()
	if got := chat.send(t, "GET", "/chat", "Connection: Upgrade", "Upgrade: websocket"); got.StatusCode != 101 {
		t.Fatal(got.Status)
	}
	free("an upgrade")
	fmt.Fprint(chat, "still here\n")
	if line, err := chat.ReadString('\n'); err != nil || !strings.Contains(line, "still here") {
		t.Errorf("the upgraded connection: %q, %v", line, err)
	}
}

// The instance's limit is asked after the rules: what they refuse does not use it,
// and what it refuses has not used them, whichever way the request came.
func TestInstanceLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stint.Memory)
		s := newServer(t, `
safelist: ['operation == "safe"']
rules: [{name: client, match: 'operation != "free"', key: client.ip, limits: [3 per 1h fixed_window]}]
`, over(store), bounded(config.Instance{Limit: stint.MustLimit("5 per 10s fixed_window")}))
		// ask tells what becomes of n requests of a client.
		ask := func(client, operation string, n int) (said string) {
			in := from(client)
			in.Operation = operation
			for range n {
				v, err := s.Decide(t.Context(), in, time.Time{})
				var o *httplimit.Overloaded
				switch {
				case errors.As(err, &o):
					said += fmt.Sprint(o.RetryAfter, " ")
				case err != nil:
					t.Fatal(err)
				default:
					said += v.Outcome.String() + " "
				}
			}
			return said
		}
		time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(14 * time.Second)))
		for i, step := range []struct {
			client, operation string
			n                 int
			want              string
		}{
			{"192.0.2.1", "x", 6, "allowed allowed allowed limited limited limited "}, // refusals use nothing
			{"192.0.2.2", "x", 3, "allowed allowed 6s "},
			{"192.0.2.3", "free", 1, "6s "}, // nor is it for rules alone
			{"192.0.2.3", "safe", 1, "6s "},
			{"192.0.2.1", "x", 1, "limited "}, // the client's own fault goes first
		} {
			if got := ask(step.client, step.operation, step.n); got != step.want {
				t.Errorf("step %d: %s, want %s", i, got, step.want)
			}
		}
		time.Sleep(6 * time.Second)
		if got := ask("192.0.2.2", "x", 2); got != "allowed limited " {
			t.Errorf("the third unit was not refunded: %s", got)
		}
	})
}

// Each API answers a client that the instance's limit refuses with that cause and the wait;
// a simulation knows nothing of it.
func TestInstanceLimitOfEachAPI(t *testing.T) {
	s := newServer(t, generous+"\ntrusted_proxies: [127.0.0.1]", everythingTo(upstream(t, who("up"))),
		bounded(config.Instance{Limit: stint.MustLimit("1 per 24h")}))
	g := start(t, s)
	if got := send(t, g.gateway, "GET", "/"); got.StatusCode != 200 {
		t.Fatal(got.Status)
	}
	for _, got := range []answer{
		send(t, g.gateway, "GET", "/"),
		send(t, g.check, "POST", "/v1/check", "Host: x", "Content-Type: application/json", "Content-Length: 22\r\n\r\n"+`{"client":"192.0.2.1"}`),
		send(t, g.check, "GET", "/v1/authorize", "X-Original-URI: /", "X-Original-Method: GET", "X-Forwarded-For: 192.0.2.1"),
	} {
		if got.StatusCode != 503 || got.problem(t) != noRoom || len(got.Header.Get("Retry-After")) != 5 {
			t.Errorf("%s %v %s", got.Status, got.Header, got.body)
		}
	}
	page := send(t, g.check, "GET", "/metrics").body
	for _, want := range []string{`stint_overload_refusals_total{reason="limit"} 3`, `stint_decisions_total{outcome="overloaded",rule=""} 3`, `stint_decisions_total{outcome="allowed",rule="client"} 1`} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	var out strings.Builder
	line := `{"t_us":1,"client":"192.0.2.9"}` + "\n"
	if err := newServer(t, generous, bounded(config.Instance{Limit: stint.MustLimit("1 per 24h")})).Simulate(context.Background(), strings.NewReader(line+line), &out); err != nil || strings.Count(out.String(), `"outcome":"allowed"`) != 2 {
		t.Errorf("simulation: %v\n%s", err, &out)
	}
}

// What was charged to this instance's share goes back to it.
func TestInstanceLimitWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, `
rules:
  - {name: local, match: 'operation != "pass"', key: '"x"', limits: [2 per 1h fixed_window]}
  - {name: allow, match: 'operation == "pass"', key: '"x"', limits: [1 per 1h], on_store_error: allow}
`, over(failing()), bounded(config.Instance{Limit: stint.MustLimit("1 per 1s fixed_window")}))
		for range 3 { // none of the refused may use up local's second unit
			_, _ = s.Decide(t.Context(), doing("x"), time.Time{})
		}
		var o *httplimit.Overloaded
		if _, err := s.Decide(t.Context(), doing("pass"), time.Time{}); !errors.As(err, &o) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if v, err := s.Decide(t.Context(), doing("x"), time.Time{}); say(&v, err) != "allowed by local, 0 left" {
			t.Error(say(&v, err))
		}
	})
}

// So it does if the request also met a rule without limits, and each of the others was decided
// elsewhere.
func TestInstanceLimitBesideWatch(t *testing.T) {
	const local = `  - {name: local, key: '"x"', limits: [2 per 1h fixed_window]}` + "\n"
	const allow = `  - {name: allow, key: '"x"', limits: [9 per 1h], on_store_error: allow}` + "\n"
	for _, rest := range []string{local + allow, allow + local} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t, "rules:\n  - {name: watch, key: '\"x\"', penalty: {on_status: [401], ban_after: 2, ban_for: 1h}}\n"+rest,
				over(failing()), bounded(config.Instance{Limit: stint.MustLimit("1 per 1s fixed_window")}))
			for range 3 {
				_, _ = s.Decide(t.Context(), doing("x"), time.Time{})
			}
			time.Sleep(time.Second)
			if v, err := s.Decide(t.Context(), doing("x"), time.Time{}); say(&v, err) != "allowed by local, 0 left" {
				t.Error(say(&v, err))
			}
		})
	}
}

// Where nothing was charged, as where a store in memory is full and a rule lets pass
// then, nothing goes back.
func TestInstanceLimitWithNothingCharged(t *testing.T) {
	s := newServer(t, `rules: [{name: client, key: client.ip, limits: [1 per 24h], on_store_error: allow}]`,
		over(&stint.Memory{MaxKeys: 1}), bounded(config.Instance{Limit: stint.MustLimit("2 per 24h")}))
	for i, refused := range []bool{false, false, true} {
		_, err := s.Decide(t.Context(), from(fmt.Sprint("192.0.2.", i)), time.Time{})
		if o := new(httplimit.Overloaded); errors.As(err, &o) != refused {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

// Connections above max_connections are closed as they come, and room is free again
// when one goes.
func TestMaxConnections(t *testing.T) {
	g := start(t, newServer(t, generous, everythingTo(upstream(t, echo)), func(c *server.Config) { c.Settings.MaxConnections = 2 }))
	one, two := dial(t, g.gateway), dial(t, g.gateway)
	defer two.Close()
	one.send(t, "GET", "/")
	if got := two.send(t, "GET", "/chat", "Connection: Upgrade", "Upgrade: websocket"); got.StatusCode != 101 {
		t.Fatal(got.Status) // it counts on
	}
	three := dial(t, g.gateway)
	defer three.Close()
	if _, err := three.ReadByte(); err == nil {
		t.Error("a third connection was served")
	}
	if got := send(t, g.check, "GET", "/metrics"); !strings.Contains(got.body, `stint_connections_refused_total{listener="gateway"} 1`+"\n") {
		t.Error(got.body)
	}
	one.Close()
	if !await.So(func() bool {
		c := dial(t, g.gateway)
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		_, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil
	}) {
		t.Error("its room is not free again")
	}
}
