package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stintdev/stint/server"
)

// An event reaches the client while the upstream still works on the next one.
func TestServerSentEvents(t *testing.T) {
	seen := make(chan bool)
	g := start(t, newServer(t, generous, everythingTo(upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-seen
		}
	}))))
	resp, err := http.Get("http://" + g.gateway)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("X-RateLimit-Remaining") != "999" {
		t.Errorf("headers %v", resp.Header)
	}
	events := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := events.ReadString('\n')
		if _, err2 := events.ReadString('\n'); err != nil || err2 != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d: %q, %v", i, line, err)
		}
		seen <- true
	}
	if rest, err := io.ReadAll(events); err != nil || len(rest) > 0 {
		t.Errorf("then %q, %v", rest, err)
	}
}

// The upstream sees the beginning of a body before the client has sent its end.
func TestRequestBodyStreams(t *testing.T) {
	seen := make(chan string)
	g := start(t, newServer(t, generous, everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			seen <- lines.Text()
		}
		fmt.Fprint(w, "all")
	}))))
	body, into := io.Pipe()
	answered := make(chan string)
	go func() {
		resp, err := http.Post("http://"+g.gateway, "text/plain", body)
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answered <- string(text)
	}()
	for _, line := range []string{"one", "two", "three"} {
		fmt.Fprintln(into, line)
		if got := <-seen; got != line {
			t.Errorf("sent %q, seen %q", line, got)
		}
	}
	into.Close()
	if got := <-answered; got != "all" {
		t.Errorf("answered %q", got)
	}
}

// echo speaks its own protocol after a handshake as a websocket's.
func echo(w http.ResponseWriter, r *http.Request) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-RateLimit-Limit: 17\r\n\r\n", r.Header.Get("Upgrade"))
	for line, err := rw.ReadString('\n'); err == nil; line, err = rw.ReadString('\n') {
		fmt.Fprint(c, line)
	}
}

func TestUpgrade(t *testing.T) {
	g := start(t, newServer(t, `rules: [{name: client, key: client.ip, limits: [1 per 1h]}]`, everythingTo(upstream(t, echo))))
	c := dial(t, g.gateway)
	defer c.Close()
	got := c.send(t, "GET", "/chat", "Connection: Upgrade", "Upgrade: websocket")
	if got.StatusCode != 101 || got.Header.Get("Upgrade") != "websocket" || strings.Join(got.Header.Values("X-RateLimit-Limit"), ",") != "1" {
		t.Fatalf("%s %v", got.Status, got.Header)
	}
	for _, line := range []string{"hello\n", "again\n"} {
		fmt.Fprint(c, line)
		if back, err := c.ReadString('\n'); err != nil || back != line {
			t.Errorf("said %q, heard %q, %v", line, back, err)
		}
	}
	if got := send(t, g.gateway, "GET", "/chat", "Connection: Upgrade", "Upgrade: websocket"); got.StatusCode != 429 {
		t.Errorf("a second one: %s", got.Status)
	}
}

// A client that asks first whether to send its body is told to, or refused without having
// sent it.
func TestExpectContinue(t *testing.T) {
	g := start(t, newServer(t, `rules: [{name: client, key: client.ip, limits: [1 per 1h]}]`,
		everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))))
	c := dial(t, g.gateway)
	defer c.Close()
	if got := c.send(t, "POST", "/", "Expect: 100-continue", "Content-Length: 5"); got.StatusCode != 100 {
		t.Fatalf("first %s", got.Status)
	}
	fmt.Fprint(c, "hello")
	got := c.answer(t, "POST")
	for got.StatusCode == 100 { // the upstream's own, after ours
		got = c.answer(t, "POST")
	}
	if got.StatusCode != 200 || got.body != "hello" {
		t.Errorf("then %s %s", got.Status, got.body)
	}
	if got := send(t, g.gateway, "POST", "/", "Expect: 100-continue", "Content-Length: 1000000000"); got.StatusCode != 429 {
		t.Errorf("refused: %s", got.Status)
	}
}

func TestTrailers(t *testing.T) {
	g := start(t, newServer(t, generous, everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "Sum")
		fmt.Fprintf(w, "%s %s", body, r.Trailer.Get("Check"))
		w.Header().Set("Sum", "42")
	}))))
	r, err := http.NewRequest("POST", "http://"+g.gateway, io.MultiReader(strings.NewReader("hello")))
	if err != nil {
		t.Fatal(err)
	}
	r.Trailer = http.Header{"Check": {"7"}}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "hello 7" || resp.Trailer.Get("Sum") != "42" {
		t.Errorf("got %q, %v, trailers %v", body, err, resp.Trailer)
	}
}

// An upstream's compression is its own affair.
func TestCompressionIsKept(t *testing.T) {
	g := start(t, newServer(t, generous, everythingTo(upstream(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "asked for ", r.Header["Accept-Encoding"])
	}))))
	if got := send(t, g.gateway, "GET", "/"); got.body != "asked for []" {
		t.Error(got.body)
	}
	if got := send(t, g.gateway, "GET", "/", "Accept-Encoding: br"); got.body != "asked for [br]" {
		t.Error(got.body)
	}
}

