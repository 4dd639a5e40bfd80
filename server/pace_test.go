package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stintdev/stint/internal/await"
	"github.com/stintdev/stint/server"
	"github.com/stintdev/stint/server/config"
)

// patient gives clients of the gateway so long.
func patient(d time.Duration) func(*server.Config) {
	return func(c *server.Config) { c.Settings.BodyTimeout = d }
}

// taking is an upstream that reads the whole body and says how long it was.
func taking(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	fmt.Fprint(w, n)
}

const tooSlow = "408 Request Timeout: The request's body did not arrive in time."

// An upload that stops, or trickles, is answered with 408, and its connection closed. One
// whose upstream takes its time, and a client that is slow but keeps pace, are not.
func TestUnfinishedUpload(t *testing.T) {
	g := start(t, newServer(t, generous, everythingTo(upstream(t, taking)), patient(200*time.Millisecond)))
	for name, after := range map[string]func(c conn){
		"nothing": func(conn) {},
		"trickle": func(c conn) {
			for range 200 {
				if _, err := fmt.Fprint(c, "x"); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		},
	} {
		c := dial(t, g.gateway)
		defer c.Close()
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc")
		go after(c)
		if got := c.answer(t, "POST"); got.problem(t) != tooSlow || !got.Close {
			t.Errorf("%s: %q, close %t", name, got.problem(t), got.Close)
		}
	}
	if page := send(t, g.check, "GET", "/metrics").body; !strings.Contains(page, `stint_stalled_clients_total{direction="upload"} 2`+"\n") {
		t.Error("two stalled uploads are not counted")
	}
	steady := dial(t, g.gateway)
	defer steady.Close()
	fmt.Fprint(steady, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n")
	for range 20 { // longer than the time there is, in all
		_, _ = steady.Write(make([]byte, 500))
		time.Sleep(15 * time.Millisecond)
	}
	if got := steady.answer(t, "POST"); got.body != "10000" || got.Close {
		t.Errorf("steady: %s %v %s", got.Status, got.Header, got.body)
	}
	if got := steady.send(t, "POST", "/", "Content-Length: 3\r\nHost: x\r\n\r\nabc"); got.body == "" {
		t.Errorf("the next on that connection: %s", got.Status)
	}
}

// An upstream that does not read is not its client's fault. Where the machine pauses for as long as a
// client may, both have more time.
func TestUpstreamThatDoesNotRead(t *testing.T) {
	t.Parallel()
	for patience := 200 * time.Millisecond; ; patience *= 5 {
		err := unread(t, patience)
		if err == nil {
			return
		}
		if patience > time.Second {
			t.Fatal(err)
		}
		t.Logf("with body_timeout %s: %v", patience, err)
	}
}

// unread sends much to an upstream that begins to read later than a client may stall.
func unread(t *testing.T, patience time.Duration) error {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(3 * patience)
		taking(w, r)
	})
	g := start(t, newServer(t, generous, everythingTo(up), patient(patience)))
	const size = 32 << 20 // more than the sockets hold
	resp, err := http.Post("http://"+g.gateway+"/", "", bytes.NewReader(make([]byte, size)))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); string(got) != fmt.Sprint(size) {
		return fmt.Errorf("%s: %s, %v", resp.Status, got, err)
	}
	return nil
}

// A response that goes on for long with nothing in it, such as server-sent events, lives;
// so does a route that has all the time there is, and a conversation by HTTP/2. Where the
// machine pauses for as long as a client may, all takes longer.
func TestPaceSparesSlowUpstreams(t *testing.T) {
	t.Parallel()
	for patience := 100 * time.Millisecond; ; patience *= 3 {
		err := errors.Join(silentEvents(t, patience), slowRoute(t, patience), conversation(t, patience))
		if err == nil {
			return
		}
		if patience > time.Second {
			t.Fatal(err)
		}
		t.Logf("with body_timeout %s: %v", patience, err)
	}
}

// silentEvents asks for events that come at longer intervals than a client may take.
func silentEvents(t *testing.T, patience time.Duration) error {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for i := range 4 {
			fmt.Fprintf(w, "event %d\n", i)
			w.(http.Flusher).Flush()
			time.Sleep(2 * patience)
		}
	})
	g := start(t, newServer(t, generous, everythingTo(up), patient(patience)))
	resp, err := http.Post("http://"+g.gateway+"/events", "", strings.NewReader("abc"))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(got), "event 3\n") {
		return fmt.Errorf("events: %s %q, %w", resp.Status, got, err)
	}
	return nil
}