// The client is whom a trusted proxy names. What anyone else says of where it comes
// from neither counts nor reaches the upstream.
func TestForwarded(t *testing.T) {
	const file = `
rules: [{name: client, key: client.ip, limits: [2 per 1h]}]
`
	told := func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-Ip"} {
			fmt.Fprintf(w, "%s;", strings.Join(r.Header[name], "|"))
		}
	}
	real := func(c *server.Config) { c.Settings.ClientHeader = "X-Real-Ip" }
	trusting, strangers := "trusted_proxies: [127.0.0.1]"+file, "trusted_proxies: [192.0.2.0/24]"+file
	claims := []string{"X-Forwarded-For: 203.0.113.7", "X-Forwarded-For: 198.51.100.2", "X-Forwarded-Host: a.example",
		"X-Forwarded-Proto: https", "Forwarded: for=203.0.113.7", "X-Real-Ip: 203.0.113.9"}
	for _, c := range []struct {
		name, file string
		change     func(*server.Config)
		headers    []string
		want       string
	}{
		{"a client", strangers, func(*server.Config) {}, nil, "127.0.0.1;example.com;http;;;"},
		{"a client that lies", strangers, func(*server.Config) {}, claims, "127.0.0.1;example.com;http;;203.0.113.9;"},
		{"a client that lies in the header that proxies write", strangers, real, claims, "127.0.0.1;example.com;http;;;"},
		{"a proxy", trusting, func(*server.Config) {}, claims, "203.0.113.7, 198.51.100.2, 127.0.0.1;a.example;https;for=203.0.113.7;203.0.113.9;"},
		{"a proxy that says nothing", trusting, func(*server.Config) {}, nil, "127.0.0.1;example.com;http;;;"},
	} {
		g := start(t, newServer(t, c.file, everythingTo(upstream(t, told)), c.change))
		if got := send(t, g.gateway, "GET", "/", c.headers...); got.body != c.want {
			t.Errorf("%s: the upstream was told\n     %s\nwant %s", c.name, got.body, c.want)
		}
	}

	left := func(g *running, headers ...string) string {
		return send(t, g.gateway, "GET", "/", headers...).Header.Get("X-RateLimit-Remaining")
	}
	for name, c := range map[string]struct {
		file   string
		change func(*server.Config)
		alice  string
		bob    string
		want   string // what is left for alice, alice again and bob
	}{
		"proxies are believed":        {trusting, func(*server.Config) {}, "X-Forwarded-For: 203.0.113.1", "X-Forwarded-For: 203.0.113.1, 203.0.113.2", "1 0 1"},
		"others are not":              {strangers, func(*server.Config) {}, "X-Forwarded-For: 203.0.113.1", "X-Forwarded-For: 203.0.113.2", "1 0 0"},
		"nor in another header":       {strangers, real, "X-Real-Ip: 203.0.113.1", "X-Real-Ip: 203.0.113.2", "1 0 0"},
		"proxies choose their header": {trusting, real, "X-Real-Ip: 203.0.113.1", "X-Real-Ip: 203.0.113.2", "1 0 1"},
		"one IPv6 network is one":     {trusting, func(*server.Config) {}, "X-Forwarded-For: 2001:db8::1", "X-Forwarded-For: 2001:db8::ffff:2", "1 0 0"},
		"mapped is IPv4":              {trusting, func(*server.Config) {}, "X-Forwarded-For: ::ffff:203.0.113.1", "X-Forwarded-For: 203.0.113.1", "1 0 0"},
	} {
		g := start(t, newServer(t, c.file, everythingTo(upstream(t, told)), c.change))
		if got := strings.Join([]string{left(g, c.alice), left(g, c.alice), left(g, c.bob)}, " "); got != c.want {
			t.Errorf("%s: %s left, want %s", name, got, c.want)
		}
	}
}

// What stands in front is told to the upstream under one name only: what a client says of
// itself under a name that the upstream takes for it ends here.
func TestForwardedTwins(t *testing.T) {
	var seen http.Header
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { seen = r.Header })
	for _, trusted := range []string{"", "trusted_proxies: [127.0.0.1/32]\n"} {
		g := start(t, newServer(t, trusted+many, everythingTo(up), func(c *server.Config) { c.Settings.ClientHeader = "X-My-Ip" }))
		got := send(t, g.gateway, "GET", "/", "X_Forwarded_For: 1.1.1.1", "X_FORWARDED_PROTO: https", "X.Real.Ip: 1.1.1.1", "x_my_ip: 1.1.1.1", "X_Other: kept", "X-My-Ip: 192.0.2.1")
		if got.StatusCode != 200 || seen.Get("X_other") != "kept" {
			t.Fatalf("%s %v", got.Status, seen)
		}
		for name := range seen {
			if name != "X_other" && strings.ContainsAny(name, "_.") {
				t.Errorf("%q: the upstream got %s", trusted, name)
			}
		}
	}
}