// slowRoute uploads slowly to a route with a body_timeout of 0.
func slowRoute(t *testing.T, patience time.Duration) error {
	up, none := upstream(t, taking), time.Duration(0)
	g := start(t, newServer(t, generous, routes(config.Route{Path: "/", Upstream: up, BodyTimeout: &none}), patient(patience)))
	r, w := io.Pipe()
	go func() {
		fmt.Fprint(w, "ab")
		time.Sleep(4 * patience)
		fmt.Fprint(w, "cd")
		w.Close()
	}()
	resp, err := http.Post("http://"+g.gateway+"/slow", "", r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "4" {
		return fmt.Errorf("slow: %s %q, %w", resp.Status, got, err)
	}
	return nil
}

// conversation is silent for long once the response has begun.
func conversation(t *testing.T, patience time.Duration) error {
	talk := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		w.WriteHeader(200)
		_ = control.Flush()
		_, _ = io.Copy(w, r.Body)
	})
	g := start(t, newServer(t, generous, everythingTo(talk), patient(patience)))
	r, w := io.Pipe()
	defer w.Close()
	request, _ := http.NewRequest("POST", "http://"+g.gateway+"/", r)
	resp, err := clearHTTP2(t).RoundTrip(request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	time.Sleep(4 * patience)
	fmt.Fprint(w, "still there")
	w.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "still there" {
		return fmt.Errorf("conversation: %q, %w", got, err)
	}
	return nil
}

// clearHTTP2 speaks HTTP/2 without TLS, from an address on loopback if one is given.
func clearHTTP2(t *testing.T, from ...string) *http.Transport {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	if len(from) > 0 {
		tr.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from[0])}}).DialContext
	}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// A client that does not take its response loses it, and the place is free.
func TestUnreadResponse(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 1<<10)
		for range 1 << 20 {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	s := newServer(t, generous, everythingTo(up), patient(100*time.Millisecond), bounded(config.Instance{InFlight: 1}))
	g := start(t, s)
	c := dial(t, g.gateway)
	defer c.Close()
	_ = c.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	start := time.Now()
	for {
		page := send(t, g.check, "GET", "/metrics").body
		if strings.Contains(page, `stint_in_flight{listener="gateway"} 0`+"\n") && time.Since(start) > 100*time.Millisecond {
			break
		}
		if time.Since(start) > 100*time.Second {
			t.Fatal("it is under way still")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// What is refused is not under way, and its connection does not wait for the rest of the
// body for ever.
func TestRestOfARefusedBody(t *testing.T) {
	g := start(t, newServer(t, `rules: [{name: none, key: client.ip, limits: [1 per 24h]}]`, everythingTo(upstream(t, taking)), patient(200*time.Millisecond)))
	send(t, g.gateway, "GET", "/")
	c := dial(t, g.gateway)
	defer c.Close()
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
	if got := c.answer(t, "POST"); got.StatusCode != 429 {
		t.Errorf("%s", got.Status)
	}
	if _, err := c.ReadByte(); err != io.EOF {
		t.Errorf("then: %v", err)
	}
}

// An upstream that answers before it has the body is heard at once, also where the body
// does not come.
func TestEarlyAnswer(t *testing.T) {
	up := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusUnauthorized)
	})
	g := start(t, newServer(t, generous, everythingTo(up), patient(time.Minute)))
	c := dial(t, g.gateway)
	defer c.Close()
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc")
	if got := c.answer(t, "POST"); got.StatusCode != 401 || !got.Close {
		t.Errorf("%s %v", got.Status, got.Header)
	}
}

// A client that asks whether to send its body, and leaves when the upstream has begun to
// answer, keeps no place, also if the upstream waits for the body.
func TestAttackLeftBeforeTheBody(t *testing.T) {
	s := newServer(t, generous, everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(http.StatusAccepted)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	})))
	g := start(t, s)
	for range 10 {
		c := dial(t, g.gateway)
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n")
		for status := 0; status != http.StatusAccepted; {
			resp, err := http.ReadResponse(c.Reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			status = resp.StatusCode
		}
		c.Close()
	}
	if !await.So(func() bool { return s.Holds()["gateway"] == 0 }) {
		t.Errorf("taken when all have left: %v", s.Holds())
	}
}
